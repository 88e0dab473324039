"""Two laws on random modules: a CPU does what it did before, and another accelerator what CUDA did, or what a CPU did."""

from __future__ import annotations

import pytest

from .other_accelerator import half_ported
from .random_functions import random_module
from .test_without_cuda import differences

_AT_ONCE = 100
_CONTRADICTIONS = {2857, 3123}
"""Seeds of functions that ask, where CUDA is missing, for a tensor on CUDA, and the like."""
_LIMITS = {3867: "what only CUDA has is left with its branch, in which a tensor moves to a device that a setting names"}


def _firsts(count: int) -> list[object]:
    """Return the first seeds of some hundreds of modules, of which all but the first hundred are slow."""
    more = (pytest.param(first, marks=pytest.mark.slow) for first in range(_AT_ONCE, count, _AT_ONCE))
    return [0, *more]


@pytest.mark.parametrize("first", _firsts(1500))
def test_a_cpu_does_the_same_as_before(first: int) -> None:
    found = {seed: differences(random_module(seed), seed % 2) for seed in range(first, first + _AT_ONCE)}
    assert {seed: what for seed, what in found.items() if what} == {}


@pytest.mark.parametrize("first", _firsts(4000))
def test_another_accelerator_does_what_cuda_did_or_a_cpu(first: int) -> None:
    found = {seed: half_ported(random_module(seed, functions=1), seed % 2) for seed in range(first, first + _AT_ONCE)}
    assert {seed for seed, what in found.items() if what} <= {*_CONTRADICTIONS, *_LIMITS}, found


@pytest.mark.parametrize(
    "code",
    [
        "    if get_accelerator().is_available():\n        x = x.to('cuda')\n    return launch(x)",
        "    if torch.cuda.is_available():\n        x = launch(x)\n    return x.to(get_accelerator().device_name())",
    ],
)
def test_a_function_that_is_ported_by_half_is_found(code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    head = "import torch\nfrom anyaccel import get_accelerator\ndef f(x, launch):\n"
    old = code.replace("get_accelerator().device_name()", "'cuda'").replace("get_accelerator()", "torch.cuda")

    class Done:
        new, sites = f"{head}{code}\n", ()

    monkeypatch.setattr("tests.migrate.other_accelerator.migrate_source", lambda _: Done)
    assert half_ported(f"{head}{old}\n", 1) != {}
