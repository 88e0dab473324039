"""The conformance suite for authors of accelerators.

Subclass :class:`AcceleratorContract` in a pytest file with one fixture, or run ``anyaccel conformance package.module:Class``.
Only the class needs pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .outcome import Outcome, Result, run_check, run_checks

if TYPE_CHECKING:
    from .contract import AcceleratorContract

__all__ = ["AcceleratorContract", "Outcome", "Result", "run_check", "run_checks"]


def __getattr__(name: str) -> Any:
    if name != "AcceleratorContract":
        msg = f"module 'anyaccel.testing' has no attribute {name!r}"
        raise AttributeError(msg)
    from .contract import AcceleratorContract

    return AcceleratorContract
