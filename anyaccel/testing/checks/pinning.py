"""Page-locked host memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from .expect import expect, expect_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...accelerator import DeepSpeedAccelerator

__all__ = ["CHECKS"]


def _pin_memory(accelerator: DeepSpeedAccelerator) -> None:
    tensor = torch.arange(6.0, device="cpu").reshape(2, 3)
    pinned = accelerator.pin_memory(tensor)
    expect(pinned.tolist() == tensor.tolist(), "pin_memory(t) has other values than t")
    expect(pinned.dtype == tensor.dtype, f"pin_memory(t) is of {pinned.dtype}; expected {tensor.dtype}")
    expect_type(accelerator.is_pinned(pinned), bool, "is_pinned(t)")
    expect(not accelerator.is_pinned(tensor), "is_pinned(t) is True for a tensor that nothing has pinned")
    expect(
        accelerator.pin_memory(tensor.t()).tolist() == tensor.t().tolist(),
        "pin_memory(t) has other values than a transposed t",
    )
    template = accelerator.pin_memory(tensor, make_copy=False)
    expect(template.shape == (2, 3), "make_copy=False gives another shape")
    expect(template.data_ptr() != tensor.data_ptr(), "make_copy=False gives the template itself")
    flat = accelerator.pin_memory(tensor, make_copy=False, match_shape=False)
    expect(flat.shape == (6,), f"match_shape=False gives the shape {tuple(flat.shape)}; expected (6,)")
    expect(flat.data_ptr() != tensor.data_ptr(), "make_copy=False with match_shape=False aliases the template")
    unpin: Any = accelerator.unpin_memory
    released = unpin(pinned)
    expect(released is None or isinstance(released, bool), f"unpin_memory(t) is {released!r}")


def _pin_empty(accelerator: DeepSpeedAccelerator) -> None:
    for sizes in ((2, 3), ((2, 3),), (torch.Size([2, 3]),)):
        pinned = accelerator.pin_empty(*sizes, dtype=torch.int16)
        expect(pinned.shape == (2, 3) and pinned.dtype == torch.int16, f"pin_empty(*{sizes}) gives {pinned}")
    try:
        accelerator.pin_empty(2, dtype=torch.int16, device="meta")
    except ValueError:
        return
    expect(False, "pin_empty(device='meta') does not raise ValueError")


def _pin_empty_like(accelerator: DeepSpeedAccelerator) -> None:
    same = accelerator.pin_empty_like(torch.ones(2, 3, dtype=torch.int16, device="cpu"))
    expect(same.shape == (2, 3) and same.dtype == torch.int16, f"pin_empty_like without a dtype gives {same}")
    like = accelerator.pin_empty_like(torch.ones(2, 3, device="cpu"), dtype=torch.float64)
    expect(like.shape == (2, 3) and like.dtype == torch.float64, f"pin_empty_like gives {like}")


def _alignment(accelerator: DeepSpeedAccelerator) -> None:
    expect_type(accelerator.pin_memory_alignment(), int, "pin_memory_alignment()")
    alignment = accelerator.pin_memory_alignment()
    expect(alignment >= 1, f"pin_memory_alignment() is {alignment}; expected 1 or more")


def _register_host_memory(accelerator: DeepSpeedAccelerator) -> None:
    alignment = accelerator.pin_memory_alignment()
    host = torch.empty(1 << 16, dtype=torch.uint8, device="cpu")
    begin = -(-host.data_ptr() // alignment) * alignment
    registered = accelerator.register_host_memory(begin, 4096)
    expect_type(registered, bool, "register_host_memory(…)")
    if registered:
        accelerator.unregister_host_memory(begin)


CHECKS: dict[str, Callable[[DeepSpeedAccelerator], None]] = {
    "pin_memory": _pin_memory,
    "is_pinned": _pin_memory,
    "unpin_memory": _pin_memory,
    "pin_empty": _pin_empty,
    "pin_empty_like": _pin_empty_like,
    "pin_memory_alignment": _alignment,
    "register_host_memory": _register_host_memory,
    "unregister_host_memory": _register_host_memory,
}
