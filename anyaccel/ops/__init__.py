"""The public functions, modules and optimizers, in the style of ``torch.nn`` and ``torch.optim``."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .adam import CPUAdam as CPUAdam
    from .dense import Dense as Dense
    from .device_kernel import DeviceKernel as DeviceKernel
    from .functional import *  # noqa: F403
    from .norms import LayerNorm as LayerNorm
    from .norms import RMSNorm as RMSNorm
    from .optimizers import CPUAdagrad as CPUAdagrad
    from .optimizers import CPULion as CPULion
    from .optimizers import FusedAdam as FusedAdam
    from .optimizers import FusedLamb as FusedLamb
    from .optimizers import FusedLion as FusedLion
    from .optimizers import FusedSGD as FusedSGD

_MODULES = {
    **dict.fromkeys(("CPUAdagrad", "CPULion"), "host_optimizers"),
    **dict.fromkeys(("FusedAdam", "FusedLamb", "FusedLion", "FusedSGD"), "fused_optimizers"),
    **dict.fromkeys(("LayerNorm", "RMSNorm"), "norms"),
    **dict.fromkeys(("add_layer_norm", "add_rms_norm", "layer_norm", "rms_norm"), "normalization"),
    **dict.fromkeys(("bias_gelu", "geglu", "swiglu"), "activations"),
    **dict.fromkeys(("combine", "dispatch", "route", "topk_gating"), "moe"),
    **dict.fromkeys(("dequantize", "dequantize_float8", "quantize", "quantize_float8"), "quantization"),
    **dict.fromkeys(("scaled_masked_softmax", "scaled_upper_triang_masked_softmax"), "softmax"),
    "clip_grad_norm_": "gradients",
    "rotary_embedding": "rotary",
    "CPUAdam": "adam",
    "Dense": "dense",
    "DeviceKernel": "device_kernel",
}
"""The module of each name; functions that are not listed are in ``functional``."""


def __getattr__(name: str) -> Any:
    """Import a name of this package on first use: most programs use a few."""
    if name == "__all__":
        from . import functional

        return sorted({*_MODULES, *functional.__all__})
    if name.startswith("__"):
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    module = importlib.import_module(f".{_MODULES.get(name, 'functional')}", __name__)
    if not hasattr(module, name):
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    globals()[name] = getattr(module, name)
    return globals()[name]


def __dir__() -> list[str]:
    return [*globals(), *__getattr__("__all__")]
