"""The contract, ``DeepSpeedAccelerator``, and its implementations."""

from __future__ import annotations

if __name__ != "anyaccel.accelerator":
    msg = f"importing '{__name__}' failed: got a bare import; expected the full name. Fix: import anyaccel.accelerator."
    raise ImportError(msg)

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .abstract_accelerator import DeepSpeedAccelerator
    from .real_accelerator import get_accelerator, set_accelerator, use_accelerator

__all__ = ["DeepSpeedAccelerator", "get_accelerator", "set_accelerator", "use_accelerator"]


def __getattr__(name: str) -> Any:
    """Import the package's names on first use: an op that needs no accelerator does not import one."""
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    if name == "DeepSpeedAccelerator":
        from .abstract_accelerator import DeepSpeedAccelerator as Found

        return Found
    from . import real_accelerator

    globals().update({one: getattr(real_accelerator, one) for one in __all__ if one != "DeepSpeedAccelerator"})
    return globals()[name]
