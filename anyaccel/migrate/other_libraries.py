"""Libraries that have device names of their own, or that work on CUDA only."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import libcst as cst

from .nodes import library_of
from .source_view import dotted, text_of

if TYPE_CHECKING:
    from .source_view import SourceView

__all__ = [
    "is_given_to_other_library",
    "is_made_for_cuda",
    "is_of_other_library",
    "is_where_tensors_are",
    "names_other_library",
]

_NOT_TORCHS = frozenset(
    {
        "xgboost",
        "jax",
        "lightgbm",
        "catboost",
        "faster_whisper",
        "ctranslate2",
        "cupy",
        "numba",
        "tensorflow",
        "onnxruntime",
        "openvino",
        "tensorrt",
        "torch_tensorrt",
        "tvm",
        "paddle",
        "mxnet",
        "cuml",
        "cudf",
        "torch_tvm",
        "warp",
        "mjlab",
        "mujoco_warp",
        "nvalchemiops",
        "cuequivariance_ops_torch",
        "spconv",
        "dali",
        "dgl",
        "astra",
        "fbgemm_gpu",
    }
)
_WHERE_TENSORS_ARE = ("dgl", "fbgemm_gpu", "nvalchemiops", "ctranslate2")
_FOR_CUDA = frozenset(
    {
        "apex",
        "bitsandbytes",
        "flash_attn",
        "flashinfer",
        "sageattention",
        "xformers",
        "cupy",
        "numba",
        "tensorrt",
        "torch_tensorrt",
        "cuml",
        "cudf",
        "warp",
        "nvalchemiops",
        "nvitop",
        "pynvml",
        "GPUtil",
        "astra",
        "fbgemm_gpu",
        "cuequivariance_torch",
        "cuequivariance_ops_torch",
        "openequivariance",
        "mjlab",
        "mujoco_warp",
        "newton",
        "pyg_lib",
        "torch_cluster",
        "torch_scatter",
        "torch_sparse",
        "torch_spline_conv",
    }
)


def names_other_library(full_name: str) -> bool:
    """Return whether a full name is of a library with devices of its own."""
    return full_name.partition(".")[0] in _NOT_TORCHS


def is_of_other_library(view: SourceView, node: cst.CSTNode) -> bool:
    """Return whether a place is in a class or function that imports a library with devices of its own.

    A class also does if it calls a function that returns what it imports.
    """
    importing = set()
    if is_where_tensors_are(view):
        return True
    for statement, library in _imports(view):
        around = list(view.ancestors(statement)) if library in _NOT_TORCHS else []
        owners = [each for kind in (cst.ClassDef, cst.FunctionDef) for each in around if isinstance(each, kind)]
        if owners and view.is_within(node, owners[0]):
            return True
        importing |= {each.name.value for each in owners if isinstance(each, cst.FunctionDef)}
    owner = view.class_around(node) if importing else None
    return owner is not None and any(dotted(call.func) in importing for call in view.inside(owner, cst.Call))


@lru_cache(maxsize=1)  # asked for each question of a module
def _imports(view: SourceView) -> list[tuple[cst.CSTNode, str]]:
    """Return what imports a library, and its name: also ``importlib.import_module("dgl")``."""
    found = [(each, library_of(each)) for each in view.of(cst.Import, cst.ImportFrom)]
    for call in view.of(cst.Call):
        if (dotted(call.func) or "").rpartition(".")[2] in ("import_module", "importorskip") and call.args:
            found.append((call, (text_of(call.args[0].value) or "").partition(".")[0]))
    return found


def is_where_tensors_are(view: SourceView) -> bool:
    """Return whether a module imports dgl, fbgemm_gpu or the like, or belongs to a project of dgl's.

    Their graphs, tables and models have no kernels for other devices, and are where the tensors are.
    """
    return view.project.is_of_dgl or any(library in _WHERE_TENSORS_ARE for _, library in _imports(view))


def is_made_for_cuda(full_name: str) -> bool:
    """Return whether a function comes from a library that works on CUDA, or on nothing else but a CPU."""
    return full_name.partition(".")[0] in _FOR_CUDA


def is_given_to_other_library(view: SourceView, node: cst.CSTNode) -> bool:
    """Return whether a device is stored under a name that a library with devices of its own gets."""
    around = view.parent(node)
    target = around.targets[0].target if isinstance(around, cst.Assign) and len(around.targets) == 1 else None
    for use in (view.uses(target) or ()) if target is not None else ():
        argument = view.parent(use)
        call = view.parent(argument) if isinstance(argument, cst.Arg) else None
        if isinstance(call, cst.Call) and names_other_library(view.name(call.func)):
            return True
    return False
