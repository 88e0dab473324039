"""The ways to compute a dense layer, ``sigmoid(x @ weight.T + bias)``: one function for each mode of ``Dense``.

They are the rungs of docs/ladder, from Python to device code; each takes ``(x, weight, bias)``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch

from ..kernels.functions.dense import rows_of
from ..op_builder.kernel_loader import loader_class
from ..op_builder.op import CSRC
from .device_kernel import DeviceKernel
from .loading import declare, load_on_host, loaded

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["MODES", "PTX", "Mode", "PtxSigmoid", "implementation"]

Mode = Literal["py", "cpp", "cuda", "ptx", "sycl", "triton"]  # anyaccel: ignore[device-name]
MODES: tuple[Mode, ...] = get_args(Mode)

PTX = CSRC / "dense" / "sigmoid.ptx"
"""The sigmoid by hand."""

_THREADS = 256

declare("dense_cpp", partial(load_on_host, "DenseBuilder"))


class PyDense(torch.autograd.Function):
    """In Python, with one torch operation per step."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        with torch.autocast(x.device.type, enabled=False):  # as in the other modes
            z = x @ weight.t()
        y = torch.sigmoid(z if bias is None else z + bias)
        ctx.save_for_backward(x, weight, y)
        ctx.has_bias = bias is not None
        return y

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, y = ctx.saved_tensors
        grad_z = grad * y * (1 - y)
        rows = rows_of(grad_z)
        grad_weight = rows.t() @ rows_of(x)
        return grad_z @ weight, grad_weight, rows.sum(0) if ctx.has_bias else None


class CppDense(torch.autograd.Function):
    """The matrix products in C++, the activation in Python: written over the product, and its gradient in one pass."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        y: torch.Tensor = loaded("dense_cpp").linear(x, weight, bias).sigmoid_()
        ctx.save_for_backward(x, weight, y)
        ctx.has_bias = bias is not None
        return y

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        x, weight, y = ctx.saved_tensors
        grad_z: torch.Tensor = torch.ops.aten.sigmoid_backward(grad, y)
        grad_x, grad_weight = loaded("dense_cpp").linear_backward(grad_z, x, weight)
        return grad_x, grad_weight, rows_of(grad_z).sum(0) if ctx.has_bias else None


class PtxSigmoid(torch.autograd.Function):
    """The activation in PTX, for float32 on a GPU; the bias is added by torch."""

    kernels: tuple[DeviceKernel, DeviceKernel] | None = None

    @classmethod
    def use(cls, source: Path) -> None:
        """Take the kernels from a file; they are compiled when they first run, and again after an edit."""
        text = source.read_text(encoding="utf-8")
        forward = DeviceKernel(text, "sigmoid_forward", ("const tensor", "tensor", "int64"), language="ptx")
        args = ("const tensor", "const tensor", "tensor", "int64")
        backward = DeviceKernel(text, "sigmoid_backward", args, language="ptx")
        cls.kernels = forward, backward

    @staticmethod
    def _launch(which: int, count: int, *tensors: torch.Tensor) -> None:
        assert PtxSigmoid.kernels is not None  # noqa: S101  # implementation() has called use()
        if count:
            PtxSigmoid.kernels[which](*tensors, count, grid=-(-count // _THREADS), block=_THREADS)

    @staticmethod
    def forward(ctx: Any, z: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(z)
        PtxSigmoid._launch(0, z.numel(), z, y)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (y,) = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative: torch's own operations have one
            slope: torch.Tensor = grad * y * (1 - y)
            return slope
        grad_z = torch.empty_like(y)
        PtxSigmoid._launch(1, y.numel(), grad.contiguous(), y, grad_z)
        return grad_z


def _ptx(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    if x.device.type != "cuda" or x.dtype != torch.float32:  # anyaccel: ignore[device-name]
        msg = (
            f"Dense in mode 'ptx' failed: got {x.dtype} on {x.device}; expected float32 on an NVIDIA GPU. "
            f"Fix: leave mode out for the best one here."
        )
        raise RuntimeError(msg)
    z = torch.nn.functional.linear(x, weight, bias).contiguous()
    y: torch.Tensor = PtxSigmoid.apply(z)  # type: ignore[no-untyped-call]
    return y


def implementation(mode: Mode | None, device: str) -> Callable[..., torch.Tensor]:
    """Return the function of a mode, loading what it needs.

    Args:
        mode: one of :data:`MODES`; None for the implementation of highest priority.
        device: the type of the tensors' device.

    Raises:
        ValueError: for an unknown mode.
        OpError: when this machine lacks what the mode needs.
    """
    key = "dense", mode, device
    found: Callable[..., torch.Tensor] = loaded(key) if key in _DECLARED else _load(mode, device)
    return found


def _load(mode: Mode | None, device: str) -> Callable[..., torch.Tensor]:
    if mode is not None and mode not in MODES:
        choices = ", ".join(MODES)
        msg = f"Dense failed: got mode={mode!r}; expected None or one of: {choices}. Fix: leave mode out for the best one."
        raise ValueError(msg)
    if mode == "cpp":
        loaded("dense_cpp")  # now, not in the first pass
    if mode in ("py", "cpp"):
        apply: Callable[..., torch.Tensor] = PyDense.apply if mode == "py" else CppDense.apply
        return apply
    if mode == "ptx":
        PtxSigmoid.use(PTX)
        return _ptx
    names = {
        "cuda": "dense_cuda",
        "sycl": "dense_xpu" if device == "xpu" else "sycl",
        "triton": "triton",
        None: None,
    }  # anyaccel: ignore[device-name]
    dense: Callable[..., torch.Tensor] = loader_class("DenseLoader")().functions(names[mode]).dense
    return dense


_DEVICES = ("cpu", "cuda", "xpu")  # anyaccel: ignore[device-name]
_DECLARED = frozenset(("dense", mode, device) for mode in (None, *MODES) for device in _DEVICES)
for _key in _DECLARED:
    declare(_key, partial(_load, *_key[1:]))
