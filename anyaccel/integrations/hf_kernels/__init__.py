"""A repository of layers for Hugging Face's ``kernels``: this folder, used without the hub.

>>> from kernels import Mode, kernelize, register_kernel_mapping
>>> register_kernel_mapping({"RMSNorm": {"cpu": {Mode.TRAINING: repository("RMSNorm")}}})
>>> kernelize(model, mode=Mode.TRAINING, device="cpu")
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from . import layers

__all__ = ["layers", "repository"]


def repository(layer_name: str) -> Any:
    """Return the ``LocalLayerRepository`` of one layer.

    Args:
        layer_name: the layer's name in ``layers``, such as ``"RMSNorm"``, which serves the norms of Llama and its likes.
    """
    from kernels import LocalLayerRepository

    return LocalLayerRepository(Path(__file__).parent, layer_name=layer_name)
