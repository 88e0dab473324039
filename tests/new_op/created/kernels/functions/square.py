"""The functions of the op ``square``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from .registration import OpFunctions, empty_contiguous

if TYPE_CHECKING:
    import torch

__all__ = ["SquareFunctions"]


def _fake(x: torch.Tensor) -> torch.Tensor:
    return empty_contiguous(x)


def _backward_fake(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return empty_contiguous(x)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _backward(ops: Any, ctx: Any, grad: torch.Tensor) -> torch.Tensor:
    (x,) = ctx.saved_tensors
    grad_x: torch.Tensor = ops.square_backward.default(grad, x)
    return grad_x


class SquareFunctions(OpFunctions):
    """The square of each element."""

    OPS: ClassVar = {"square": (_fake, _backward, _keep), "square_backward": (_backward_fake,)}

    def square(self, x: torch.Tensor) -> torch.Tensor:
        """See :func:`anyaccel.ops.square`."""
        y: torch.Tensor = self._square(x)
        return y
