"""deepspeed 0.19.8's modules for host memory: tensors in locked pages, and tensors as bytes."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import mmap
import os
import threading
import weakref
from typing import Any, overload

import torch

__all__ = ["LockedMemory", "MemoryLockError", "PinHandle", "PinMemoryModule", "UtilsModule"]


class MemoryLockError(OSError):
    """Memory cannot be locked: the limit for locked memory is reached, or the system does not allow it."""


class LockedMemory:
    """Creates page-aligned tensors in locked pages, which are released with the tensor or before."""

    def __init__(self) -> None:
        self._regions: dict[int, int] = {}  # the size in bytes of each region, by its address
        self._guard = threading.RLock()  # a finalizer may run while the lock is held
        self._libc = ctypes.CDLL(None, use_errno=True)

    def new(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        """Return a tensor of ``count`` zeros in its own locked memory.

        Raises:
            ValueError: when ``count`` is negative.
            MemoryLockError: when there is no memory of that size, or the pages cannot be locked.
        """
        if count < 0:
            msg = (
                f"allocating locked memory failed: got {count} elements; expected 0 or more. "
                f"Fix: pass the number of elements, such as tensor.numel()."
            )
            raise ValueError(msg)
        wanted = count * dtype.itemsize
        try:
            pages = _pages(max(wanted, 1))
        except (OSError, OverflowError) as error:
            msg = (
                f"allocating {wanted} bytes of locked memory failed: got {error}; expected so much free memory. "
                f"Fix: allocate less."
            )
            raise MemoryLockError(errno.ENOMEM, msg) from error
        tensor = torch.frombuffer(pages, dtype=torch.uint8)[:wanted].view(dtype)
        address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        self._change("mlock", address, len(pages))
        with self._guard:
            self._regions[address] = len(pages)
        weakref.finalize(pages, self._forget, address).atexit = False
        return tensor

    def release(self, address: int) -> bool:
        """Unlock the memory at an address; the tensor stays valid.

        Returns:
            Whether this object locked the memory, and had not released it yet.
        """
        with self._guard:
            size = self._regions.pop(address, None)
        if size is None:
            return False
        self._change("munlock", address, size)
        return True

    def holds(self, tensor: torch.Tensor) -> bool:
        """Return whether a contiguous tensor, which may be a view, lies entirely in memory locked here."""
        if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
            return False
        first, last = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
        with self._guard:
            return any(begin <= first and last <= begin + size for begin, size in self._regions.items())

    def forget_all(self) -> None:
        """Begin again in a forked child: locks of memory stay with the parent, and so do threads that hold the guard."""
        self._regions, self._guard = {}, threading.RLock()

    def _forget(self, address: int) -> None:
        with self._guard:  # unmapping has unlocked it
            self._regions.pop(address, None)

    def _change(self, call: str, address: int, size: int) -> None:
        if getattr(self._libc, call)(ctypes.c_void_p(address), ctypes.c_size_t(size)) != 0:
            code = ctypes.get_errno()
            msg = (
                f"{call} of {size} bytes failed: {os.strerror(code)}{_limit()}. Fix: raise the limit "
                f"(ulimit -l), or release other locked tensors."
            )
            raise MemoryLockError(code, msg)


def _pages(size: int) -> mmap.mmap:
    """Return memory in huge pages where the system has them: a disk then reads 2 to 3 times as fast into it."""
    pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # shared memory rarely gets huge pages
    if hasattr(mmap, "MADV_HUGEPAGE"):
        with contextlib.suppress(OSError):  # a kernel without them
            pages.madvise(mmap.MADV_HUGEPAGE)
    return pages


def _limit() -> str:
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return "" if limit == resource.RLIM_INFINITY else f" with a limit of {limit} bytes of locked memory"


_locked = LockedMemory()
"""The process's."""
os.register_at_fork(after_in_child=_locked.forget_all)


