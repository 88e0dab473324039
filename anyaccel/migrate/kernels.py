"""Finds calls of kernels that are made for CUDA, by the names of what is called."""

from __future__ import annotations

import re
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

import libcst as cst

from .nodes import library_of
from .other_libraries import is_made_for_cuda
from .source_view import dotted

if TYPE_CHECKING:
    from .source_view import SourceView

__all__ = ["calls_kernel", "functions_of_kernels", "kernels_imported", "moves_to_cuda"]

_OF_CUDA = re.compile(
    r"(^|[._])(_C|ext|extension|cuda\w*|\w+_cuda|apex|flash_attn|triton|fused\w*|multi_tensor\w*|amp_C|\w*kernels?|cupy|bitsandbytes|bnb|pynvml|nvml|tensorrt|\w*nvidia\w*|\w*nvlink\w*|\w*cublas\w*)($|[._])"
)
_EXTENSION = re.compile(r"(^|\.)(_C|_?ext(_module)?|extension|amp_C|\w+_cuda|\w*_?kernels)\.\w+$")
_SOURCES = re.compile(r"\.cu\b|\b(cuda_sources|extra_cuda_cflags)\b")
_OF_TORCH = (
    "torch.nn.parallel.comm.",
    "torch.nn.parallel._functions.",  # broadcast() and gather() between CUDA devices
    "torch.backends.cuda.preferred_",  # raises without CUDA's libraries
)
_CHOICES = (cst.If, cst.IfExp, cst.Try, cst.BooleanOperation, cst.FunctionDef, cst.ClassDef)
_MOVES = re.compile(r"(^|[._])(to|is|has|use|move)_(the_)?cuda$")


def moves_to_cuda(name: str) -> bool:
    """Return whether a function's name says that it only moves to CUDA, or asks for it: ``to_cuda``."""
    return _MOVES.search(name) is not None


def calls_kernel(view: SourceView, call: cst.Call) -> bool:
    """Return whether a call is one of a kernel that is made for CUDA, by its own name or its library's."""
    name, full_name = dotted(call.func) or "", view.name(call.func)
    if full_name.startswith(_OF_TORCH):
        return True
    is_torchs = full_name.startswith("torch.") or name.endswith((".cuda", ".is_available"))
    if (is_torchs and "cudagraph" not in name) or moves_to_cuda(name):
        return False
    return is_made_for_cuda(full_name or name) or _OF_CUDA.search(name) is not None


def kernels_imported(view: SourceView, statement: cst.CSTNode) -> str:
    """Return what an import brings if it is made for CUDA; otherwise an empty string."""
    name = view.code(statement).replace("import", "").replace("from", "").replace(" ", ".")
    return name if "torch" not in name and _OF_CUDA.search(name) and not moves_to_cuda(name) else ""


def functions_of_kernels(view: SourceView) -> set[str]:
    """Return the functions, methods, and classes with ``apply()``, of a module that call what is made for CUDA.

    That is a function of a compiled extension, or, in functions without another way, of a library for CUDA. ``Bias.apply(x)``
    runs what ``Bias.forward`` calls. Functions that call these are included, and methods by ``self.name``.
    """
    owners: dict[str, cst.CSTNode] = {}
    for each in view.of(cst.FunctionDef, cst.ClassDef):
        is_kind = isinstance(each, cst.FunctionDef) or _is_autograd_function(each)
        if is_kind and (isinstance(each, cst.ClassDef) or view.class_around(each) is None):
            owners[each.name.value] = each
    libraries = {name for name, owner in owners.items() if _needs_library(view, owner)}
    methods = (each for each in view.of(cst.FunctionDef) if view.class_around(each) is not None)
    libraries |= {f"self.{each.name.value}" for each in methods if _needs_library(view, each)}
    called = {
        name: [dotted(call.func) or "" for call in view.inside(owner, cst.Call)] for name, owner in owners.items()
    }
    found = libraries | {name for name, calls in called.items() if any(_EXTENSION.search(each) for each in calls)}
    if "cpp_extension" in view.source:
        compiles = partial(_compiles_cuda, view)
        found |= {name for name, owner in owners.items() if any(map(compiles, view.inside(owner, cst.Call)))}
    while (
        more := {name for name, calls in called.items() if any(each.removesuffix(".apply") in found for each in calls)}
        - found
    ):
        found |= more
    return found


def _needs_library(view: SourceView, owner: cst.CSTNode) -> bool:
    """Return whether a function imports or calls a library for CUDA, and not in one of several ways that it chooses from."""
    found = False
    for each in view.inside(owner, cst.Call, cst.Import, cst.ImportFrom):
        name = view.name(each.func) if isinstance(each, cst.Call) else library_of(each)
        if is_made_for_cuda(name):
            inner = takewhile(lambda around: around is not owner, view.ancestors(each))
            is_chosen = any(isinstance(around, _CHOICES) for around in inner)
            if is_chosen and not isinstance(each, cst.Call):
                return False  # ``try: import flash_attn``
            found |= not is_chosen
    return found


def _compiles_cuda(view: SourceView, call: cst.Call) -> bool:
    """Return whether a call compiles CUDA's sources: ``load(sources=["a.cu"])`` of torch's."""
    is_load = view.name(call.func).startswith("torch.utils.cpp_extension.load")
    return is_load and _SOURCES.search(view.code(call)) is not None


def _is_autograd_function(owner: cst.ClassDef) -> bool:
    return any((dotted(base.value) or "").rpartition(".")[2] == "Function" for base in owner.bases)
