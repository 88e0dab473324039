"""Generators, seeds and their states."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from .expect import expect, expect_type, last_index, made_current

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...accelerator import DeepSpeedAccelerator

__all__ = ["CHECKS"]


def _drawn(accelerator: DeepSpeedAccelerator, index: int | None = None) -> list[float]:
    """Draw numbers on a device; by default on the current one."""
    name = accelerator.current_device_name() if index is None else accelerator.device_name(index)
    drawn: list[float] = torch.rand(4, device=name).cpu().tolist()
    return drawn


def _random(accelerator: DeepSpeedAccelerator) -> None:
    expect(callable(getattr(accelerator.random(), "manual_seed", None)), "random() is no module with manual_seed")


def _seeding_repeats(accelerator: DeepSpeedAccelerator, seed: Callable[[int], object], index: int) -> None:
    seed(1234)
    first = _drawn(accelerator, index)
    second = _drawn(accelerator, index)
    seed(1234)
    expect(_drawn(accelerator, index) == first, f"the same seed gives other numbers on device {index}")
    expect(first != second, f"two draws after one seed give the same numbers on device {index}")


def _pairs(accelerator: DeepSpeedAccelerator) -> list[tuple[int, int]]:
    """Return the current and the last device in both orders; nothing if they are one, or share a generator as a CPU's do."""
    current, last = accelerator.current_device(), last_index(accelerator)
    return [] if current == last or accelerator.device_name() == "cpu" else [(current, last), (last, current)]


def _leaves_other(accelerator: DeepSpeedAccelerator, act: Callable[[], object], other: int, what: str) -> None:
    before = accelerator.get_rng_state(other).clone()
    act()
    expect(accelerator.get_rng_state(other).equal(before), f"{what} changes the generator of device {other}")


def _manual_seed(accelerator: DeepSpeedAccelerator) -> None:
    _seeding_repeats(accelerator, accelerator.manual_seed, accelerator.current_device())
    for index, other in _pairs(accelerator):
        with made_current(accelerator, index):
            seed = partial(accelerator.manual_seed, 98 + index)
            _leaves_other(accelerator, seed, other, f"manual_seed() on device {index}")
            expect(
                accelerator.initial_seed() == 98 + index,
                f"initial_seed() is not that of device {index}, the current one",
            )


def _manual_seed_all(accelerator: DeepSpeedAccelerator) -> None:
    for index in sorted({accelerator.current_device(), last_index(accelerator)}):
        _seeding_repeats(accelerator, accelerator.manual_seed_all, index)


def _initial_seed(accelerator: DeepSpeedAccelerator) -> None:
    accelerator.manual_seed(4321)
    expect(
        accelerator.initial_seed() == 4321, f"after manual_seed(4321), initial_seed() is {accelerator.initial_seed()}"
    )


def _rng_state(accelerator: DeepSpeedAccelerator) -> None:
    for arguments in ((), (accelerator.current_device(),), (last_index(accelerator),)):
        state = accelerator.get_rng_state(*arguments)
        expect_type(state, torch.Tensor, "get_rng_state()")
        expect(state.dtype == torch.uint8 and state.device.type == "cpu", "get_rng_state() is no uint8 CPU tensor")
        first = _drawn(accelerator, *arguments)
        accelerator.set_rng_state(state, *arguments)
        expect(
            _drawn(accelerator, *arguments) == first,
            f"set_rng_state(state, *{arguments}) does not bring the numbers back",
        )

    for index, other in _pairs(accelerator):
        with made_current(accelerator, index):
            accelerator.manual_seed(55 + index)
            state = accelerator.get_rng_state()
            expect(
                state.equal(accelerator.get_rng_state(index)),
                f"get_rng_state() is not that of device {index}, the current one",
            )
            setting = partial(accelerator.set_rng_state, state, index)
            _leaves_other(accelerator, setting, other, f"set_rng_state(state, {index})")
            setting = partial(accelerator.set_rng_state, state)
            _leaves_other(accelerator, setting, other, f"set_rng_state(state) with device {index} as the current one")


def _rng_state_all(accelerator: DeepSpeedAccelerator) -> None:
    for seed, (index, _) in enumerate(_pairs(accelerator), 77):
        with made_current(accelerator, index):
            accelerator.manual_seed(seed)
    states = accelerator.get_rng_state_all()
    for index, _ in _pairs(accelerator):
        expect(
            states[index].equal(accelerator.get_rng_state(index)), f"get_rng_state_all()[{index}] is another device's"
        )
    expected = accelerator.device_count() if accelerator.device_name() != "cpu" else 1  # a CPU has one generator
    expect(len(states) == expected, f"get_rng_state_all() has {len(states)} states; expected {expected}")
    drawn_on = sorted({accelerator.current_device(), last_index(accelerator)})
    first = [_drawn(accelerator, index) for index in drawn_on]
    accelerator.set_rng_state_all(states)
    found = [_drawn(accelerator, index) for index in drawn_on]
    expect(found == first, f"set_rng_state_all(get_rng_state_all()) does not bring the numbers of {drawn_on} back")


def _random_seed(member: str, accelerator: DeepSpeedAccelerator) -> None:
    numbers = [getattr(accelerator, member)() for _ in range(2)]
    for number in numbers:
        expect_type(number, int, f"{member}()")
    expect(numbers[0] != numbers[1], f"{member}() gives the same number twice")
    expect(accelerator.initial_seed() == numbers[1], f"after {member}(), initial_seed() is not what it returned")
    for _, other in _pairs(accelerator)[:1]:
        before = accelerator.get_rng_state(other).clone()
        getattr(accelerator, member)()
        is_seeded = not accelerator.get_rng_state(other).equal(before)
        are_meant = member == "seed_all"
        expect(is_seeded == are_meant, f"{member}() {'changes' if is_seeded else 'does not seed'} device {other}")


def _default_generator(accelerator: DeepSpeedAccelerator) -> None:
    for seed, index in enumerate(sorted({accelerator.current_device(), last_index(accelerator)}), 2468):
        generator = accelerator.default_generator(index)
        expect_type(generator, torch.Generator, "default_generator(i)")
        with made_current(accelerator, index):
            accelerator.manual_seed(seed)
        expect(
            generator.initial_seed() == seed, f"default_generator({index}) is not the one that manual_seed seeds there"
        )


CHECKS: dict[str, Callable[[DeepSpeedAccelerator], None]] = {
    "random": _random,
    "manual_seed": _manual_seed,
    "manual_seed_all": _manual_seed_all,
    "initial_seed": _initial_seed,
    "get_rng_state": _rng_state,
    "set_rng_state": _rng_state,
    "get_rng_state_all": _rng_state_all,
    "set_rng_state_all": _rng_state_all,
    "seed": partial(_random_seed, "seed"),
    "seed_all": partial(_random_seed, "seed_all"),
    "default_generator": _default_generator,
}
