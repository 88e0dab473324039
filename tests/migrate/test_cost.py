"""The work on a file grows with its length, whatever repeats in it: function calls are counted, not seconds."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from anyaccel.migrate.project import survey
from anyaccel.migrate.source import migrate_source
from anyaccel.migrate.source_view import SourceView

_SHAPES = {
    "assignments": lambda count: "x = torch.f(x)\n" * count,
    "reads": lambda count: "def f(x):\n" + "    x = x.cuda()\n    if x: x = torch.cuda.g(x)\n" * count,
}
_SITES = {
    "callers": lambda count: "".join(
        f"class C{n}:\n    def to(self, dest):\n        self.x.to(dest)\n        return self.to(dest), self.y.cuda(dest)\n"
        for n in range(count)
    ),
    "conditions": lambda count: "".join(
        f"def f{n}(x):\n    if x and torch.version.cuda:\n        x = x.cuda()\n    return x\n" for n in range(count)
    ),
    "questions": lambda count: "".join(
        f"def f{n}(x):\n" + "    if torch.cuda.is_available():\n        x = x.cuda()\n" * 8 + "    return x\n"
        for n in range(count // 8)
    ),
    "nested functions": lambda count: "".join(
        f"def f{n}(x, device='cuda'):\n    def g(y):\n        return y.to(device)\n    return g(x.cuda())\n"
        for n in range(count)
    ),
}


def _calls(work: Callable[[], object]) -> int:
    """Return how many Python functions are called."""
    calls = 0

    def count(_: object, event: str, __: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.parametrize("shape", _SHAPES)
def test_names_that_are_often_assigned(shape: str) -> None:
    costs = []
    for count in (200, 400):
        source = "import torch\n" + _SHAPES[shape](count)
        project = survey([("", source)])
        migrate_source("import torch\n" + _SHAPES[shape](2))  # what is cached
        costs.append(_calls(lambda: SourceView(source, project)))  # noqa: B023
    assert costs[1] <= 2.2 * costs[0]


@pytest.mark.parametrize("shape", _SITES)
def test_sites_that_are_alike(shape: str) -> None:
    migrate_source("import torch\n" + _SITES[shape](20))  # what is cached
    costs = [_calls(lambda: migrate_source("import torch\n" + _SITES[shape](count))) for count in (20, 40)]  # noqa: B023
    assert costs[1] <= 2.5 * costs[0]
