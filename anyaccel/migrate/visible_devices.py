"""What sets ``CUDA_VISIBLE_DEVICES``, for this process or for a new one, and what needs it: without CUDA, nothing sets it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .regions import leaves
from .source_view import dotted, text_of

if TYPE_CHECKING:
    from .plan import Plan
    from .source_view import SourceView

__all__ = ["is_of_new_process", "only_sets_visible_devices", "reads_visible", "sets_visible_devices"]

_VARIABLE = "CUDA_VISIBLE_DEVICES"
_READ = re.compile(r"""(os\.)?(environ\[|getenv\(|environ\.get\()["']CUDA_VISIBLE_DEVICES["'][\])]""")
_OF_KEY = re.compile(r"\b(KeyError|LookupError|Exception|BaseException)\b")
_OF_NONE = re.compile(r"\b(AttributeError|TypeError|Exception|BaseException)\b")


def sets_visible_devices(plan: Plan, name: cst.SimpleString) -> bool:
    """Return whether the environment's variable is set here: ``os.environ["CUDA_VISIBLE_DEVICES"] = …``."""
    if text_of(name) != "CUDA_VISIBLE_DEVICES":
        return False
    around = list(plan.view.ancestors(name))[:5]
    return any(isinstance(each, cst.AssignTarget) for each in around)


def only_sets_visible_devices(plan: Plan, node: cst.BaseExpression) -> bool:
    """Return whether all that depends on a comparison is ``os.environ["CUDA_VISIBLE_DEVICES"] = …``."""
    around = plan.view.parent(node)
    if not isinstance(around, cst.If) or around.test is not node or around.orelse is not None:
        return False
    return all(
        any(sets_visible_devices(plan, text) for text in plan.view.inside(each, cst.SimpleString))
        for each in around.body.body
    )


def is_of_new_process(plan: Plan, target: cst.Subscript) -> bool:
    """Return whether this is ``env["CUDA_VISIBLE_DEVICES"] = …`` for some other environment than this process's."""
    names = [each for each in plan.view.inside(target, cst.SimpleString) if sets_visible_devices(plan, each)]
    return bool(names) and not (dotted(target.value) or "").endswith("environ")


def reads_visible(view: SourceView, region: cst.CSTNode) -> bool:
    """Return whether code reads CUDA_VISIBLE_DEVICES where nothing has asked whether it is set, or catches its absence."""
    for read in view.inside(region, cst.Subscript, cst.Call) if _VARIABLE in view.source else ():
        around = view.parent(read)
        is_used = isinstance(around, cst.Attribute) or isinstance(read, cst.Subscript)  # get() alone may give None
        if not _READ.fullmatch(view.code(read)) or not is_used or isinstance(around, cst.AssignTarget | cst.Del):
            continue
        if not any(_guards(view, each, read) for each in view.ancestors(read)):
            return True
    return False


def _guards(view: SourceView, around: cst.CSTNode, read: cst.CSTNode) -> bool:
    """Return whether what is around a read lets it run only if the variable is set."""
    if isinstance(around, cst.Try) and view.is_within(read, around.body):
        caught = _OF_KEY if isinstance(read, cst.Subscript) else _OF_NONE
        catching = [each for each in around.handlers if each.type is None or caught.search(view.code(each.type))]
        return bool(catching) and not any(leaves(view, each.body) for each in catching)
    if isinstance(around, cst.BooleanOperation) and view.is_within(read, around.right):
        return _tells(view, around.left, is_set=isinstance(around.operator, cst.And))
    if not isinstance(around, cst.If | cst.IfExp | cst.While):
        return False
    if view.is_within(read, around.body):
        return _tells(view, around.test, is_set=True)
    other = around.orelse
    return other is not None and view.is_within(read, other) and _tells(view, around.test, is_set=False)


def _tells(view: SourceView, test: cst.BaseExpression, *, is_set: bool) -> bool:
    """Return whether the variable is set wherever a test is true; without ``is_set``, wherever it is false."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        return _tells(view, test.expression, is_set=not is_set)
    if isinstance(test, cst.BooleanOperation):
        is_enough = any if isinstance(test.operator, cst.And) == is_set else all
        return is_enough(_tells(view, each, is_set=is_set) for each in (test.left, test.right))
    if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
        target = test.comparisons[0]
        if text_of(test.left) == _VARIABLE and "environ" in view.code(target.comparator):
            return isinstance(target.operator, cst.In if is_set else cst.NotIn)
        is_none = view.code(target.comparator).strip() == "None" and _gets(view, test.left)
        return is_none and isinstance(target.operator, cst.IsNot | cst.NotEqual if is_set else cst.Is | cst.Equal)
    return is_set and _gets(view, test)


def _gets(view: SourceView, value: cst.BaseExpression) -> bool:
    """Return whether a value is the variable's, or None; itself, or by a name."""
    values = view.values_of(value) if isinstance(value, cst.Name) else [value]
    return bool(values) and all(_READ.fullmatch(view.code(each).strip()) for each in values)
