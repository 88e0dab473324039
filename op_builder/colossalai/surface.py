"""Colossal-AI's functions, by the name of its loader."""

from __future__ import annotations

import functools
from typing import Any

from ...kernels.functions.registration import OpFunctions
from ..op import resolve

__all__ = ["modules", "with_colossalais_names"]

_MODULES = {
    "CPUAdamLoader": "optimizers:CPUAdamModule",
    "LayerNormLoader": "layers:LayerNormModule",
    "MoeLoader": "experts:MoeModule",
    "ScaledMaskedSoftmaxLoader": "layers:ScaledMaskedSoftmaxModule",
    "ScaledUpperTriangleMaskedSoftmaxLoader": "layers:ScaledUpperTriangleMaskedSoftmaxModule",
}

_OTHERS = {
    "FusedOptimizerLoader": "optimizers:FusedOptimizerModule",
    "InferenceOpsLoader": "inference:InferenceOps",
    "FlashAttentionLoader": "attention:_sdpa",
    "FlashAttentionDaoLoader": "attention:_by_package",
    "FlashAttentionWithCustomMaskLoader": "attention:_sdpa",
    "FlashAttentionForFloatAndCustomMaskLoader": "attention:_sdpa",
}
"""The loaders that do not belong to a single op; their implementations return the module."""


def modules() -> dict[str, str]:
    """Return the module that each loader's ``load`` returns, ``"module:Name"`` in this folder, by loader name."""
    return _MODULES | _OTHERS


def with_colossalais_names(loader: str, functions: Any) -> Any:
    """Return an op's functions, adding Colossal-AI's names; functions that others register are unchanged.

    Args:
        loader: the loader's name.
        functions: the functions that it loaded.
    """
    module = _MODULES.get(loader)
    return _made(module, functions) if module and isinstance(functions, OpFunctions) else functions


@functools.cache
def _made(module: str, functions: OpFunctions) -> Any:
    return resolve(f"op_builder.colossalai.{module}")(functions)
