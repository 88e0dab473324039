"""The layers: each has the forward method of a stock layer, and uses the weights of the module that it is put into."""

from __future__ import annotations

from .activations import GeluAndMul, GeluTanhAndMul, SiluAndMul
from .layer_norm import LayerNorm
from .rms_norm import RMSNorm

__all__ = ["GeluAndMul", "GeluTanhAndMul", "LayerNorm", "RMSNorm", "SiluAndMul"]
