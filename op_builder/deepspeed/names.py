"""deepspeed's builders: for each, the op here and the module made from the op's functions."""

from __future__ import annotations

from typing import NamedTuple

from ..op import DEVICES, ON_HOST

__all__ = ["DEEPSPEED_NAMES", "Alias"]


class Alias(NamedTuple):
    """A deepspeed builder.

    Attributes:
        name: deepspeed's name of the op.
        builder: the builder here; empty for a module that needs no compiler.
        module: the class of the module that deepspeed's builder loads, ``"module:Class"`` in this folder; it takes the
            functions of the op, and those of ``also``.
        devices: the devices that have it.
        also: further builders whose functions the module takes.
        on_cpu: the builder and the module for the CPU, if they differ.
        plain: the builder's class, ``"module:Class"`` in this folder, for a module that needs no compiler.
    """

    name: str
    builder: str
    module: str
    devices: tuple[str, ...] = DEVICES
    also: tuple[str, ...] = ()
    on_cpu: tuple[str, str] | None = None
    plain: str = "plain:PlainBuilder"

    def on(self, device: str) -> tuple[str, str]:
        """Return the builder and the module for a device."""
        return self.on_cpu if device == "cpu" and self.on_cpu else (self.builder, self.module)


_BUT_CUDA = tuple(device for device in DEVICES if device not in ("cuda", "hip"))  # anyaccel: ignore[device-name]
"""The devices for which deepspeed has no kernels faster than torch operators."""

DEEPSPEED_NAMES = {
    "FusedAdamBuilder": Alias(
        "fused_adam",
        "MultiTensorAdamBuilder",
        "optimizers:FusedAdamModule",
        on_cpu=("CPUAdamBuilder", "optimizers:FusedAdamOnCpuModule"),
    ),
    "CPUAdagradBuilder": Alias("cpu_adagrad", "AdagradBuilder", "optimizers:CPUAdagradModule", (ON_HOST,)),
    "CPULionBuilder": Alias("cpu_lion", "LionBuilder", "optimizers:CPULionModule", (ON_HOST,)),
    "FPQuantizerBuilder": Alias(
        "fp_quantizer", "", "floats:FPQuantizerModule", _BUT_CUDA, plain="plain:SmallFloatsBuilder"
    ),
    "FusedLambBuilder": Alias("fused_lamb", "LambBuilder", "lamb:FusedLambModule"),
    "FusedLionBuilder": Alias("fused_lion", "LionBuilder", "optimizers:FusedLionModule"),
    "InferenceBuilder": Alias(
        "transformer_inference",
        "RMSNormBuilder",
        "transformer:InferenceModule",
        _BUT_CUDA,
        also=("LayerNormBuilder", "ActivationsBuilder"),
    ),
    "InferenceCoreBuilder": Alias(
        "inference_core_ops",
        "RMSNormBuilder",
        "inference:InferenceCoreModule",
        also=("LayerNormBuilder", "ActivationsBuilder"),
    ),
    "PinMemoryBuilder": Alias("pin_memory", "", "host_memory:PinMemoryModule"),
    "QuantizerBuilder": Alias("quantizer", "QuantizationBuilder", "quantizers:QuantizerModule"),
    "RaggedOpsBuilder": Alias("ragged_device_ops", "", "ragged_batches:RaggedOpsModule", ("cpu",)),
    "RaggedUtilsBuilder": Alias("ragged_ops", "", "ragged:RaggedUtilsModule"),
    "RandomLTDBuilder": Alias("random_ltd", "", "tokens:RandomLTDModule"),
    "SpatialInferenceBuilder": Alias("spatial_inference", "", "images:SpatialInferenceModule"),
    "UtilsBuilder": Alias("utils", "", "host_memory:UtilsModule"),
}
"""The aliases, by deepspeed's builder name."""
