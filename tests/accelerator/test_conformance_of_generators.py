"""Conformance tells the generators of two devices apart, with devices that are generators only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch

import anyaccel
from anyaccel.testing import run_check
from anyaccel.testing.checks import random_numbers
from anyaccel.testing.outcome import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable


class Two(anyaccel.CPU_Accelerator):
    """Two devices, of which each has a generator."""

    def __init__(self) -> None:
        super().__init__()
        self.generators = [torch.Generator(), torch.Generator()]
        self.current = 0

    def device_name(self, device_index: Any = None) -> str:
        return "meta" if device_index is None else f"meta:{device_index}"  # a kind of which torch has any number

    def device_count(self) -> int:
        return 2

    def current_device(self) -> int:
        return self.current

    def set_device(self, device_index: Any) -> None:
        self.current = device_index

    def of(self, index: int | None) -> torch.Generator:
        return self.generators[self.current if index is None else index]

    def default_generator(self, device_index: int) -> torch.Generator:
        return self.of(device_index)

    def manual_seed(self, seed: int) -> None:
        self.of(None).manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        for one in self.generators:
            one.manual_seed(seed)

    def seed(self) -> int:
        return self.of(None).seed()

    def seed_all(self) -> int:
        seed = self.seed()
        self.manual_seed_all(seed)
        return seed

    def initial_seed(self) -> int:
        return self.of(None).initial_seed()

    def get_rng_state(self, device_index: Any = None) -> torch.Tensor:
        return self.of(device_index).get_state()

    def set_rng_state(self, new_state: torch.Tensor, device_index: Any = None) -> None:
        self.of(device_index).set_state(new_state)

    def get_rng_state_all(self) -> list[torch.Tensor]:
        return [one.get_state() for one in self.generators]

    def set_rng_state_all(self, new_states: Any) -> None:
        for one, state in zip(self.generators, new_states, strict=False):
            one.set_state(state)


WRONG: dict[str, tuple[str, Callable[..., Any]]] = {
    "manual_seed seeds every device": ("manual_seed", Two.manual_seed_all),
    "set_rng_state also sets the first": (
        "set_rng_state",
        lambda self, state, index=None: [one.set_state(state) for one in {self.of(index), self.of(0)}],
    ),
    "get_rng_state is always the first one's": ("get_rng_state", lambda self, index=0: self.of(index).get_state()),
    "set_rng_state is always the first one's": (
        "set_rng_state",
        lambda self, state, index=0: self.of(index).set_state(state),
    ),
    "initial_seed is always the first one's": ("initial_seed", lambda self: self.of(0).initial_seed()),
    "the states are in another order": (
        "get_rng_state_all",
        lambda self: [one.get_state() for one in self.generators[::-1]],
    ),
    "seed_all seeds one": ("seed_all", Two.seed),
    "seed seeds all": ("seed", Two.seed_all),
}


def _outcomes(accelerator: Two, monkeypatch: pytest.MonkeyPatch) -> list[Outcome]:
    def drawn(_: Any, index: int | None = None) -> list[float]:
        numbers: list[float] = torch.rand(4, generator=accelerator.of(index)).tolist()
        return numbers

    monkeypatch.setattr(random_numbers, "_drawn", drawn)
    return [run_check(accelerator, member).outcome for member in random_numbers.CHECKS]


def test_two_generators_conform(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(_outcomes(Two(), monkeypatch)) == {Outcome.OK}


@pytest.mark.parametrize("name", WRONG)
def test_a_generator_of_another_device_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    member, wrong = WRONG[name]
    lying = type("Lying", (Two,), {member: wrong})
    assert Outcome.WRONG in _outcomes(lying(), monkeypatch)


@pytest.mark.parametrize("wrong", ["aliases", "ignores strides"])
def test_pinned_memory_that_is_not_a_copy_is_found(wrong: str) -> None:
    class Lying(anyaccel.CPU_Accelerator):
        def pin_memory(self, tensor: torch.Tensor, *arguments: Any, **options: Any) -> torch.Tensor:
            if wrong == "aliases" and options == {"make_copy": False}:
                return tensor
            if wrong == "ignores strides":
                tensor = tensor.as_strided(tensor.shape, torch.empty(tensor.shape).stride())
            return super().pin_memory(tensor, *arguments, **options)

    assert run_check(Lying(), "pin_memory").outcome is Outcome.WRONG
