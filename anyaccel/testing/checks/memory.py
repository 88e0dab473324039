"""Memory: what is used, what is free, and the peaks."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from .expect import expect, expect_type, last_index

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...accelerator import DeepSpeedAccelerator

__all__ = ["CHECKS"]

_PROBE_BYTES = 64 << 20
_ROUGH_BYTES = 4 << 20  # Linux adds up a process's pages from counters of each CPU, so that a peak may fall a little


def _answers_bytes(member: str, accelerator: DeepSpeedAccelerator) -> None:
    for arguments in ((), (accelerator.current_device(),), (last_index(accelerator),)):
        answer = getattr(accelerator, member)(*arguments)
        expect_type(answer, int, f"{member}{arguments}")
        expect(answer >= 0, f"{member}{arguments} is {answer}")


def _allocate(accelerator: DeepSpeedAccelerator, index: int | None = None) -> torch.Tensor:
    name = accelerator.current_device_name() if index is None else accelerator.device_name(index)
    return torch.ones(_PROBE_BYTES // 4, dtype=torch.float32, device=name)


def _memory_allocated(accelerator: DeepSpeedAccelerator) -> None:
    _answers_bytes("memory_allocated", accelerator)
    last = last_index(accelerator)
    for index in (None,) if last == accelerator.current_device() else (None, last):
        before = accelerator.memory_allocated(index)
        held = _allocate(accelerator, index)
        grown = accelerator.memory_allocated(index) - before
        expect(
            grown >= held.nbytes // 2, f"a tensor of {held.nbytes} bytes raises memory_allocated({index}) by {grown}"
        )
        del held
    before = accelerator.memory_allocated()
    for _ in range(3):
        _allocate(accelerator)
    accelerator.synchronize()
    kept = accelerator.memory_allocated() - before
    keeps = accelerator.device_name() == "cpu"  # a process's allocator may keep what was freed once
    most = 2 * _PROBE_BYTES if keeps else _PROBE_BYTES // 2
    expect(kept < most, f"memory_allocated() is {kept} bytes higher after three tensors that are gone")


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
    later = getattr(accelerator, member)()
    expect(later >= peak - _ROUGH_BYTES, f"{member}() fell from {peak} to {later} without a reset")
    _reset(reset, member, accelerator)


def _reset(member: str, peak: str, accelerator: DeepSpeedAccelerator) -> None:
    held = _allocate(accelerator)
    del held
    accelerator.empty_cache()
    before = getattr(accelerator, peak)()
    getattr(accelerator, member)()
    after = getattr(accelerator, peak)()
    expect(after < before, f"{member}() leaves {peak}() at {after}; it was {before} with a tensor that is gone")


def _memory_stats(accelerator: DeepSpeedAccelerator) -> None:
    stats = accelerator.memory_stats()
    for key in ("allocated_bytes.all.current", "allocated_bytes.all.peak"):
        expect_type(stats.get(key), int, f"memory_stats()[{key!r}]")
    expect(stats["allocated_bytes.all.current"] <= stats["allocated_bytes.all.peak"], "the peak is below the current")
    held = _allocate(accelerator)
    grown = accelerator.memory_stats()["allocated_bytes.all.current"] - stats["allocated_bytes.all.current"]
    expect(grown >= held.nbytes // 2, f"a tensor of {held.nbytes} bytes raises allocated_bytes.all.current by {grown}")


def _total_memory(accelerator: DeepSpeedAccelerator) -> None:
    _answers_bytes("total_memory", accelerator)
    held = _allocate(accelerator)
    total, free = accelerator.total_memory(), accelerator.available_memory()
    expect(0 < free < total, f"available_memory() is {free} of total_memory() {total} while a tensor lives")
    expect(total > held.nbytes, f"total_memory() is {total} while a tensor of {held.nbytes} bytes lives")


def _mem_get_info(accelerator: DeepSpeedAccelerator) -> None:
    free, total = accelerator.mem_get_info()
    expect(0 < free <= total, f"mem_get_info() is {(free, total)}")
    expect(total == accelerator.total_memory(), f"mem_get_info() has total {total}, unlike total_memory()")


def _empty_cache(accelerator: DeepSpeedAccelerator) -> None:
    accelerator.empty_cache()
    _answers_bytes("memory_reserved", accelerator)


def _reset_accumulated(accelerator: DeepSpeedAccelerator) -> None:
    _allocate(accelerator)
    accelerator.reset_accumulated_memory_stats()
    for name, value in accelerator.memory_stats().items():
        expect(
            not name.endswith(".allocated") or value == 0, f"after reset_accumulated_memory_stats(), {name} is {value}"
        )


def _memory_summary(accelerator: DeepSpeedAccelerator) -> None:
    for options in ({}, {"abbreviated": True}):
        text = accelerator.memory_summary(**options)
        expect_type(text, str, f"memory_summary({options})")
        expect(any(sign.isdigit() for sign in text), f"memory_summary({options}) has no figure")


def _memory_snapshot(accelerator: DeepSpeedAccelerator) -> None:
    held = _allocate(accelerator)
    expect(
        bool(accelerator.memory_snapshot()), f"memory_snapshot() is empty while a tensor of {held.nbytes} bytes lives"
    )


def _fraction(accelerator: DeepSpeedAccelerator) -> None:
    before = accelerator.get_per_process_memory_fraction()
    expect(0 <= before <= 1, f"get_per_process_memory_fraction() is {before}")
    accelerator.set_per_process_memory_fraction(0.5)
    half = accelerator.get_per_process_memory_fraction()
    accelerator.set_per_process_memory_fraction(before)
    expect(half == 0.5, f"after set_per_process_memory_fraction(0.5), it is {half}")


def _set_fraction(accelerator: DeepSpeedAccelerator) -> None:
    accelerator.set_per_process_memory_fraction(1.0)


def _pool(accelerator: DeepSpeedAccelerator) -> None:
    pool = accelerator.MemPool()
    with accelerator.use_mem_pool(pool):
        held = torch.ones(4, device=accelerator.current_device_name())
    expect(held.sum().item() == 4.0, "a tensor made in use_mem_pool() is wrong")


CHECKS: dict[str, Callable[[DeepSpeedAccelerator], None]] = {
    "empty_cache": _empty_cache,
    "memory_allocated": _memory_allocated,
    "max_memory_allocated": partial(_peak, "max_memory_allocated", "reset_max_memory_allocated"),
    "reset_max_memory_allocated": partial(_reset, "reset_max_memory_allocated", "max_memory_allocated"),
    "memory_cached": partial(_memory_reserved, "memory_cached"),
    "max_memory_cached": partial(_peak, "max_memory_cached", "reset_max_memory_cached"),
    "reset_max_memory_cached": partial(_reset, "reset_max_memory_cached", "max_memory_cached"),
    "memory_stats": _memory_stats,
    "reset_peak_memory_stats": partial(_reset, "reset_peak_memory_stats", "max_memory_allocated"),
    "memory_reserved": partial(_memory_reserved, "memory_reserved"),
    "max_memory_reserved": partial(_peak, "max_memory_reserved", "reset_peak_memory_stats"),
    "total_memory": _total_memory,
    "available_memory": _total_memory,
    "mem_get_info": _mem_get_info,
    "reset_accumulated_memory_stats": _reset_accumulated,
    "memory_summary": _memory_summary,
    "memory_snapshot": _memory_snapshot,
    "get_per_process_memory_fraction": _fraction,
    "set_per_process_memory_fraction": _set_fraction,
    "MemPool": _pool,
    "use_mem_pool": _pool,
}
