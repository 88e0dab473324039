"""deepspeed 0.19.8's module of buffers for ragged batches, with its function names and arguments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["RaggedUtilsModule"]


class RaggedUtilsModule:
    """The module ``ragged_ops``: a host mirror of a device tensor, and views of a buffer's bytes."""

    def allocate_fast_host_buffer(self, device_mirror: torch.Tensor) -> torch.Tensor:
        """Return an uninitialised host tensor from which copies to the device are fast.

        Args:
            device_mirror: gives the shape and dtype; any device.

        Raises:
            RuntimeError: when the host does not have enough memory.
        """
        from ...accelerator import get_accelerator

        accelerator = get_accelerator()
        on_host = torch.empty(device_mirror.shape, dtype=device_mirror.dtype, device="cpu")
        return (
            accelerator.pin_memory(on_host, make_copy=False) if accelerator.on_accelerator(device_mirror) else on_host
        )

    def allocate_view_on(self, tensor: torch.Tensor, buffer: torch.Tensor, offset: int) -> torch.Tensor:
        """Return a view of a buffer's bytes that has a tensor's shape, strides and dtype.

        Args:
            tensor: gives shape, strides and dtype; its data is not read.
            buffer: contiguous, of any dtype; the view keeps it alive.
            offset: the start of the view, in bytes.

        Raises:
            ValueError: when the buffer is too small, or the offset is not a multiple of the element size.
        """
        return _view("allocate_view_on", tensor.shape, tensor.stride(), tensor.dtype, buffer, offset)

    def allocate_view_like(
        self,
        shape: Sequence[int],
        strides: Sequence[int],
        dummy_tensor: torch.Tensor,
        buffer: torch.Tensor,
        offset: int,
    ) -> torch.Tensor:
        """Return what :meth:`allocate_view_on` does, for a shape and strides; ``dummy_tensor`` gives the dtype.

        Args:
            shape: the shape of the view.
            strides: its strides, in elements.
            dummy_tensor: a tensor of the view's dtype.
            buffer: contiguous, of any shape and dtype; the memory for the view.
            offset: where the view begins in the buffer, in bytes.

        Raises:
            ValueError: when the view does not fit into the buffer.
        """
        return _view("allocate_view_like", shape, strides, dummy_tensor.dtype, buffer, offset)


def _view(
    function: str, shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, buffer: torch.Tensor, offset: int
) -> torch.Tensor:
    size = dtype.itemsize
    steps = [(count - 1) * stride for count, stride in zip(shape, strides, strict=True)]
    is_valid = min([0, *shape, *strides]) == 0 and buffer.is_contiguous() and offset >= 0 and offset % size == 0
    is_valid = is_valid and buffer.storage_offset() * buffer.itemsize % size == 0
    needed = offset + (0 if 0 in shape else (1 + sum(steps)) * size)
    if not is_valid or needed > buffer.nbytes:
        msg = (
            f"{function} failed: got shape {tuple(shape)}, strides {tuple(strides)} and {dtype} at byte {offset} of a buffer of "
            f"{buffer.nbytes} bytes with strides {buffer.stride()}; expected {needed} contiguous bytes or more, and an "
            f"offset in whole elements, also of the buffer in its storage. Fix: pass a larger buffer, or correct the offset."
        )
        raise ValueError(msg)
    whole = buffer.view(-1).view(torch.uint8)
    elements = whole[: whole.numel() // size * size].view(dtype)
    return elements.as_strided(tuple(shape), tuple(strides), elements.storage_offset() + offset // size)
