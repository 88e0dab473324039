"""``_TritonExtension``, where Colossal-AI has it."""

from __future__ import annotations

from ..op_builder.colossalai.extensions import _TritonExtension

__all__ = ["_TritonExtension"]
