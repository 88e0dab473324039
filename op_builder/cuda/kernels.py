"""This project's ops on NVIDIA's GPUs."""

from __future__ import annotations

from ..cpu import kernels as host
from .kernel_op import OnCuda

__all__ = [
    "ActivationsBuilder",
    "AdagradBuilder",
    "DenseBuilder",
    "LambBuilder",
    "LayerNormBuilder",
    "LionBuilder",
    "MoeBuilder",
    "MultiTensorAdamBuilder",
    "MultiTensorBuilder",
    "QuantizationBuilder",
    "RMSNormBuilder",
    "RotaryEmbeddingBuilder",
    "SGDBuilder",
    "SoftmaxBuilder",
]


class RMSNormBuilder(OnCuda, host.RMSNormBuilder):
    """Root-mean-square normalisation."""


class LayerNormBuilder(OnCuda, host.LayerNormBuilder):
    """Layer normalisation."""


class SoftmaxBuilder(OnCuda, host.SoftmaxBuilder):
    """Softmax with a scale and a mask, or a causal one."""


class ActivationsBuilder(OnCuda, host.ActivationsBuilder):
    """Bias-GELU, SwiGLU and GeGLU."""


class DenseBuilder(OnCuda, host.DenseBuilder):
    """A linear layer with a sigmoid."""


class RotaryEmbeddingBuilder(OnCuda, host.RotaryEmbeddingBuilder):
    """Rotary position embedding."""


class QuantizationBuilder(OnCuda, host.QuantizationBuilder):
    """Groupwise quantization."""


class MoeBuilder(OnCuda, host.MoeBuilder):
    """Mixtures of experts."""


class MultiTensorBuilder(OnCuda, host.MultiTensorBuilder):
    """Norms, scaling and sums of many tensors."""


class MultiTensorAdamBuilder(OnCuda, host.MultiTensorAdamBuilder):
    """Adam and AdamW."""


class LionBuilder(OnCuda, host.LionBuilder):
    """Lion."""


class AdagradBuilder(OnCuda, host.AdagradBuilder):
    """Adagrad."""


class SGDBuilder(OnCuda, host.SGDBuilder):
    """SGD with momentum."""


class LambBuilder(OnCuda, host.LambBuilder):
    """LAMB."""
