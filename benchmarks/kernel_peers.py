"""Other projects' versions of the kernels in ``bench_bandwidth.py``, if they are installed, and ours in Triton."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["PEERS", "installed_peers"]


def _triton() -> dict[str, Callable[..., Any]]:
    from anyaccel.kernels.triton.norms_and_softmax import TritonRMSNorm, TritonSoftmax

    norms, softmax = TritonRMSNorm(), TritonSoftmax()
    return {
        "RMSNorm": lambda x, w: norms.rms_norm(x, w, 1e-6),
        "softmax": lambda x: softmax.scaled_masked_softmax(x, None, 0.5),
        "causal softmax": lambda x, _: softmax.scaled_upper_triang_masked_softmax(x, 0.5),
    }


def _liger() -> dict[str, Callable[..., Any]]:
    from liger_kernel.transformers import functional

    return {
        # not in place, as that would overwrite the gradient that every round uses
        "RMSNorm": lambda x, w: functional.liger_rms_norm(x, w, 1e-6, in_place=False),
        "LayerNorm": lambda x, w, b: functional.liger_layer_norm(x, w, b, 1e-5),
        "SwiGLU": functional.liger_swiglu,
    }


def _apex() -> dict[str, Callable[..., Any]]:
    from apex.normalization import fused_layer_norm as norms

    return {
        "RMSNorm": lambda x, w: norms.fused_rms_norm_affine(x, w, w.shape, 1e-6),
        "LayerNorm": lambda x, w, b: norms.fused_layer_norm_affine(x, w, b, w.shape, 1e-5),
    }


_PROJECTS = {"triton": _triton, "liger": _liger, "apex": _apex}
PEERS = tuple(_PROJECTS)
"""The peers: our own Triton kernels, Liger-Kernel and NVIDIA's apex."""


def installed_peers(kernel: str) -> dict[str, Callable[..., Any]]:
    """Return the functions that take the inputs of a case, by project; projects that are not installed are left out.

    Args:
        kernel: a case of ``bench_kernels.py``, such as ``"RMSNorm"``.
    """
    found = {}
    for project, functions in _PROJECTS.items():
        try:
            function = functions().get(kernel)
        except ImportError:
            continue
        if function is not None:
            found[project] = function
    return found
