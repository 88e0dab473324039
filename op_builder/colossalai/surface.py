"""Colossal-AI's functions, by the loader that it has for them."""

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
    "FlashAttentionWithCustomMaskLoader": "attention:_sdpa",
    "FlashAttentionForFloatAndCustomMaskLoader": "attention:_sdpa",
}
"""Of the loaders that are for no single op, whose implementations make the module themselves."""


def modules() -> dict[str, str]:
    """Return what each loader's ``load`` returns, ``"module:Name"`` in this folder, by the loader's name."""
    return _MODULES | _OTHERS


def with_colossalais_names(loader: str, functions: Any) -> Any:
    """Return an op's functions, those by Colossal-AI's names with them; what others register stays as it is.

    Args:
        loader: the loader's name.
        functions: what it loaded.
    """
    module = _MODULES.get(loader)
    return _made(module, functions) if module and isinstance(functions, OpFunctions) else functions


@functools.cache
def _made(module: str, functions: OpFunctions) -> Any:
    return resolve(f"op_builder.colossalai.{module}")(functions)
