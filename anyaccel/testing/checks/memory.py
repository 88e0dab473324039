"""Memory: what is used, what is free, and the peaks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from .expect import expect, expect_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...accelerator import DeepSpeedAccelerator

__all__ = ["CHECKS"]

_PROBE_BYTES = 64 << 20


def _answers_bytes(member: str, accelerator: DeepSpeedAccelerator) -> None:
    for arguments in ((), (accelerator.current_device(),)):
        answer = getattr(accelerator, member)(*arguments)
        expect_type(answer, int, f"{member}{arguments}")
        expect(answer >= 0, f"{member}{arguments} is {answer}")


def _allocate(accelerator: DeepSpeedAccelerator) -> torch.Tensor:
    return torch.ones(_PROBE_BYTES // 4, device=accelerator.current_device_name())


def _memory_allocated(accelerator: DeepSpeedAccelerator) -> None:
    _answers_bytes("memory_allocated", accelerator)
    before = accelerator.memory_allocated()
    held = _allocate(accelerator)
    grown = accelerator.memory_allocated() - before
    expect(grown >= held.nbytes // 2, f"a tensor of {held.nbytes} bytes raises memory_allocated() by {grown}")


def _memory_reserved(member: str, accelerator: DeepSpeedAccelerator) -> None:
    _answers_bytes(member, accelerator)
    held = _allocate(accelerator)
    reserved = getattr(accelerator, member)()
    expect(reserved >= held.nbytes, f"{member}() is {reserved} while a tensor of {held.nbytes} bytes lives")


def _peak(member: str, reset: str, accelerator: DeepSpeedAccelerator) -> None:
    _answers_bytes(member, accelerator)
    held = _allocate(accelerator)
    peak = getattr(accelerator, member)()
    held_bytes = held.nbytes
    del held
    expect(peak >= held_bytes, f"{member}() is {peak} after a tensor of {held_bytes} bytes")
    _reset(reset, accelerator)


def _reset(member: str, accelerator: DeepSpeedAccelerator) -> None:
    held = _allocate(accelerator)
    del held
    accelerator.empty_cache()
    before = accelerator.max_memory_allocated()
    getattr(accelerator, member)()
    after = accelerator.max_memory_allocated()
    expect(after < before, f"{member}() leaves the peak at {after}; it was {before} with a tensor that is gone")


def _memory_stats(accelerator: DeepSpeedAccelerator) -> None:
    stats = accelerator.memory_stats()
    for key in ("allocated_bytes.all.current", "allocated_bytes.all.peak"):
        expect_type(stats.get(key), int, f"memory_stats()[{key!r}]")
    expect(stats["allocated_bytes.all.current"] <= stats["allocated_bytes.all.peak"], "the peak is below the current")


def _total_memory(accelerator: DeepSpeedAccelerator) -> None:
    _answers_bytes("total_memory", accelerator)
    total, free = accelerator.total_memory(), accelerator.available_memory()
    expect(0 < free <= total, f"available_memory() is {free} of total_memory() {total}")


def _mem_get_info(accelerator: DeepSpeedAccelerator) -> None:
    free, total = accelerator.mem_get_info()
    expect(0 < free <= total, f"mem_get_info() is {(free, total)}")
    expect(total == accelerator.total_memory(), f"mem_get_info() has total {total}, unlike total_memory()")


def _empty_cache(accelerator: DeepSpeedAccelerator) -> None:
    accelerator.empty_cache()
    _answers_bytes("memory_reserved", accelerator)


CHECKS: dict[str, Callable[[DeepSpeedAccelerator], None]] = {
    "empty_cache": _empty_cache,
    "memory_allocated": _memory_allocated,
    "max_memory_allocated": partial(_peak, "max_memory_allocated", "reset_max_memory_allocated"),
    "reset_max_memory_allocated": partial(_reset, "reset_max_memory_allocated"),
    "memory_cached": partial(_memory_reserved, "memory_cached"),
    "max_memory_cached": partial(_peak, "max_memory_cached", "reset_max_memory_cached"),
    "reset_max_memory_cached": partial(_reset, "reset_max_memory_cached"),
    "memory_stats": _memory_stats,
    "reset_peak_memory_stats": partial(_reset, "reset_peak_memory_stats"),
    "memory_reserved": partial(_memory_reserved, "memory_reserved"),
    "max_memory_reserved": partial(_peak, "max_memory_reserved", "reset_peak_memory_stats"),
    "total_memory": _total_memory,
    "available_memory": _total_memory,
    "mem_get_info": _mem_get_info,
}
