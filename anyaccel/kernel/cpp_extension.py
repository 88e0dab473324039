"""``_CppExtension``, where Colossal-AI has it."""

from __future__ import annotations

from ..op_builder.colossalai.extensions import _CppExtension

__all__ = ["_CppExtension"]
