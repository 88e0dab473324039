"""The process-group backend ``shm``, which importing this registers with ``torch.distributed``.

>>> import anyaccel.distributed
>>> dist.init_process_group("shm")  # or "cpu:shm,cuda:nccl"
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .registration import BACKEND_NAME, register

if TYPE_CHECKING:
    from .reachability import Path, paths
    from .ring import RingError, ring_all_reduce
    from .torch_functions import monitored_barrier, set_timeout

__all__ = [
    "BACKEND_NAME", "Path", "RingError", "monitored_barrier", "paths", "register", "ring_all_reduce", "set_timeout",
]  # fmt: skip

_LAZY = {
    "Path": "reachability",
    "RingError": "ring",
    "monitored_barrier": "torch_functions",
    "paths": "reachability",
    "ring_all_reduce": "ring",
    "set_timeout": "torch_functions",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        msg = f"module 'anyaccel.distributed' has no attribute {name!r}"
        raise AttributeError(msg)
    import importlib

    return getattr(importlib.import_module(f".{_LAZY[name]}", __name__), name)


register()
