"""The builders of the device by deepspeed's names, such as ``FusedLionBuilder``."""

from __future__ import annotations

from typing import Any

from ..renamed import deepspeed_builders
from . import kernels

_BUILDERS = deepspeed_builders(kernels)


def __getattr__(name: str) -> Any:
    try:
        return _BUILDERS[name]
    except KeyError:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg) from None
