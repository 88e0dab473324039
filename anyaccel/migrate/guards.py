"""Checks that decide what runs: ``torch.cuda.is_available()`` and ``t.is_cuda``.

On a CPU, the contract's versions of both are true. A rewrite is therefore correct only if everything that depends on
the check works on every device. :mod:`.consequences` verifies that at the end, when all other decisions are known.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .device_text import ACCELERATORS
from .own_members import is_named_after, own_member
from .questions import OF_MESSAGE, is_in_text_of_cuda
from .regions import regions_of
from .site import SiteOutcome
from .source_view import dotted, text_of
from .targets import expression
from .values_of_cuda import rewritten_in

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["asks_for_kernels", "decide", "keep_guarded_devices", "keep_names_of_cuda"]

_KERNELS = re.compile(
    r"^(flash|flash_?attn\w*|flash_?attention_\d|fa[234]|tilelang|triton|cudnn|cutlass|cute\w*|flashinfer|flash_?mla\w*|xformers|apex"
    r"|liger\w*|quack|deep_?gemm|thunderkittens|tensorrt\w*|nvfuser|transformer_engine)$",
    re.IGNORECASE,
)
_VERSION = re.compile(r"\btorch\.version\.(hip|cuda)\b")
_MISSING = re.compile(
    r"\b(must|requires?|needs?|expect(s|ed)?|only|should)\b.*\bcuda\b|\bcuda\b.*\b(required|only|needed|expected)\b",
    re.IGNORECASE,
)
_CONSTANT = re.compile(r"^_?([A-Z]+_)*CUDA(_[A-Z]+)*$")
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
        elif dotted(node.value) == "cls":
            plan.leave(node, "is-cuda", "an attribute of a class, which is no tensor")
        elif is_in_text_of_cuda(plan, node):
            plan.leave(node, "is-cuda", OF_MESSAGE)
        elif _is_beside_accelerators(plan, node):
            plan.leave(
                node, "is-cuda", "checks for one of several accelerators by name, which is correct on every machine"
            )
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


def _is_beside_accelerators(plan: Plan, node: cst.CSTNode) -> bool:
    """Return whether a question stands in ``t.is_cuda or t.device.type in ("cpu", "xpu", "hpu")``, of the same tensor."""
    either, around = node, plan.view.parent(node)
    while isinstance(around, cst.BooleanOperation) and isinstance(around.operator, cst.Or):
        either, around = around, plan.view.parent(around)
    device = f"{(dotted(node) or '').rpartition('.')[0]}.device"
    compared = [
        each for each in plan.view.inside(either, cst.Comparison) if dotted(each.left) in (device, f"{device}.type")
    ]
    return any(text_of(text) in ACCELERATORS for each in compared for text in plan.view.inside(each, cst.SimpleString))


def keep_guarded_devices(plan: Plan) -> None:
    """Report the devices that a function makes before a reported guard refuses all but CUDA's.

    ``device = torch.device("cuda", i)`` … ``if device.type != "cuda": raise ValueError`` would refuse the accelerator's.
    """
    for one in list(plan.decisions.values()):
        if one.outcome is not SiteOutcome.REPORTED or one.rule != "device-name":
            continue
        compared = one.node
        found = regions_of(plan.view, compared)
        if not isinstance(compared, cst.Comparison | cst.Call) or not (found.is_entry or found.stops):
            continue
        line, function = plan.view.position(compared)[0], plan.view.function_around(compared)
        names = plan.view.inside(compared, cst.Name, cst.Attribute)
        values: list[cst.CSTNode] = [value for name in names for value in plan.view.values_of(name)]
        for other in rewritten_in(plan, values):
            if other.rule in ("device-name", "device-choice") and plan.view.function_around(other.node) is function:
                plan.reconsider(other.node, f"line {line} refuses other devices than CUDA; decide on both together")


def keep_names_of_cuda(plan: Plan) -> None:
    """Report ``_CUDA = "cuda"``, a constant that is named after its value, and a default that names a module of torch's.

    ``getattr(torch, device_type).is_available()`` is true on a CPU: ``torch.cpu`` is always there.
    """
    for one in list(plan.decisions.values()):
        around = (
            plan.view.parent(one.node) if one.outcome is SiteOutcome.REWRITTEN and one.rule == "device-name" else None
        )
        target = around.targets[0].target if isinstance(around, cst.Assign) else getattr(around, "target", None)
        if isinstance(target, cst.Name) and _CONSTANT.search(target.value):
            plan.reconsider(one.node, f"{target.value} is named after CUDA; rename it with its value, or keep both")
        reads = plan.view.uses(around.name) if isinstance(around, cst.Param) and around.default is one.node else None
        for read in reads or ():
            call = plan.view.parent(plan.view.parent(read) or read)
            if isinstance(call, cst.Call) and plan.view.code(call).startswith("getattr(torch,"):
                line = plan.view.position(call)[0]
                plan.reconsider(one.node, f"line {line} takes the module of torch of this name; a CPU has one, too")


def asks_for_kernels(plan: Plan, asked: cst.CSTNode, other: cst.CSTNode | None) -> bool:
    """Return whether a question about a tensor is one of several before the kernels of a library, or is about the vendor.

    ``impl == "tilelang" and q.is_cuda``, ``torch.version.hip is not None or not x.is_cuda``, and a list of what is missing:
    ``if not q.is_cuda: reasons.append("q must be CUDA")``.

    Args:
        plan: the module's plan.
        asked: the question.
        other: what runs if the answer is no, if it does not end the program.
    """
    whole = asked
    for around in plan.view.ancestors(asked):
        if not isinstance(around, cst.BooleanOperation | cst.UnaryOperation):
            break
        whole = around
    names = [text_of(each) or "" for each in plan.view.inside(whole, cst.SimpleString)]
    if any(_KERNELS.match(name) for name in names) or _VERSION.search(plan.view.code(whole)):
        return True
    lines = list(other.body) if isinstance(other, cst.IndentedBlock) else []
    told = lines[0].body[0] if len(lines) == 1 and isinstance(lines[0], cst.SimpleStatementLine) else None
    call = told.value if isinstance(told, cst.Expr) else None
    is_kept = isinstance(call, cst.Call) and re.search(r"\.(append|add)$", dotted(call.func) or "") is not None
    return is_kept and told is not None and _MISSING.search(plan.view.code(told)) is not None
