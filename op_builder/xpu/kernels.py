"""This project's ops on Intel's GPUs, and by SYCL on the CPU."""

from __future__ import annotations

from ..cpu import kernels as host
from .kernel_op import OnHostBySycl, OnXpu

__all__ = [
    "ActivationsBuilder",
    "ActivationsOnHostBuilder",
    "AdagradBuilder",
    "AdagradOnHostBuilder",
    "DenseBuilder",
    "DenseOnHostBuilder",
    "LambBuilder",
    "LambOnHostBuilder",
    "LayerNormBuilder",
    "LayerNormOnHostBuilder",
    "LionBuilder",
    "LionOnHostBuilder",
    "MoeBuilder",
    "MoeOnHostBuilder",
    "MultiTensorAdamBuilder",
    "MultiTensorAdamOnHostBuilder",
    "MultiTensorBuilder",
    "MultiTensorOnHostBuilder",
    "QuantizationBuilder",
    "QuantizationOnHostBuilder",
    "RMSNormBuilder",
    "RMSNormOnHostBuilder",
    "RotaryEmbeddingBuilder",
    "RotaryEmbeddingOnHostBuilder",
    "SGDBuilder",
    "SGDOnHostBuilder",
    "SoftmaxBuilder",
    "SoftmaxOnHostBuilder",
]


class RMSNormBuilder(OnXpu, host.RMSNormBuilder):
    """Root-mean-square normalisation."""


class RMSNormOnHostBuilder(OnHostBySycl, host.RMSNormBuilder):
    """Root-mean-square normalisation, on the CPU."""


class LayerNormBuilder(OnXpu, host.LayerNormBuilder):
    """Layer normalisation."""


class LayerNormOnHostBuilder(OnHostBySycl, host.LayerNormBuilder):
    """Layer normalisation, on the CPU."""


class SoftmaxBuilder(OnXpu, host.SoftmaxBuilder):
    """Softmax with a scale and a mask, or a causal one."""


class SoftmaxOnHostBuilder(OnHostBySycl, host.SoftmaxBuilder):
    """Softmax with a scale and a mask, or a causal one, on the CPU."""


class ActivationsBuilder(OnXpu, host.ActivationsBuilder):
    """Bias-GELU, SwiGLU and GeGLU."""


class ActivationsOnHostBuilder(OnHostBySycl, host.ActivationsBuilder):
    """Bias-GELU, SwiGLU and GeGLU, on the CPU."""


class DenseBuilder(OnXpu, host.DenseBuilder):
    """A linear layer with a sigmoid."""


class DenseOnHostBuilder(OnHostBySycl, host.DenseBuilder):
    """A linear layer with a sigmoid, on the CPU by SYCL."""


class RotaryEmbeddingBuilder(OnXpu, host.RotaryEmbeddingBuilder):
    """Rotary position embedding."""


class RotaryEmbeddingOnHostBuilder(OnHostBySycl, host.RotaryEmbeddingBuilder):
    """Rotary position embedding, on the CPU."""


class QuantizationBuilder(OnXpu, host.QuantizationBuilder):
    """Groupwise quantization."""


class QuantizationOnHostBuilder(OnHostBySycl, host.QuantizationBuilder):
    """Groupwise quantization, on the CPU."""


class MoeBuilder(OnXpu, host.MoeBuilder):
    """Mixtures of experts."""


class MoeOnHostBuilder(OnHostBySycl, host.MoeBuilder):
    """Mixtures of experts, on the CPU."""


class MultiTensorBuilder(OnXpu, host.MultiTensorBuilder):
    """Norms, scaling and sums of many tensors."""


class MultiTensorOnHostBuilder(OnHostBySycl, host.MultiTensorBuilder):
    """Norms, scaling and sums of many tensors, on the CPU."""


class MultiTensorAdamBuilder(OnXpu, host.MultiTensorAdamBuilder):
    """Adam and AdamW."""


class MultiTensorAdamOnHostBuilder(OnHostBySycl, host.MultiTensorAdamBuilder):
    """Adam and AdamW, on the CPU."""


class LionBuilder(OnXpu, host.LionBuilder):
    """Lion."""


class LionOnHostBuilder(OnHostBySycl, host.LionBuilder):
    """Lion, on the CPU."""


class AdagradBuilder(OnXpu, host.AdagradBuilder):
    """Adagrad."""


class AdagradOnHostBuilder(OnHostBySycl, host.AdagradBuilder):
    """Adagrad, on the CPU."""


class SGDBuilder(OnXpu, host.SGDBuilder):
    """SGD with momentum."""


class SGDOnHostBuilder(OnHostBySycl, host.SGDBuilder):
    """SGD with momentum, on the CPU."""


class LambBuilder(OnXpu, host.LambBuilder):
    """LAMB."""


class LambOnHostBuilder(OnHostBySycl, host.LambBuilder):
    """LAMB, on the CPU."""
