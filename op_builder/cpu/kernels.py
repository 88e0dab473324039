"""This project's ops on the CPU. The host libraries that they build serve every device's tensors; see ``kernel_op.py``."""

from __future__ import annotations

from ..functions.activations import Activations
from ..functions.dense import Dense
from ..functions.layer_norm import LayerNorm
from ..functions.moe import Moe
from ..functions.multi_tensor import MultiTensor
from ..functions.optimizers import SGD, Adagrad, Lamb, Lion, MultiTensorAdam
from ..functions.quantization import Quantization
from ..functions.rms_norm import RMSNorm
from ..functions.rotary_embedding import RotaryEmbedding
from ..functions.softmax import Softmax
from ..kernel_op import FLOATS, KernelOp, instances

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

_WEIGHTS = ("same", "float")


class RMSNormBuilder(KernelOp):
    """Root-mean-square normalisation."""

    NAME = "rms_norm"
    FUNCTIONS = RMSNorm
    KERNELS = (
        *instances(["RmsNormForward", "RmsNormBackward"], FLOATS, _WEIGHTS),
        *instances(["ColumnSum"], FLOATS),
    )


class LayerNormBuilder(KernelOp):
    """Layer normalisation."""

    NAME = "layer_norm"
    FUNCTIONS = LayerNorm
    KERNELS = (
        *instances(["LayerNormForward", "LayerNormBackward"], FLOATS, _WEIGHTS),
        *instances(["ColumnSum"], FLOATS),
    )


class SoftmaxBuilder(KernelOp):
    """Softmax with a scale and a mask, or a causal one."""

    NAME = "softmax"
    FUNCTIONS = Softmax
    KERNELS = instances(["SoftmaxForward", "SoftmaxBackward"], FLOATS)


class ActivationsBuilder(KernelOp):
    """Bias-GELU, SwiGLU and GeGLU."""

    NAME = "activations"
    FUNCTIONS = Activations
    KERNELS = (
        *instances(["GatedForward", "GatedBackward"], FLOATS, ("Silu", "Gelu", "GeluTanh")),
        *instances(["BiasedForward", "BiasedBackward"], FLOATS, ("Gelu", "GeluTanh")),
        *instances(["ColumnSum"], FLOATS),
    )


class DenseBuilder(KernelOp):
    """A linear layer with a sigmoid."""

    NAME = "dense"
    FUNCTIONS = Dense
    KERNELS = (
        *instances(["BiasSigmoidForward", "BiasSigmoidBackward"], FLOATS),
        *instances(["ColumnSum"], FLOATS),
    )


class RotaryEmbeddingBuilder(KernelOp):
    """Rotary position embedding."""

    NAME = "rotary_embedding"
    FUNCTIONS = RotaryEmbedding
    KERNELS = instances(["RotaryEmbedding"], FLOATS, ("false", "true"))


class QuantizationBuilder(KernelOp):
    """Groupwise quantization to int8, int4 and 8-bit floats."""

    NAME = "quantization"
    FUNCTIONS = Quantization
    KERNELS = (
        *instances(["Quantize", "Dequantize"], FLOATS, ("8", "4")),
        *instances(["QuantizeFloat8", "DequantizeFloat8"], FLOATS, ("E4M3", "E5M2")),
    )


class MoeBuilder(KernelOp):
    """Gating, dispatch and combination of mixtures of experts."""

    NAME = "moe"
    FUNCTIONS = Moe
    KERNELS = instances(
        ["TopkGating", "TopkGatingBackward", "GatherRows", "CombineRows", "CombineWeightsBackward"], FLOATS
    )


class MultiTensorBuilder(KernelOp):
    """Norms, scaling and sums of many tensors."""

    NAME = "multi_tensor"
    FUNCTIONS = MultiTensor
    KERNELS = (
        *instances(["SquaredSums", "AddTensors"], FLOATS),
        *instances(["ScaleTensors"], FLOATS, FLOATS),
        "RootOfSums",
    )


class MultiTensorAdamBuilder(KernelOp):
    """Adam and AdamW for many tensors in a few launches."""

    NAME = "multi_tensor_adam"
    FUNCTIONS = MultiTensorAdam
    KERNELS = instances(["AdamStep"], FLOATS, FLOATS)


class LionBuilder(KernelOp):
    """Lion for many tensors in a few launches."""

    NAME = "lion"
    FUNCTIONS = Lion
    KERNELS = instances(["TensorStep"], ("Lion",), FLOATS, FLOATS)


class AdagradBuilder(KernelOp):
    """Adagrad for many tensors in a few launches."""

    NAME = "adagrad"
    FUNCTIONS = Adagrad
    KERNELS = instances(["TensorStep"], ("Adagrad",), FLOATS, FLOATS)


class SGDBuilder(KernelOp):
    """SGD with momentum for many tensors in a few launches."""

    NAME = "sgd"
    FUNCTIONS = SGD
    KERNELS = instances(["TensorStep"], ("Sgd",), FLOATS, FLOATS)


class LambBuilder(KernelOp):
    """LAMB for many tensors in a few launches."""

    NAME = "lamb"
    FUNCTIONS = Lamb
    KERNELS = (
        *instances(["LambUpdate"], FLOATS, FLOATS),
        *instances(["LambApply", "SquaredSums"], FLOATS),
        "RootOfSums",
    )
