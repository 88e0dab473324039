"""References to ``torch.cuda`` that are not called: annotations, classes that are tested for, functions that are passed on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from .source_view import dotted
from .targets import parsed
from .torch_names import ADVICE, CLASSES, MEMBERS, QUESTIONS

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["decide_mention"]

_MODULES = ("torch.cuda", "amp", "memory", "nvtx")
_OPERATIONS = (cst.BooleanOperation, cst.UnaryOperation, cst.Comparison, cst.ComparisonTarget)
_RAW = ("cuda_stream", "cuda_event")


def _is_called_with_device(plan: Plan, assigned: cst.CSTNode) -> bool:
    """Return whether a function is stored under a name that is called with ``device=``."""
    target = assigned.targets[0].target if isinstance(assigned, cst.Assign) and len(assigned.targets) == 1 else None
    calls = [plan.view.parent(use) for use in plan.view.uses(target) or ()] if target is not None else []
    given = (each.keyword for call in calls if isinstance(call, cst.Call) for each in call.args)
    return any(keyword is not None and keyword.value == "device" for keyword in given)


def _is_tested(plan: Plan, node: cst.CSTNode) -> bool:
    """Return whether a class is what an object is tested for: ``isinstance(x, C)``, or ``type(x) == C``.

    Proof: the contract's ``Event`` is the class itself on CUDA, so the test has its old value there. Elsewhere it is the
    class of the events that the rewritten code makes, and without CUDA there was no object of either class. A module that
    reads CUDA's raw handle means CUDA's class.
    """
    if any(f".{each}" in plan.view.source for each in _RAW):
        return False
    around = plan.view.parent(node)
    if isinstance(around, cst.Arg):
        call = plan.view.parent(around)
        return isinstance(call, cst.Call) and dotted(call.func) == "isinstance" and call.args[-1] is around
    comparison = plan.view.parent(around) if isinstance(around, cst.ComparisonTarget) else None
    left = comparison.left if isinstance(comparison, cst.Comparison) and len(comparison.comparisons) == 1 else None
    return isinstance(left, cst.Call) and dotted(left.func) == "type"


def _is_module_by_default(plan: Plan, node: cst.CSTNode) -> bool:
    """Return whether a function returns ``getattr(torch, device_name)``, and this module if there is none of that name."""
    function = plan.view.function_around(node)
    is_handled = any(isinstance(each, cst.ExceptHandler) for each in plan.view.ancestors(node))
    return function is not None and is_handled and "return getattr(torch, " in plan.view.code(function)


def _is_beside_newer_name(plan: Plan, element: cst.CSTNode) -> bool:
    listed = plan.view.parent(element) if isinstance(element, cst.Element) else None
    names = [plan.view.name(each.value) for each in listed.elements] if isinstance(listed, cst.Tuple) else []
    return "torch.OutOfMemoryError" in names


def decide_mention(plan: Plan, node: cst.CSTNode, name: str, rule: str) -> None:
    """Decide on a reference that is not called: an annotation, a function that is passed on, or anything else."""
    around = list(plan.view.ancestors(node))
    is_annotation = any(isinstance(each, cst.Annotation) for each in around)
    is_target = isinstance(around[0], cst.AssignTarget | cst.Del)
    asking = around[1] if isinstance(around[0], cst.Arg) else None
    is_inspected = isinstance(asking, cst.Call) and plan.view.code(asking.func) in (
        "hasattr",
        "getattr",
        "setattr",
        "inspect.signature",
    )
    is_of_version = isinstance(asking, cst.Call) and plan.view.code(asking.func) == "hasattr" and name in _MODULES
    is_operand = isinstance(around[0], _OPERATIONS) or getattr(around[0], "test", None) is node
    if name in QUESTIONS and is_operand:
        plan.report(
            node, rule, f"torch.cuda.{name} is not called, and a function is always true; call it, or remove it"
        )
    elif name == "_initialized" and (is_operand or isinstance(around[0], cst.Assign | cst.NamedExpr | cst.Return)):
        _decide_initialized(plan, node, rule)
    elif is_of_version:
        plan.leave(node, rule, "asks which version of torch this is; torch.cuda can be imported on every machine")
    elif name == "torch.cuda" and isinstance(around[0], cst.Return) and _is_module_by_default(plan, node):
        plan.leave(
            node, rule, "the module that is taken where torch has none for the device, which is there on every machine"
        )
    elif is_annotation and name in ("Stream", "Event"):
        plan.needs_torch = True
        plan.rewrite(node, rule, lambda _: parsed(f"torch.{name}"))
    elif is_annotation and name == "CUDAGraph":
        plan.leave(node, rule, "part of an annotation, which no device checks")
    elif name in ("Stream", "Event") and plan.target.name == "anyaccel" and _is_tested(plan, node):
        plan.call_in_place(node, rule, name)
    elif name == "OutOfMemoryError" and _is_beside_newer_name(plan, around[0]):
        plan.leave(node, rule, "the older name of a class, beside its newer one")
    elif name == "OutOfMemoryError" and not is_target:  # the same class, by its name for every device
        plan.needs_torch = True
        plan.rewrite(node, rule, lambda _: parsed("torch.OutOfMemoryError"))
    elif (isinstance(asking, cst.Call) and any(each.keyword or each.star for each in asking.args)) or (
        _is_called_with_device(plan, around[0])
    ):
        plan.report(
            node, rule, f"torch.cuda.{name} is passed on with keywords; write what {plan.target.name}'s function takes"
        )
    elif name in MEMBERS and name not in CLASSES and not is_target and not is_inspected:
        plan.call_in_place(node, rule, MEMBERS[name])
    else:
        what = f"torch.cuda.{name}" if name != "torch.cuda" else "the module torch.cuda"
        plan.report(
            node, rule, ADVICE.get(name, f"{what} is used as a value; decide what replaces it on another device")
        )


def _decide_initialized(plan: Plan, node: cst.CSTNode, rule: str) -> None:
    """Rewrite ``torch.cuda._initialized``, which asks what ``is_initialized()`` does."""
    function = plan.function("is_initialized")
    if function is None:
        plan.report(node, rule, plan.without("is_initialized"))
    else:
        plan.rewrite(node, rule, lambda _: parsed(f"{function}()"))
