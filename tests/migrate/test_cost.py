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
