"""The functions of the ops ``rms_norm`` and ``layer_norm``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from .derivative import Derivative
from .registration import OpFunctions, empty_contiguous, row_statistics

if TYPE_CHECKING:
    import torch

__all__ = ["LayerNormFunctions", "RMSNormFunctions"]


def _fake(statistics: int, x: torch.Tensor, *_: Any) -> tuple[torch.Tensor, ...]:
    return empty_contiguous(x), *(row_statistics(x) for _ in range(statistics))


def _add_fake(statistics: int, x: torch.Tensor, *_: Any) -> tuple[torch.Tensor, ...]:
    return empty_contiguous(x), *_fake(statistics, x)


def _backward_fake(
    weights: int, grad: torch.Tensor, grad_sum: torch.Tensor | None, x: torch.Tensor, weight: torch.Tensor, *_: Any
) -> tuple[torch.Tensor, ...]:
    return empty_contiguous(x), *(empty_contiguous(weight) for _ in range(weights))


def _ops(name: str, weights: int, statistics: int) -> dict[str, tuple[Any, ...]]:
    backward = f"{name}_backward"

    def derivative(inputs: int, results: int) -> Derivative:
        """Return the derivative of an op with that many normalised inputs, whose last normalised result is what it keeps."""
        x = "input0" if inputs == 1 else "result1"
        grad_sum = "none" if results == 1 else "grad1"
        kept = (f"result{results + i}" for i in range(statistics))
        gives = (*(0,) * inputs, *range(1, weights + 1), -1)
        return Derivative(backward, ("grad0", grad_sum, x, f"input{inputs}", *kept), gives, results)

    return {
        name: (partial(_fake, statistics), derivative(inputs=1, results=1)),
        f"add_{name}": (partial(_add_fake, statistics), derivative(inputs=2, results=2)),
        backward: (partial(_backward_fake, weights),),
    }


class RMSNormFunctions(OpFunctions):
    """Root-mean-square normalisation over the last dimension."""

    OPS: ClassVar = _ops("rms_norm", weights=1, statistics=1)

    def rms_norm(self, x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
        """See :func:`anyaccel.ops.rms_norm`."""
        y: torch.Tensor = self._rms_norm(x, weight, eps)
        return y

    def add_rms_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See :func:`anyaccel.ops.add_rms_norm`."""
        y, total = self._add_rms_norm(x, residual, weight, eps)
        return y, total


class LayerNormFunctions(OpFunctions):
    """Layer normalisation over the last dimension."""

    OPS: ClassVar = _ops("layer_norm", weights=2, statistics=2)

    def layer_norm(self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5) -> torch.Tensor:
        """See :func:`anyaccel.ops.layer_norm`."""
        y: torch.Tensor = self._layer_norm(x, weight, bias, eps)
        return y

    def add_layer_norm(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """See :func:`anyaccel.ops.add_layer_norm`."""
        y, total = self._add_layer_norm(x, residual, weight, bias, eps)
        return y, total
