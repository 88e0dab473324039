"""anyaccel: one object for any accelerator, and ops built on demand.

Importing this package does not import torch; the first use of an accelerator does.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .accelerator import DeepSpeedAccelerator, get_accelerator, set_accelerator, use_accelerator
    from .accelerator.cpu_accelerator import CPU_Accelerator
    from .accelerator.cuda_accelerator import CUDA_Accelerator
    from .accelerator.errors import AnyaccelError
    from .accelerator.torch_accelerator import TorchAccelerator
    from .accelerator.xpu_accelerator import XPU_Accelerator
    from .op_builder import load_op

__version__ = "0.2.0"

# In a checkout the folders of DeepSpeed's layout (accelerator, op_builder, csrc, ...) are beside this one; installed, inside.
_here = os.path.dirname(os.path.abspath(__file__))
if not os.path.isdir(os.path.join(_here, "accelerator")):
    __path__.append(os.path.dirname(_here))

_PUBLIC = {
    "AnyaccelError": "accelerator.errors",
    "CPU_Accelerator": "accelerator.cpu_accelerator",
    "CUDA_Accelerator": "accelerator.cuda_accelerator",
    "DeepSpeedAccelerator": "accelerator",
    "TorchAccelerator": "accelerator.torch_accelerator",
    "XPU_Accelerator": "accelerator.xpu_accelerator",
    "get_accelerator": "accelerator",
    "load_op": "op_builder",
    "set_accelerator": "accelerator",
    "use_accelerator": "accelerator",
}

__all__ = [
    "AnyaccelError",
    "CPU_Accelerator",
    "CUDA_Accelerator",
    "DeepSpeedAccelerator",
    "TorchAccelerator",
    "XPU_Accelerator",
    "get_accelerator",
    "load_op",
    "set_accelerator",
    "use_accelerator",
]


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        msg = f"module 'anyaccel' has no attribute {name!r}"
        raise AttributeError(msg)
    import importlib

    value = getattr(importlib.import_module(f".{_PUBLIC[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_PUBLIC])
