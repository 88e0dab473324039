"""``FloatTensor`` and the other tensor types for any device, called like ``torch.FloatTensor``."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["TypedTensor"]


class TypedTensor:
    """A tensor type: a dtype on a device, called with sizes or with data.

    ``FloatTensor(3, 4)`` allocates an uninitialised 3x4 tensor, ``FloatTensor([1., 2.])`` copies data, and
    ``isinstance(t, FloatTensor)`` checks that ``t`` has the dtype and is on the device.

    Args:
        dtype: the element type.
        device: the device's name, with or without an index (``"cuda"``, ``"xpu:1"``).
    """

    def __init__(self, dtype: torch.dtype, device: str) -> None:
        self.dtype = dtype
        self.device = device

    def __call__(self, *data: Any) -> torch.Tensor:
        """Construct a tensor.

        Args:
            *data: nothing (an empty tensor), whole numbers (sizes), a ``torch.Size`` (sizes), one sequence or array
                of values, or a tensor of exactly this type, whose memory is shared.

        Returns:
            The tensor, of this dtype, on this device.

        Raises:
            TypeError: for any other argument, like ``torch.FloatTensor``.
        """
        import torch

        if len(data) != 1 or _is_whole(data[0]):
            return torch.empty(self._sizes(data), dtype=self.dtype, device=self.device)
        (value,) = data
        if isinstance(value, torch.Size):
            return torch.empty(value, dtype=self.dtype, device=self.device)
        if isinstance(value, torch.Tensor):
            if not self.__instancecheck__(value):
                raise self._refusal(f"a tensor of {value.dtype} on {value.device}")
            return value.view_as(value)
        if not hasattr(value, "__len__"):
            raise self._refusal(repr(value))
        return torch.tensor(value, dtype=self.dtype, device=self.device)

    def _sizes(self, data: tuple[Any, ...]) -> tuple[int, ...]:
        if not all(_is_whole(size) for size in data):
            raise self._refusal(repr(data))
        return tuple(operator.index(size) for size in data) or (0,)

    def _refusal(self, got: str) -> TypeError:
        return TypeError(
            f"{self!r} failed: got {got}; expected sizes as whole numbers, one sequence of values, or a tensor of this "
            f"type. Fix: pass the values as one list, or convert a tensor with .to({self.device!r}, {self.dtype})."
        )

    def __instancecheck__(self, tensor: object) -> bool:
        import torch

        wanted = torch.device(self.device)
        return (
            isinstance(tensor, torch.Tensor)
            and tensor.dtype == self.dtype
            and tensor.device.type == wanted.type
            and wanted.index in (None, tensor.device.index)
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TypedTensor):
            return NotImplemented
        return (self.dtype, self.device) == (other.dtype, other.device)

    def __hash__(self) -> int:
        return hash((self.dtype, self.device))

    def __repr__(self) -> str:
        return f"TypedTensor({self.dtype}, {self.device!r})"


def _is_whole(value: object) -> bool:
    """Return whether a value is a size: an int, or one of numpy's; an array of one number is data."""
    return hasattr(type(value), "__index__") and not isinstance(value, bool) and not hasattr(value, "__len__")
