"""The table of ops, the one place that lists them.

Builders, loaders, the report, ``build --all``, the fuzzer and docs/ops.md are derived from its rows.
"""

from __future__ import annotations

from .op import FLOATS, ON_HOST, Op, instances

__all__ = ["OPS"]

_WEIGHTS = ("same", "float")
_COLUMN_SUM = instances(["ColumnSum"], FLOATS)

OPS: tuple[Op, ...] = (
    Op(
        name="cpu_adam",
        builder="CPUAdamBuilder",
        about="Adam and AdamW for parameters in the host's memory",
        functions="cpu_adam:CPUAdamFunctions",
        devices=(ON_HOST,),
        sources=("adam/adam.cpp", "adam/adam_cpu.cpp"),
        loaders={"CPUAdamLoader": "Adam for parameters in the host's memory"},
    ),
    Op(
        name="activations",
        builder="ActivationsBuilder",
        about="Bias-GELU, SwiGLU and GeGLU",
        functions="activations:ActivationFunctions",
        kernels=(
            *instances(["GatedForward", "GatedBackward"], FLOATS, ("Silu", "Gelu", "GeluTanh")),
            *instances(["BiasedForward", "BiasedBackward"], FLOATS, ("Gelu", "GeluTanh")),
            *_COLUMN_SUM,
        ),
        loaders={"ActivationsLoader": "Activations: ``swiglu``, ``geglu``, ``bias_gelu``"},
    ),
    Op(
        name="adagrad",
        builder="AdagradBuilder",
        about="Adagrad for many tensors in a few launches",
        functions="optimizers:AdagradFunctions",
        kernels=instances(["TensorStep"], ("Adagrad",), FLOATS, FLOATS),
        loaders={"AdagradLoader": "Adagrad: ``adagrad_step``"},
    ),
    Op(
        name="dense",
        builder="DenseBuilder",
        about="A linear layer with a sigmoid",
        functions="dense:DenseFunctions",
        kernels=(*instances(["BiasSigmoidForward", "BiasSigmoidBackward"], FLOATS), *_COLUMN_SUM),
        float64_kernels=instances(["BiasSigmoidForward", "BiasSigmoidBackward", "ColumnSum"], ("double",)),
        loaders={"DenseLoader": "A linear layer with a sigmoid: ``dense``"},
        triton="dense:TritonDense",
    ),
    Op(
        name="lamb",
        builder="LambBuilder",
        about="LAMB for many tensors in a few launches",
        functions="optimizers:LambFunctions",
        kernels=(
            *instances(["LambUpdate"], FLOATS, FLOATS),
            *instances(["LambApply", "SquaredSums"], FLOATS),
            "RootOfSums",
        ),
        loaders={"LambLoader": "LAMB: ``lamb_step``"},
    ),
    Op(
        name="layer_norm",
        builder="LayerNormBuilder",
        about="Layer normalisation",
        functions="normalization:LayerNormFunctions",
        kernels=(*instances(["LayerNormForward", "LayerNormBackward"], FLOATS, _WEIGHTS), *_COLUMN_SUM),
        loaders={"LayerNormLoader": "Layer normalisation: ``layer_norm``, ``add_layer_norm``"},
    ),
    Op(
        name="lion",
        builder="LionBuilder",
        about="Lion for many tensors in a few launches",
        functions="optimizers:LionFunctions",
        kernels=instances(["TensorStep"], ("Lion",), FLOATS, FLOATS),
        loaders={"LionLoader": "Lion: ``lion_step``"},
    ),
    Op(
        name="moe",
        builder="MoeBuilder",
        about="Gating, dispatch and combination of mixtures of experts",
        functions="moe:MoeFunctions",
        kernels=instances(
            ["TopkGating", "TopkGatingBackward", "GatherRows", "CombineRows", "CombineWeightsBackward"], FLOATS
        ),
        loaders={"MoeLoader": "Mixtures of experts: ``topk_gating``, ``route``, ``dispatch``, ``combine``"},
    ),
    Op(
        name="multi_tensor_adam",
        builder="MultiTensorAdamBuilder",
        about="Adam and AdamW for many tensors in a few launches",
        functions="optimizers:MultiTensorAdamFunctions",
        kernels=instances(["AdamStep"], FLOATS, FLOATS),
        loaders={"MultiTensorAdamLoader": "Adam for many tensors: ``multi_tensor_adam_step``"},
    ),
    Op(
        name="multi_tensor",
        builder="MultiTensorBuilder",
        about="Norms, scaling and sums of many tensors",
        functions="multi_tensor:MultiTensorFunctions",
        kernels=(
            *instances(["SquaredSums", "AddTensors"], FLOATS),
            *instances(["ScaleTensors"], FLOATS, FLOATS),
            "RootOfSums",
        ),
        loaders={"MultiTensorLoader": "Many tensors at once: ``l2norm``, ``scale``, ``axpby``"},
    ),
    Op(
        name="quantization",
        builder="QuantizationBuilder",
        about="Groupwise quantization to int8, int4 and 8-bit floats",
        functions="quantization:QuantizationFunctions",
        kernels=(
            *instances(["Quantize", "Dequantize"], FLOATS, ("8", "4")),
            *instances(["ExtremesOfParts"], FLOATS),
            "ExtremesOfGroups",
            *instances(["QuantizeFloat8", "DequantizeFloat8"], FLOATS, ("E4M3", "E5M2")),
        ),
        loaders={
            "QuantizationLoader": "Groupwise quantization: "
            "``quantize``, ``dequantize``, ``quantize_float8``, ``dequantize_float8``"
        },
    ),
    Op(
        name="rms_norm",
        builder="RMSNormBuilder",
        about="Root-mean-square normalisation",
        functions="normalization:RMSNormFunctions",
        kernels=(*instances(["RmsNormForward", "RmsNormBackward"], FLOATS, _WEIGHTS), *_COLUMN_SUM),
        loaders={"RMSNormLoader": "Root-mean-square normalisation: ``rms_norm``, ``add_rms_norm``"},
        triton="norms_and_softmax:TritonRMSNorm",
    ),
    Op(
        name="rotary_embedding",
        builder="RotaryEmbeddingBuilder",
        about="Rotary position embedding",
        functions="rotary_embedding:RotaryEmbeddingFunctions",
        kernels=instances(["RotaryEmbedding"], FLOATS, ("false", "true")),
        loaders={"RotaryEmbeddingLoader": "Rotary position embedding: ``rotary_embedding``"},
    ),
    Op(
        name="sgd",
        builder="SGDBuilder",
        about="SGD with momentum for many tensors in a few launches",
        functions="optimizers:SGDFunctions",
        kernels=instances(["TensorStep"], ("Sgd",), FLOATS, FLOATS),
        loaders={"SGDLoader": "SGD with momentum: ``sgd_step``"},
    ),
    Op(
        name="softmax",
        builder="SoftmaxBuilder",
        about="Softmax with a scale and a mask, or a causal one",
        functions="softmax:SoftmaxFunctions",
        kernels=instances(["SoftmaxForward", "SoftmaxBackward"], FLOATS),
        loaders={
            "ScaledMaskedSoftmaxLoader": "Softmax with scale and mask: ``scaled_masked_softmax``",
            "ScaledUpperTriangleMaskedSoftmaxLoader": "Softmax with scale and causal mask: "
            "``scaled_upper_triang_masked_softmax``",
        },
        triton="norms_and_softmax:TritonSoftmax",
    ),
    Op(
        name="async_io",
        builder="AsyncIOBuilder",
        about="Asynchronous reads and writes of tensors",
        devices=(ON_HOST,),
        own_builder="op_builder.cpu.async_io:AsyncIOBuilder",
    ),
    Op(
        name="autograd",
        builder="AutogradBuilder",
        about="Gradients recorded in C++",
        devices=(ON_HOST,),
        own_builder="op_builder.cpu.autograd:AutogradBuilder",
    ),
    Op(
        name="shm_comm",
        builder="ShmCommBuilder",
        about="The process-group backend ``shm``",
        devices=(ON_HOST,),
        own_builder="op_builder.cpu.shm_comm:ShmCommBuilder",
    ),
    Op(
        name="cuda_runtime",
        builder="CudaRuntimeBuilder",
        about="Loads CUDA device code and starts its kernels",
        devices=("cuda",),  # anyaccel: ignore[device-name]
        own_builder="op_builder.cuda.runtime:CudaRuntimeBuilder",
    ),
    Op(
        name="hip_runtime",
        builder="HipRuntimeBuilder",
        about="Loads device code for AMD GPUs and starts its kernels",
        devices=("hip",),
        own_builder="op_builder.hip.runtime:HipRuntimeBuilder",
    ),
    Op(
        name="sycl_runtime",
        builder="SyclRuntimeBuilder",
        about="Compiles SYCL device code and runs it on the CPU",
        devices=("xpu",),
        own_builder="op_builder.xpu.runtime:SyclRuntimeBuilder",
    ),
    Op(
        name="xpu_runtime",
        builder="XpuRuntimeBuilder",
        about="Loads device code for Intel's GPUs and starts its kernels",
        devices=("xpu",),
        own_builder="op_builder.xpu.runtime:XpuRuntimeBuilder",
    ),
)
"""Every op, in the order of the report."""
