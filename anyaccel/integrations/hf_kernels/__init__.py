"""Layers for Hugging Face's ``kernels``, from this folder and without the Hub; and kernels of the Hub in our loaders.

>>> from kernels import Mode, kernelize, register_kernel_mapping
>>> register_kernel_mapping(mapping())
>>> kernelize(model, mode=Mode.TRAINING, device="cpu")
"""

# anyaccel: ignore-file[device-name]  the devices that the layers are registered for
from __future__ import annotations

from pathlib import Path
from typing import Any

from anyaccel.op_builder.hub.extension import HubExtension

from . import layers

__all__ = ["HubExtension", "layers", "mapping", "repository"]

_DEVICES = ("cpu", "cuda", "rocm", "xpu")


def repository(layer_name: str) -> Any:
    """Return the ``LocalLayerRepository`` of one layer, which serves it on every device that our ops serve.

    Args:
        layer_name: the layer's name in ``layers``, such as ``"RMSNorm"``, which serves the norms of Llama and its likes.

    Raises:
        ValueError: if ``layers`` has none of that name.
    """
    from kernels import LocalLayerRepository

    if layer_name not in layers.__all__:
        choices = ", ".join(layers.__all__)
        msg = f"finding a layer failed: got {layer_name!r}; expected one of {choices}. Fix: pass one of these names."
        raise ValueError(msg)
    return LocalLayerRepository(Path(__file__).parent, layer_name=layer_name)


def mapping() -> dict[str, dict[str, dict[Any, Any]]]:
    """Return every layer for CPU, CUDA, ROCm and XPU, for inference and training, also compiled.

    Returns:
        What ``kernels.register_kernel_mapping`` takes. Other layers stay as they are registered.
    """
    from kernels import Mode

    modes = (Mode.INFERENCE | Mode.TORCH_COMPILE, Mode.TRAINING | Mode.TORCH_COMPILE)
    served = {name: dict.fromkeys(modes, repository(name)) for name in layers.__all__}
    return {name: {device: dict(by_mode) for device in _DEVICES} for name, by_mode in served.items()}
