"""Checks that decide what runs: ``torch.cuda.is_available()`` and ``t.is_cuda``.

On a CPU, the contract's versions of both are true. A rewrite is therefore correct only if everything that depends on
the check works on every device. :mod:`.consequences` verifies that at the end, when all other decisions are known.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .own_members import is_named_after, own_member
from .questions import OF_MESSAGE, is_in_text_of_cuda
from .source_view import dotted
from .targets import expression

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["decide"]

_OPTIONS = re.compile(r"^(args|opts?|options|config|cfg|conf|hparams|params|flags|self|packed.*|.*_packed)$")


def decide(plan: Plan) -> None:
    """Decide on every ``t.is_cuda``, for now; :mod:`.consequences` may undo a rewrite."""
    function = plan.function("on_accelerator")
    found = [node for node in plan.view.of(cst.Attribute) if node.attr.value == "is_cuda" and plan.is_open(node)]
    assigned = [node for node in found if isinstance(plan.view.parent(node), cst.AssignTarget | cst.AnnAssign)]
    setters = {plan.view.class_around(node) for node in assigned if dotted(node.value) == "self"} - {None}
    is_own = any(dotted(node.value) != "self" or plan.view.class_around(node) is None for node in assigned)
    is_own |= any(node.name.value == "is_cuda" for node in plan.view.of(cst.FunctionDef))
    for node in found:
        around = plan.view.parent(node)
        is_option = _OPTIONS.search((dotted(node.value) or "").rpartition(".")[2].lower()) is not None
        if dotted(node.value) == "self" and plan.view.class_around(node) in setters:
            plan.leave(node, "is-cuda", "an attribute that this class sets itself")
        elif is_in_text_of_cuda(plan, node):
            plan.leave(node, "is-cuda", OF_MESSAGE)
        elif is_named_after(plan, node.value, "is_cuda"):
            plan.leave(node, "is-cuda", "an attribute of a class of the program's, by its name")
        elif is_own or is_option or (isinstance(around, cst.Call) and around.func is node):
            plan.report(
                node,
                "is-cuda",
                "the object may define its own is_cuda; use get_accelerator().on_accelerator(t) if it is a tensor",
            )
        elif function is None:
            plan.report(node, "is-cuda", plan.without("on_accelerator"))
        elif reason := own_member(plan, node.value, "is_cuda"):
            plan.report(node, "is-cuda", reason)
        else:
            plan.rewrite(node, "is-cuda", lambda updated: expression(f"{function}({{t}})", t=updated.value))
