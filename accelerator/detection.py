"""Detects this machine's devices without initialising a driver, which would break forked children."""

from __future__ import annotations

import importlib
import importlib.util

__all__ = ["import_ipex", "is_importable", "kernel_kind", "kernel_rejection", "rejection"]

_LAST_IPEX = (2, 8)


def import_ipex() -> bool:
    """Import IPEX if it is installed and supports this torch.

    IPEX replaces parts of ``torch.xpu`` when it is imported, so this comes before anything that touches that module.

    Returns:
        Whether IPEX is in use.
    """
    import torch

    if tuple(map(int, torch.__version__.split(".")[:2])) > _LAST_IPEX:
        return False
    if importlib.util.find_spec("intel_extension_for_pytorch") is None:
        return False
    import intel_extension_for_pytorch  # noqa: F401

    return True


def is_importable(package: str) -> bool:
    """Return whether a package with which torch reads figures can be imported; without its library, it may raise anything."""
    try:
        importlib.import_module(package)
    except Exception:  # noqa: BLE001
        return False
    return True


def rejection(name: str) -> str:
    """Return why a device cannot be used here; empty if it can. Initialises no driver.

    Args:
        name: such as ``"cuda"``.
    """
    if name == "cpu":
        return ""
    import torch

    if name == "xpu":
        import_ipex()
    try:
        module = torch.get_device_module(name)
    except RuntimeError:
        return f"this torch ({torch.__version__}) does not know it (has the package that registers it been imported?)"
    if not getattr(module, "_is_compiled", lambda: True)():  # every torch has the modules of CUDA and XPU
        return f"this torch ({torch.__version__}) is built without it"
    # device_count asks the management library first; is_available would initialise the driver and break forked children
    return "" if module.device_count() > 0 else "torch is built for it but finds no device (is the driver installed?)"


def kernel_kind(name: str) -> str:
    """Return the kind of kernels that run on a device: in ROCm builds of torch, "cuda" devices are AMD GPUs and need HIP kernels.

    Args:
        name: torch's name of the device, such as ``"cuda"``.
    """
    if name != "cuda":  # anyaccel: ignore[device-name]
        return name
    import torch

    return name if torch.version.hip is None else "hip"


def kernel_rejection(kind: str) -> str:
    """Return why kernels of a kind cannot run here; empty when they can. Does not initialise a driver.

    Args:
        kind: such as ``"cuda"``, or ``"hip"``, whose devices are also "cuda" in torch.
    """
    import torch

    name = "cuda" if kind == "hip" else kind  # anyaccel: ignore[device-name]
    if kernel_kind(name) == kind:
        return rejection(name)
    is_for_rocm = torch.version.hip is not None
    return f"this torch ({torch.__version__}) is built {'for ROCm' if is_for_rocm else 'without ROCm'}"
