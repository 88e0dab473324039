"""The loaders, where Colossal-AI has them; they are those of ``anyaccel.op_builder.kernel_loader``."""

from __future__ import annotations

from typing import Any

from ..op_builder import kernel_loader


def __getattr__(name: str) -> Any:
    return getattr(kernel_loader, name)
