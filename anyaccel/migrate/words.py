"""Names of the program's own that mean CUDA, next to one that means the CPU: on a CPU both would be the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from .nodes import dotted, text_of

if TYPE_CHECKING:
    from .source_view import SourceView

__all__ = ["OF_WORD", "is_constant_beside_cpu", "is_word"]

OF_WORD = "a word of the program's, next to one for the CPU; decide what other devices are called"


def is_word(view: SourceView, name: str) -> bool:
    """Return whether a module's name is ``CUDA``, next to ``CPU = "cpu"``, or ``CUDA_DEVICE``, next to ``CPU_DEVICE``."""
    words = name.lower().split("_")
    cpu = "_".join("cpu" if each in ("cuda", "gpu") else each for each in words)
    others = (value for each, values in view.assigned.items() if each.lower() == cpu for value in values)
    return cpu != name.lower() and any(_device_text(view, value) == "cpu" for value in others)


def is_constant_beside_cpu(view: SourceView, node: cst.CSTNode) -> bool:
    """Return whether the module has ``CUDA_DEVICE = torch.device("cuda")`` and ``CPU_DEVICE = torch.device("cpu")``."""
    call = view.parent(view.parent(node) or node)
    line = view.parent(call) if isinstance(call, cst.Call) else None
    name = dotted(line.targets[0].target) if isinstance(line, cst.Assign) else None
    is_global = isinstance(view.parent(view.parent(line) or node) if line else None, cst.Module)
    return name is not None and is_global and is_word(view, name)


def _device_text(view: SourceView, value: cst.BaseExpression) -> str | None:
    """Return the text of ``"cpu"`` and of ``torch.device("cpu")``."""
    is_device = isinstance(value, cst.Call) and view.name(value.func) == "torch.device" and len(value.args) == 1
    return text_of(value.args[0].value) if is_device and isinstance(value, cst.Call) else text_of(value)
