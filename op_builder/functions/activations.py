"""The functions of the op ``activations``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from .registration import empty_contiguous, ops_of, register

if TYPE_CHECKING:
    import torch

__all__ = ["Activations"]


class Activations:
    """GELU of a biased input, and the gated units SwiGLU and GeGLU.

    All take float32, bfloat16 or float16 (float64 on the CPU), and compute in float32. What ``x.chunk(2, -1)`` gives is read
    where it lies.

    Args:
        namespace: of the torch ops to call.
    """

    def __init__(self, namespace: str) -> None:
        ops = ops_of(namespace)
        for name in ("swiglu", "geglu", "bias_gelu"):
            backward = getattr(ops, f"{name}_backward").default
            register(f"{namespace}::{name}", _fake, (partial(_backward, backward), _keep))
            register(f"{namespace}::{name}_backward", _backward_fake, None)
        self._swiglu = ops.swiglu.default
        self._geglu = ops.geglu.default
        self._bias_gelu = ops.bias_gelu.default

    def swiglu(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        """Return ``silu(gate) * up``.

        Args:
            gate: ``(..., columns)``.
            up: like gate.

        Returns:
            A tensor like gate, contiguous.

        Raises:
            RuntimeError: naming the argument whose shape, dtype or device does not fit.

        Source: Shazeer, arXiv:2002.05202; tests/ops/activations_reference.py
        """
        y: torch.Tensor = self._swiglu(gate, up)
        return y

    def geglu(
        self, gate: torch.Tensor, up: torch.Tensor, approximate: Literal["none", "tanh"] = "none"
    ) -> torch.Tensor:
        """Return ``gelu(gate) * up``.

        Args:
            gate: ``(..., columns)``.
            up: like gate.
            approximate: as of ``torch.nn.functional.gelu``.

        Returns:
            A tensor like gate, contiguous.

        Source: Shazeer, arXiv:2002.05202; tests/ops/activations_reference.py
        """
        y: torch.Tensor = self._geglu(gate, up, _is_tanh("geglu", approximate))
        return y

    def bias_gelu(
        self, x: torch.Tensor, bias: torch.Tensor, approximate: Literal["none", "tanh"] = "tanh"
    ) -> torch.Tensor:
        """Return ``gelu(x + bias)``.

        Args:
            x: ``(..., columns)``.
            bias: ``(columns,)``, of x's dtype.
            approximate: as of ``torch.nn.functional.gelu``.

        Returns:
            A tensor like x.

        Source: Hendrycks & Gimpel, arXiv:1606.08415; tests/ops/activations_reference.py
        """
        y: torch.Tensor = self._bias_gelu(x, bias, _is_tanh("bias_gelu", approximate))
        return y


def _is_tanh(function: str, approximate: str) -> bool:
    if approximate not in ("none", "tanh"):
        msg = f"{function} failed: got approximate={approximate!r}; expected 'none' or 'tanh'. Fix: choose one of them."
        raise ValueError(msg)
    return approximate == "tanh"


def _fake(first: torch.Tensor, *_: Any) -> torch.Tensor:
    return empty_contiguous(first)


def _backward_fake(grad: torch.Tensor, *inputs: Any) -> tuple[torch.Tensor, ...]:
    return tuple(empty_contiguous(tensor) for tensor in inputs[:2])


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    ctx.save_for_backward(*inputs[:2])
    ctx.options = inputs[2:]


def _backward(backward: Any, ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    return (*backward(grad, *ctx.saved_tensors, *ctx.options), *[None] * len(ctx.options))