class PinHandle:
    """deepspeed's ``pin_handle``; all handles share the process's locked memory."""

    def new_cpu_locked_tensor(self, num_elem: int, example_tensor: torch.Tensor) -> torch.Tensor:
        """Return a page-aligned tensor of ``num_elem`` elements in locked memory.

        Args:
            num_elem: the number of elements.
            example_tensor: gives the dtype.

        Raises:
            MemoryLockError: when the pages cannot be locked.
        """
        return _locked.new(num_elem, example_tensor.dtype)

    def free_cpu_locked_tensor(self, locked_tensor: torch.Tensor) -> bool:
        """Unlock a tensor's memory; return whether it was locked here. Unlike with deepspeed, the tensor stays valid."""
        return _locked.release(locked_tensor.data_ptr())

    def free_cpu_locked_tensor_by_ptr(self, address: int) -> bool:
        """Like :meth:`free_cpu_locked_tensor`, given the start address of the memory."""
        return _locked.release(address)

    def is_pinned(self, buffer: torch.Tensor) -> bool:
        """Return whether torch has pinned a tensor's memory, or it is locked here."""
        return _locked.holds(buffer) or buffer.is_pinned()  # anyaccel: ignore[pinning]


class PinMemoryModule:
    """The module ``pin_memory``."""

    pin_handle = PinHandle


class UtilsModule:
    """The module ``utils``."""

    @overload
    def cast_to_byte_tensor(self, src_tensor: torch.Tensor) -> torch.Tensor: ...
    @overload
    def cast_to_byte_tensor(self, src_tensor: list[torch.Tensor]) -> list[torch.Tensor]: ...
    def cast_to_byte_tensor(self, src_tensor: Any) -> Any:
        """Return a tensor's bytes as a one-dimensional uint8 tensor that shares its memory; for a list, return a list.

        The bytes are in the order of the memory. A tensor of at most one byte is returned unchanged, as with deepspeed.

        Args:
            src_tensor: a tensor of any dtype, contiguous, transposed or channels last, or a list of them.

        Raises:
            ValueError: when a tensor has gaps in its memory, or elements that share it; deepspeed's returns other bytes.
        """
        return [_bytes_of(one) for one in src_tensor] if isinstance(src_tensor, list | tuple) else _bytes_of(src_tensor)

    def flatten(self, tensors: list[torch.Tensor]) -> torch.Tensor:
        """Return the elements of dense tensors of one dtype, one after another, in one dimension.

        Args:
            tensors: any shapes.

        Raises:
            ValueError: when there are none.
        """
        return torch._utils._flatten_dense_tensors(tensors)  # type: ignore[no-any-return]

    def unflatten(self, flat: torch.Tensor, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return views of a tensor from :meth:`flatten`.

        Args:
            flat: the tensor that ``flatten`` returned; there may be padding after it.
            tensors: give the shapes of the views.

        Raises:
            RuntimeError: when ``flat`` has fewer elements than the tensors.
        """
        needed = sum(tensor.numel() for tensor in tensors)
        if flat.dim() != 1 or flat.shape[0] < needed:
            msg = (
                f"unflatten failed: got a tensor of shape {tuple(flat.shape)} for tensors of {needed} elements; expected one "
                f"dimension, and at least as many. Fix: pass what flatten returned for tensors of these shapes."
            )
            raise RuntimeError(msg)
        return list(torch._utils._unflatten_dense_tensors(flat, tensors))


def _bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.nbytes <= 1:
        return tensor
    if tensor.is_neg() or tensor.is_conj():
        msg = (
            "cast_to_byte_tensor failed: got a lazily negated or conjugated tensor, whose bytes are those of another; expected "
            "its own. Fix: pass tensor.resolve_neg().resolve_conj()."
        )
        raise ValueError(msg)
    if not torch.ops.aten.is_non_overlapping_and_dense(tensor):
        msg = (
            f"cast_to_byte_tensor failed: got strides {tensor.stride()} for shape {tuple(tensor.shape)}; expected a tensor "
            f"without gaps in its memory. Fix: pass tensor.contiguous()."
        )
        raise ValueError(msg)
    return tensor.detach().as_strided((tensor.numel(),), (1,)).view(torch.uint8)
