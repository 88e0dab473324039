"""Code that is about CUDA itself and stays: a class that implements CUDA for a device layer, and what drives TensorRT."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from .source_view import dotted

if TYPE_CHECKING:
    from .source_view import SourceView

__all__ = ["regions_that_stay"]

_VENDORS = ("tensorrt", "torch_tensorrt", "torch2trt", "pycuda")
_OF_CLASS = "{} implements CUDA for a device layer of its own, which has other classes for other devices"
_OF_VENDOR = "it belongs to code that uses {}, which runs on CUDA only"


def regions_that_stay(view: SourceView) -> dict[cst.CSTNode, str]:
    """Return the classes and blocks that are CUDA's own, with the reason.

    A class is one when two of its methods call the function of ``torch.cuda`` that they are named after: what it promises its
    callers is CUDA's answer. A block is one when it uses a library that has CUDA devices only: the innermost branch or function.
    """
    found: dict[cst.CSTNode, str] = {}
    methods: dict[cst.CSTNode, set[str]] = {}
    for node, name in view.imported.items():
        if name.startswith("torch.cuda."):
            function = next((each for each in view.ancestors(node) if isinstance(each, cst.FunctionDef)), None)
            owner = _class_of(view, function) if function is not None else None
            if function is not None and owner is not None and function.name.value == name.rpartition(".")[2]:
                methods.setdefault(owner, set()).add(function.name.value)
        elif name.partition(".")[0] in _VENDORS:
            block = _block_of(view, node)
            if block is not None:
                found[block] = _OF_VENDOR.format(name.partition(".")[0])
    for statement in view.of(cst.Import, cst.ImportFrom):
        library = _library(statement)
        block = _block_of(view, statement) if library in _VENDORS else None
        if block is not None:
            found[block] = _OF_VENDOR.format(library)
    for owner, names in methods.items():
        if len(names) > 1 and isinstance(owner, cst.ClassDef):
            found[owner] = _OF_CLASS.format(owner.name.value)
    return found


def _library(statement: cst.Import | cst.ImportFrom) -> str:
    if isinstance(statement, cst.ImportFrom):
        return (dotted(statement.module) or "").partition(".")[0] if statement.module else ""
    return (dotted(statement.names[0].name) or "").partition(".")[0]


def _class_of(view: SourceView, function: cst.FunctionDef) -> cst.CSTNode | None:
    owner = view.parent(view.parent(function) or function)
    return owner if isinstance(owner, cst.ClassDef) else None


def _block_of(view: SourceView, node: cst.CSTNode) -> cst.CSTNode | None:
    """Return the innermost branch or function around a node; None at the module's level, which is about more."""
    for around in view.ancestors(node):
        if isinstance(around, cst.FunctionDef):
            return around
        if isinstance(around, cst.BaseSuite) and isinstance(view.parent(around), cst.If | cst.Else):
            return around
    return None
