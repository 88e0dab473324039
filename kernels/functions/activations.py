"""The functions of the op ``activations``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

from .derivative import Derivative
from .registration import OpFunctions, empty_contiguous

if TYPE_CHECKING:
    import torch

__all__ = ["ActivationFunctions"]


def _is_tanh(function: str, approximate: str) -> bool:
    if approximate not in ("none", "tanh"):
        msg = f"{function} failed: got approximate={approximate!r}; expected 'none' or 'tanh'. Fix: pass approximate='none'."
        raise ValueError(msg)
    return approximate == "tanh"


def _fake(first: torch.Tensor, *_: Any) -> torch.Tensor:
    return empty_contiguous(first)


def _backward_fake(grad: torch.Tensor, *inputs: Any) -> tuple[torch.Tensor, ...]:
    return tuple(empty_contiguous(tensor) for tensor in inputs[:2])


class ActivationFunctions(OpFunctions):
    """GELU of a biased input, and the gated units SwiGLU and GeGLU.

    All take float32, bfloat16 or float16 (float64 on the CPU), and compute in float32. The results of ``x.chunk(2, -1)`` are
    read without a copy.

    """

    OPS: ClassVar = {
        "swiglu": (_fake, Derivative("swiglu_backward", ("grad0", "input0", "input1"), (0, 1))),
        "swiglu_backward": (_backward_fake,),
        "geglu": (_fake, Derivative("geglu_backward", ("grad0", "input0", "input1", "input2"), (0, 1, -1))),
        "geglu_backward": (_backward_fake,),
        "bias_gelu": (_fake, Derivative("bias_gelu_backward", ("grad0", "input0", "input1", "input2"), (0, 1, -1))),
        "bias_gelu_backward": (_backward_fake,),
    }

    def swiglu(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        """See :func:`anyaccel.ops.swiglu`."""
        y: torch.Tensor = self._swiglu(gate, up)
        return y

    def geglu(
        self, gate: torch.Tensor, up: torch.Tensor, approximate: Literal["none", "tanh"] = "none"
    ) -> torch.Tensor:
        """See :func:`anyaccel.ops.geglu`."""
        y: torch.Tensor = self._geglu(gate, up, _is_tanh("geglu", approximate))
        return y

    def bias_gelu(
        self, x: torch.Tensor, bias: torch.Tensor, approximate: Literal["none", "tanh"] = "tanh"
    ) -> torch.Tensor:
        """See :func:`anyaccel.ops.bias_gelu`."""
        y: torch.Tensor = self._bias_gelu(x, bias, _is_tanh("bias_gelu", approximate))
        return y
