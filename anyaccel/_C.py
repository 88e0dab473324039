"""The ops that this installation brings prebuilt, each by its name: ``from anyaccel._C import rms_norm``.

A wheel that was made with ``BUILD_EXT=1`` brings them, in the folder ``_C`` beside this file. An import compiles nothing: where
an op was not brought, or does not fit this machine, it is an ``ImportError`` that says why, and ``create_op_builder`` builds it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__: list[str] = []

__path__ = [str(Path(__file__).with_suffix(""))]
"""Where Colossal-AI's setuptools extensions put their modules, too."""


def __getattr__(name: str) -> Any:
    """Return the functions of a prebuilt op, as its builder's ``load()`` does.

    Args:
        name: the op's name, such as ``cpu_adam``.

    Raises:
        AttributeError: when there is no such op.
        ImportError: when this installation does not bring it for this machine.
    """
    from .op_builder.all_ops import every_builder
    from .op_builder.engine.trace import Trace
    from .op_builder.host_library import HostLibrary

    builder = next((one for one in every_builder() if isinstance(one, HostLibrary) and name == one.NAME), None)
    if builder is None:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    trace = Trace(f"the op '{name}'")
    if builder.prebuilt(trace) is None:
        builders = type(builder).__name__
        msg = f"the op '{name}' is not prebuilt here: {trace}. Fix: get_accelerator().create_op_builder({builders!r}).load()."
        raise ImportError(msg, name=f"{__name__}.{name}")
    return builder.load()
