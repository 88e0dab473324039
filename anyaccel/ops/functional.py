"""The kernels as functions, each with the best implementation for this machine.

They take and return tensors on a CPU, or an NVIDIA, AMD or Intel GPU, and compile into one graph with ``torch.compile``. All but
the quantizers, ``route`` and ``clip_grad_norm_`` carry gradients. This module collects them; each family has a file of its own.
"""

from __future__ import annotations

from .activations import bias_gelu, geglu, swiglu
from .gradients import clip_grad_norm_
from .moe import combine, dispatch, route, topk_gating
from .normalization import add_layer_norm, add_rms_norm, layer_norm, rms_norm
from .quantization import dequantize, dequantize_float8, quantize, quantize_float8
from .rotary import rotary_embedding
from .softmax import scaled_masked_softmax, scaled_upper_triang_masked_softmax

__all__ = [
    "add_layer_norm", "add_rms_norm", "bias_gelu", "clip_grad_norm_", "combine", "dequantize", "dequantize_float8",
    "dispatch", "geglu", "layer_norm", "quantize", "quantize_float8", "rms_norm", "rotary_embedding", "route",
    "scaled_masked_softmax", "scaled_upper_triang_masked_softmax", "swiglu", "topk_gating",
]  # fmt: skip
