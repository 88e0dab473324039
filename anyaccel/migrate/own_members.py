"""Objects that may have a ``cuda()``, ``pin_memory()`` or ``is_cuda`` of their own class, by their names and assignments."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .source_view import dotted

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["is_named_after", "origin_of", "own_member"]

_SAME_AGAIN = re.compile(r"^(eval|train|float|half|to|cpu|clone|detach|contiguous|copy)$")
_WORDS = re.compile(r"[a-z]+")
_CAMEL = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_MODEL_CLASS = re.compile(r"(Net|Network|Model|Module)$")
_MODELS = ("model", "module", "net", "network")
_ANYTHING = {
    "obj",
    "object",
    "item",
    "items",
    "elem",
    "element",
    "value",
    "val",
    "data",
    "self",
    "super",
    "thing",
    "this",
}


def own_member(plan: Plan, receiver: cst.BaseExpression, method: str, *, has_argument: bool = False) -> str:
    """Return why an object may not be a tensor or module, but have a member of its own; empty if nothing suggests that."""
    defined = plan.project.own_method[method] | (plan.project.takes_argument[method] if has_argument else set())
    is_of_lambda = plan.view.parameter(receiver) is not None and _is_in_lambda(plan, receiver)
    is_any = method != "cuda" and is_of_lambda  # a function that is applied to whatever there is
    is_any |= method == "pin_memory" and dotted(receiver) == "batch"  # a loader's, of whatever class
    calls = (receiver, *plan.view.values_of(receiver))
    made = {(dotted(each.func) or "").rpartition(".")[2] for each in calls if isinstance(each, cst.Call)}
    owners = {one for one in defined if is_any or one in made or _may_be(receiver, one)}
    if method == "cuda" and _is_given_model(plan, receiver):
        owners |= {one for one in defined if one in plan.project.modules or _MODEL_CLASS.search(one)}
    if not owners or _is_torchs(plan, receiver, method):
        return ""
    names = ", ".join(sorted(owners))
    if method == "is_cuda":
        return f"{names} defines its own is_cuda; use get_accelerator().on_accelerator(t) if this is a tensor"
    return f"{names} defines its own {method}(), which this may call; call to() if this is a tensor"


def _is_given_model(plan: Plan, receiver: cst.BaseExpression) -> bool:
    """Return whether a model is a parameter, or an attribute that keeps one: it may be of any class of models of the project."""
    values = [receiver, *plan.view.values_of(receiver)]
    is_model = (dotted(receiver) or "").rpartition(".")[2] in _MODELS
    return is_model and any(plan.view.parameter(each) is not None for each in values)


def is_named_after(plan: Plan, receiver: cst.BaseExpression, method: str) -> bool:
    """Return whether an object has the whole name of a class with a member of its own: ``device_config`` of ``DeviceConfig``."""
    words = _WORDS.findall((dotted(receiver) or "").rpartition(".")[2].lower())
    classes = ([word.lower() for word in _CAMEL.findall(one)] for one in plan.project.own_method[method])
    return len(words) > 1 and words in list(classes)


def _is_in_lambda(plan: Plan, node: cst.CSTNode) -> bool:
    owner = next(
        each for each in plan.view.ancestors(node) if isinstance(each, cst.Lambda | cst.FunctionDef | cst.Module)
    )
    return isinstance(owner, cst.Lambda)


def _may_be(receiver: cst.BaseExpression, owner: str) -> bool:
    """Return whether an expression may be of a class, by its name: ``batch`` of ``PaddedBatch``, ``obj`` of any."""
    receiver = origin_of(receiver)
    if isinstance(receiver, cst.Attribute) and receiver.attr.value in ("data", "grad"):
        return False  # an attribute of a tensor
    words = set(_WORDS.findall((dotted(receiver) or "item").rpartition(".")[2].lower()))
    return bool(words & {word.lower() for word in _CAMEL.findall(owner)}) or bool(words & _ANYTHING)


def origin_of(node: cst.BaseExpression) -> cst.BaseExpression:
    """Return ``model`` for ``model[0].eval()``, and ``batch`` for ``batch["x"]``."""
    while True:
        if isinstance(node, cst.Subscript):
            node = node.value
        elif (
            isinstance(node, cst.Call)
            and isinstance(node.func, cst.Attribute)
            and _SAME_AGAIN.search(node.func.attr.value)
        ):
            node = node.func.value
        elif isinstance(node, cst.Call):
            node = node.func
        else:
            return node


def _is_torchs(plan: Plan, node: cst.BaseExpression, method: str, depth: int = 0) -> bool:
    """Return whether an expression is certainly a tensor or a module, from torch or a module class without such a method."""
    if isinstance(node, cst.Call):
        name = plan.view.name(node.func)
        called = (dotted(node.func) or "").rpartition(".")[2]
        if name.startswith("torch.") and not name.startswith("torch.utils.data"):
            return True
        if called in plan.project.modules - plan.project.own_method[method] - plan.project.takes_argument[method]:
            return True
        return isinstance(node.func, cst.Attribute) and _is_torchs(plan, node.func.value, method, depth)
    values = plan.view.assigned.get(dotted(node) or "", [])
    return bool(values) and depth < 3 and all(_is_torchs(plan, value, method, depth + 1) for value in values)
