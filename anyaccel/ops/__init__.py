"""Python fronts of the kernels, in the manner of ``torch.nn`` and ``torch.optim``."""

from .adam import CPUAdam
from .dense import Dense
from .device_kernel import DeviceKernel
from .functional import (
    add_layer_norm,
    add_rms_norm,
    bias_gelu,
    clip_grad_norm_,
    combine,
    dequantize,
    dequantize_float8,
    dispatch,
    geglu,
    layer_norm,
    quantize,
    quantize_float8,
    rms_norm,
    rotary_embedding,
    route,
    scaled_masked_softmax,
    scaled_upper_triang_masked_softmax,
    swiglu,
    topk_gating,
)
from .norms import LayerNorm, RMSNorm
from .optimizers import CPUAdagrad, CPULion, FusedAdam, FusedLamb, FusedLion, FusedSGD

__all__ = [
    "CPUAdagrad", "CPUAdam", "CPULion", "Dense", "DeviceKernel", "FusedAdam", "FusedLamb", "FusedLion", "FusedSGD", "LayerNorm",
    "RMSNorm", "add_layer_norm", "add_rms_norm", "bias_gelu", "clip_grad_norm_", "combine", "dequantize",
    "dequantize_float8", "dispatch", "geglu", "layer_norm", "quantize", "quantize_float8", "rms_norm",
    "rotary_embedding", "route", "scaled_masked_softmax", "scaled_upper_triang_masked_softmax", "swiglu", "topk_gating",
]  # fmt: skip
