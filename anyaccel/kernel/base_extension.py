"""``_Extension``, where Colossal-AI has it."""

from __future__ import annotations

from ..op_builder.colossalai.extensions import _Extension

__all__ = ["_Extension"]
