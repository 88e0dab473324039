"""Functions that TorchScript compiles stay as they are."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .site import SiteOutcome
from .source_view import dotted

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["keep_scripts"]

_SCRIPTABLE = ("amp", "device-name", "is-cuda", "tensor-cuda")  # what TorchScript can compile before the rewrite
_NOT_SCRIPTABLE = (cst.Try, cst.Lambda, cst.Yield, cst.GeneratorExp, cst.StarredElement, cst.ClassDef, cst.Global)
_TENSOR = re.compile(r"\bTensor\b")
# The decorator may be a function of the program's.
_SCRIPTS = re.compile(r"jit[._]?script|script_?(if|unless)|torch_?script", re.IGNORECASE)
_FOR_SCRIPTS = re.compile(
    r"^[^#\n]*\bjit\.(annotate|is_scripting|unused|ignore|export|Final|Attribute|interface)\b", re.MULTILINE
)
_SAYS_SCRIPT = re.compile(r"#.*\b(torch\W?script|script-?able)\b", re.IGNORECASE)


def keep_scripts(plan: Plan) -> None:
    """Report rewrites in functions that TorchScript compiles, because it cannot call the accelerator."""
    is_scripted = "torch.jit.script(" in plan.view.source or "self" in plan.project.scripted  # a base class's
    scripted = _scripted(plan)
    for one in plan.decisions.values():
        for around in plan.view.ancestors(one.node) if one.outcome is SiteOutcome.REWRITTEN else ():
            if isinstance(around, cst.FunctionDef):
                is_decorated = any(_SCRIPTS.search(plan.view.code(each.decorator)) for each in around.decorators)
                is_typed = plan.project.is_scripted and one.rule in _SCRIPTABLE and _is_typed(plan, around)
                is_forward = is_scripted and around.name.value == "forward"
                is_given = around.name.value in scripted
                if is_decorated or is_typed or is_forward or is_given or _is_written_for(plan, around):
                    plan.reconsider(
                        one.node,
                        "TorchScript compiles this function and cannot call the accelerator; pass the device as an argument",
                    )
                break


def _scripted(plan: Plan) -> set[str]:
    """Return the functions that ``torch.jit.script`` gets, also by another name for it or from a function, and what they call."""
    scripting = {"torch.jit.script", "torch.jit.script_if_tracing"}
    uses = [node for node, name in plan.view.imported.items() if name in scripting]
    functions = {each.name.value: each for each in plan.view.of(cst.FunctionDef)}
    found: set[str] = set()
    for use in uses:
        around = plan.view.parent(use)
        if isinstance(around, cst.Assign) and around.value is use:
            scripting.add(dotted(around.targets[0].target) or "")
        owner = next((each for each in plan.view.ancestors(use) if isinstance(each, cst.FunctionDef)), None)
        given = around.args[0].value if isinstance(around, cst.Call) and around.func is use and around.args else None
        if owner is not None and given is not None and plan.view.parameter(given) is not None:
            scripting.add(owner.name.value)
        elif isinstance(given, cst.Name):
            for loop in plan.view.loops_of(given):
                found |= {each.value for each in plan.view.inside(loop.iter, cst.Name)}
    for call in plan.view.of(cst.Call) if uses else ():
        if (plan.view.name(call.func) or dotted(call.func)) in scripting:
            found |= {dotted(each.value) or "" for each in call.args}
    for name, function in functions.items() if uses else ():
        if any(dotted(getattr(each.decorator, "func", each.decorator)) in scripting for each in function.decorators):
            found.add(name)
    found |= plan.project.scripted  # in other files of the run
    pending = found & functions.keys()
    while pending:
        called = {dotted(call.func) or "" for name in pending for call in plan.view.inside(functions[name], cst.Call)}
        pending = (called & functions.keys()) - found
        found |= pending
    return found


def _is_written_for(plan: Plan, function: cst.FunctionDef) -> bool:
    """Return whether a function is written for TorchScript, which another program may use to compile it.

    TorchScript compiles all methods of a class, and what a function calls.
    """
    code, owner = plan.view.code(function), plan.view.class_around(function)
    of_class = plan.view.code(owner) if owner is not None else code
    called = {dotted(call.func) for call in plan.view.inside(function, cst.Call)} if plan.project.scriptable else set()
    return (
        _FOR_SCRIPTS.search(of_class) is not None
        or _SAYS_SCRIPT.search(code) is not None
        or bool({*called, function.name.value} & plan.project.scriptable)
    )


def _is_typed(plan: Plan, function: cst.FunctionDef) -> bool:
    """Return whether a function's parameters and result are annotated with tensors, as TorchScript needs it."""
    if not isinstance(function.params.star_arg, cst.MaybeSentinel) or function.params.star_kwarg is not None:
        return False
    if next(iter(plan.view.inside(function, *_NOT_SCRIPTABLE)), None) is not None:
        return False
    notes = [each.annotation.annotation for each in function.params.params if each.annotation is not None]
    is_taken = any(_TENSOR.search(plan.view.code(each)) for each in notes)
    returned = function.returns.annotation if function.returns is not None else None
    return is_taken and returned is not None and _TENSOR.search(plan.view.code(returned)) is not None
