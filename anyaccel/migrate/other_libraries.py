"""Libraries that have device names of their own, or that work on CUDA only."""

from __future__ import annotations

import re
import sys
from functools import lru_cache
from typing import TYPE_CHECKING

import libcst as cst

from .nodes import library_of
from .source_view import dotted, text_of

if TYPE_CHECKING:
    from .source_view import SourceView

__all__ = [
    "is_for_cpu_and_cuda",
    "is_foreign",
    "is_given_to_other_library",
    "is_made_for_cuda",
    "is_name_of_other_library",
    "is_named_for_other_library",
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
_PRECISION = re.compile(r"(pytorch_)?lightning(_fabric)?\..*\.(Mixed|Half)Precision(Plugin)?$")
_WHERE_TENSORS_ARE = ("dgl", "fbgemm_gpu", "nvalchemiops", "ctranslate2")
_CPU_AND_CUDA = ("ctranslate2", "faster_whisper")
_FOR_CUDA = frozenset(
    {
        "apex",
        "bitsandbytes",
        "flash_attn",
        "flashinfer",
        "sageattention",
        "xformers",
        "natten",
        "cupy",
        "numba",
        "tensorrt",
        "torch_tensorrt",
        "transformer_engine",
        "cuml",
        "cudf",
        "warp",
        "nvalchemiops",
        "nvitop",
        "pynvml",
        "GPUtil",
        "astra",
        "fbgemm_gpu",
        "kaolin",
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
    """Return whether a full name is of a library with devices of its own, or of a precision that a trainer gets."""
    return full_name.partition(".")[0] in _NOT_TORCHS or _PRECISION.match(full_name) is not None


def is_name_of_other_library(node: cst.BaseExpression) -> bool:
    """Return whether a text or a constant is called as a library with devices of its own: ``Provider.FASTER_WHISPER``."""
    name = text_of(node) or (dotted(node) or "").rpartition(".")[2]
    return name.lower().replace("-", "_") in _NOT_TORCHS


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


def is_for_cpu_and_cuda(view: SourceView) -> bool:
    """Return whether a module imports a library whose models run on a CPU or on CUDA, and take these names."""
    return any(library in _CPU_AND_CUDA for _, library in _imports(view))


def is_made_for_cuda(full_name: str) -> bool:
    """Return whether a function comes from a library that works on CUDA, or on nothing else but a CPU."""
    return full_name.partition(".")[0] in _FOR_CUDA


def is_given_to_other_library(view: SourceView, node: cst.CSTNode) -> bool:
    """Return whether a library with devices of its own gets a device: directly, in a dictionary, or by a name for either.

    So does a class of another library, by ``super().__init__(device=device)`` of a class that derives from it.
    """
    places = _places(view, node)
    held = [_dictionary_of(view, each) for each in places]
    places += [place for each in held if each is not None for place in _places(view, each)]
    return any(_is_taken(view, view.parent(each)) for each in places)


def _places(view: SourceView, node: cst.CSTNode) -> list[cst.CSTNode]:
    """Return a value, and what reads the name that it is stored under."""
    around = view.parent(node)
    target = around.targets[0].target if isinstance(around, cst.Assign) and len(around.targets) == 1 else None
    return [node, *_uses(view, target)]


def _dictionary_of(view: SourceView, value: cst.CSTNode) -> cst.CSTNode | None:
    """Return the dictionary with a value: ``{"device": value}`` or ``dict(device=value)``."""
    around = view.parent(value)
    made = view.parent(around) if isinstance(around, cst.DictElement | cst.Arg) else None
    return made if isinstance(made, cst.Dict) or (isinstance(made, cst.Call) and dotted(made.func) == "dict") else None


def is_named_for_other_library(view: SourceView, target: cst.CSTNode) -> bool:
    """Return whether a library with devices of its own, or a class of another library, gets what a name holds."""
    return any(_is_taken(view, view.parent(use)) for use in _uses(view, target))


def _uses(view: SourceView, target: cst.CSTNode | None) -> list[cst.CSTNode]:
    if isinstance(target, cst.Attribute):
        name = dotted(target)
        return [each for each in view.of(cst.Attribute) if each is not target and name and dotted(each) == name]
    return (view.uses(target) or []) if target is not None else []


def _is_taken(view: SourceView, argument: cst.CSTNode | None) -> bool:
    call = view.parent(argument) if isinstance(argument, cst.Arg) else None
    if not isinstance(call, cst.Call):
        return False
    if view.code(call.func) == "super().__init__":
        owner = view.class_around(call)
        return isinstance(owner, cst.ClassDef) and any(is_foreign(view, each.value) for each in owner.bases)
    return names_other_library(view.name(call.func))


def is_foreign(view: SourceView, node: cst.CSTNode) -> bool:
    """Return whether a name comes from a library other than torch and the standard library, and not from this run."""
    root = view.name(node).partition(".")[0]
    return bool(root) and root != "torch" and root not in sys.stdlib_module_names and root not in view.project.packages
