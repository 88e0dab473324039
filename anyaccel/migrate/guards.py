"""Questions that decide what runs: ``torch.cuda.is_available()``, ``t.is_cuda``, and comparisons with ``"cuda"``.

On a CPU the contract answers the first two with yes. So what is decided of them here holds only where everything that
depends on the answer works on every device; :mod:`.consequences` looks at that last, when it is known what became of the rest.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .source_view import dotted, text_of
from .targets import expression

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["decide", "decide_comparisons"]

_OPTIONS = re.compile(r"^(args|opts?|options|config|cfg|conf|hparams|params|flags|self|packed.*|.*_packed)$")
_CUDA_TEXT = re.compile(r"^cuda(:\d*)?$")


def decide_comparisons(plan: Plan) -> None:
    """Report every comparison with a CUDA device's name: what follows may be CUDA's alone."""
    reason = "compared with a CUDA device: decide whether what depends on it is CUDA's alone, or any accelerator's"
    for node in plan.view.of(cst.Comparison):
        sides = [node.left, *(each.comparator for each in node.comparisons)]
        if plan.is_open(node) and any(_names_cuda(side) for side in sides):
            plan.report(node, "device-name", reason)
            plan.claim(*(side for side in sides if _names_cuda(side)))
    for node in plan.view.of(cst.Call):
        is_prefix = isinstance(node.func, cst.Attribute) and node.func.attr.value == "startswith"
        if is_prefix and node.args and (text_of(node.args[0].value) or "").startswith("cuda"):
            plan.report(node, "device-name", reason)
            plan.claim(*node.args)


def _names_cuda(node: cst.BaseExpression) -> bool:
    if isinstance(node, cst.List | cst.Tuple | cst.Set):
        return any(_names_cuda(element.value) for element in node.elements)
    if isinstance(node, cst.Call):
        return (dotted(node.func) or "") == "torch.device" and bool(node.args) and _names_cuda(node.args[0].value)
    return _CUDA_TEXT.match(text_of(node) or "") is not None


def decide(plan: Plan) -> None:
    """Decide on every ``t.is_cuda``, for now."""
    function = plan.function("on_accelerator")
    found = [node for node in plan.view.of(cst.Attribute) if node.attr.value == "is_cuda" and plan.is_open(node)]
    is_own = any(isinstance(plan.view.parent(node), cst.AssignTarget | cst.AnnAssign) for node in found)
    is_own |= any(node.name.value == "is_cuda" for node in plan.view.of(cst.FunctionDef))
    for node in found:
        around = plan.view.parent(node)
        is_option = _OPTIONS.search((dotted(node.value) or "").rpartition(".")[2].lower()) is not None
        if is_own or is_option or (isinstance(around, cst.Call) and around.func is node):
            plan.report(node, "is-cuda", "of an object with an is_cuda of its own, which this may be")
        elif function is None:
            plan.report(node, "is-cuda", plan.without("on_accelerator"))
        else:
            plan.rewrite(node, "is-cuda", lambda updated: expression(f"{function}({{t}})", t=updated.value))
