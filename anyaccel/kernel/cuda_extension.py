"""``_CudaExtension``, where Colossal-AI has it."""

from __future__ import annotations

from ..op_builder.colossalai.extensions import _CudaExtension

__all__ = ["_CudaExtension"]
