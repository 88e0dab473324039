"""Reports devices that a program chooses, and then refuses or does not move to, as it tells only the CPU and CUDA apart."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import libcst as cst

from .regions import leaves
from .site import SiteOutcome
from .source_view import dotted, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .plan import Plan, SiteDecision
    from .source_view import SourceView

__all__ = ["keep_expected", "keep_moved", "keep_refused", "keep_unlisted"]

_OTHERS = ("xpu", "npu", "hpu", "mlu", "musa")


class _Compared(NamedTuple):
    """A comparison of a name with the type of a device."""

    node: cst.BaseExpression
    name: str
    kind: str
    is_equal: bool


def keep_refused(plan: Plan) -> None:
    """Report the devices that are chosen where others than the CPU and CUDA end with ``raise``.

    ``if kind == "cuda": return …``, ``if kind == "cpu": return …``, ``raise RuntimeError(f"unknown device {kind}")``.
    If the comparison with CUDA is rewritten, or others have branches of their own, the accelerator is not refused.
    """
    for raised in plan.view.of(cst.Raise):
        line = plan.view.parent(raised)
        compared = list(_compared_before(plan.view, line)) if isinstance(line, cst.SimpleStatementLine) else []
        for one in compared if not any(each.kind in _OTHERS for each in compared) else ():
            decision = plan.decisions.get(one.node)
            stays = decision is None or decision.outcome is not SiteOutcome.REWRITTEN
            if one.kind == "cuda" and stays and any(each.kind == "cpu" and each.name == one.name for each in compared):
                number = plan.view.position(raised)[0]
                _report(plan, one, f"line {number} refuses other devices than these; decide on both together")


def keep_moved(plan: Plan) -> None:
    """Report the choice of a device that only a reported comparison moves something to: ``if "cuda" in device: x.to(device)``."""
    for kept in list(plan.decisions.values()):
        test = plan.view.parent(kept.node)
        if kept.outcome is SiteOutcome.REPORTED and isinstance(test, cst.If) and test.test is kept.node:
            for one in _of_test(plan.view, test.test):
                if one.is_equal and re.search(rf"\.to\({re.escape(one.name)}[,)]", plan.view.code(test.body)):
                    line = plan.view.position(test)[0]
                    _report(plan, one, f"line {line} moves something there for CUDA only; decide on both together")


def keep_unlisted(plan: Plan, compared: cst.Comparison, line: int) -> None:
    """Undo rewrites of what a reported list of allowed devices would refuse: defaults and arguments of that name."""
    name = (dotted(compared.left) or "").rpartition(".")[2]
    _keep_named(plan, name, f"the list in line {line} refuses other devices; decide on both together")


def keep_expected(plan: Plan, compared: cst.BaseExpression, line: int) -> None:
    """Undo rewrites of what a reported assertion expects: ``Row(device="cuda")`` before ``assert row["device"] == "cuda"``."""
    asserted = plan.view.parent(compared)
    if not isinstance(asserted, cst.Assert) or not isinstance(compared, cst.Comparison):
        return
    left = compared.left
    key = left.slice[0].slice if isinstance(left, cst.Subscript) else None
    name = text_of(key.value) if isinstance(key, cst.Index) else (dotted(left) or "").rpartition(".")[2]
    if name:
        _keep_named(plan, name, f"the assertion in line {line} expects CUDA; decide on both together")


def _keep_named(plan: Plan, name: str, reason: str) -> None:
    """Report the devices that are rewritten as defaults and arguments of a name."""
    for one in list(plan.decisions.values()):
        around = plan.view.parent(one.node)
        is_default = isinstance(around, cst.Param) and around.name.value == name
        is_given = isinstance(around, cst.Arg) and around.keyword is not None and around.keyword.value == name
        if one.outcome is SiteOutcome.REWRITTEN and one.rule == "device-name" and (is_default or is_given):
            plan.reconsider(one.node, reason)


def _report(plan: Plan, compared: _Compared, reason: str) -> None:
    for one in list(plan.decisions.values()):
        is_device = one.rule in ("device-choice", "device-name") and not isinstance(one.node, cst.Comparison)
        if is_device and one.outcome is SiteOutcome.REWRITTEN and _is_same(plan.view, one, compared):
            plan.reconsider(one.node, reason)


def _is_same(view: SourceView, one: SiteDecision, compared: _Compared) -> bool:
    """Return whether a device is what is compared: by its name, in the same function or class, or in the branch for CUDA."""
    test = view.parent(compared.node)
    if isinstance(test, cst.If) and view.is_within(one.node, test.body):
        return True
    named = _device_of(view, compared.node, compared.name)
    owners = [each for each in view.ancestors(one.node) if isinstance(each, cst.Assign | cst.Param)]
    targets = [dotted(each.name) for each in owners if isinstance(each, cst.Param)]
    targets += [dotted(target.target) for each in owners if isinstance(each, cst.Assign) for target in each.targets]
    is_near = view.function_around(one.node) is view.function_around(compared.node)
    is_own = view.class_around(one.node) is view.class_around(compared.node)
    return any(each in named and (is_near or (is_own and "." in each)) for each in targets if each is not None)


def _device_of(view: SourceView, node: cst.BaseExpression, name: str) -> set[str]:
    """Return the name that a comparison reads, and the name of the device whose type that holds."""
    read = [each for each in view.inside(node, cst.Name, cst.Attribute) if dotted(each) == name]
    return {name, *(_root(view, value) for each in read for value in view.values_of(each))}


def _compared_before(view: SourceView, line: cst.SimpleStatementLine) -> Iterator[_Compared]:
    """Yield the comparisons that a ``raise`` is behind: of the ``if`` it ends, and of those before it that leave the block."""
    inner: cst.CSTNode = line
    block = view.parent(line)
    test = view.parent(block) if block is not None else None
    if isinstance(test, cst.If) and test.body is block:  # elif device != "cpu": raise
        refused = [each for each in _of_test(view, test.test) if not each.is_equal]
        if not refused:
            return
        yield from refused
        inner = test
    elif isinstance(test, cst.Else):
        inner = test
    while isinstance(around := view.parent(inner), cst.If) and around.orelse is inner:
        yield from (each for each in _of_test(view, around.test) if each.is_equal)
        inner = around
    block = view.parent(inner)
    body: list[cst.CSTNode] = list(block.body) if isinstance(block, cst.IndentedBlock | cst.Module) else []
    for before in body[: body.index(inner)] if inner in body else ():
        while isinstance(before, cst.If) and leaves(view, before.body):
            yield from (each for each in _of_test(view, before.test) if each.is_equal)
            before = before.orelse or line  # noqa: PLW2901  # the next test of the chain


def _of_test(view: SourceView, test: cst.BaseExpression) -> Iterator[_Compared]:
    """Yield what a test compares: ``device.type == "cuda"``, ``device.startswith("cuda")``."""
    if isinstance(test, cst.Call) and isinstance(test.func, cst.Attribute) and test.func.attr.value == "startswith":
        kind = text_of(test.args[0].value) if test.args else None
        yield from _named(view, test, test.func.value, kind, is_equal=True)
    elif isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
        target = test.comparisons[0]
        if isinstance(target.operator, cst.Equal | cst.NotEqual | cst.In):
            is_equal = not isinstance(target.operator, cst.NotEqual)
            yield from _named(view, test, target.comparator, text_of(test.left), is_equal=is_equal)
            if not isinstance(target.operator, cst.In):  # `device in "cuda"` is no comparison of types
                yield from _named(view, test, test.left, text_of(target.comparator), is_equal=is_equal)


def _named(
    view: SourceView, node: cst.BaseExpression, name: cst.BaseExpression, kind: str | None, *, is_equal: bool
) -> Iterator[_Compared]:
    if kind in ("cpu", "cuda", *_OTHERS) and (root := _root(view, name)):
        yield _Compared(node, root, kind, is_equal)


def _root(view: SourceView, node: cst.BaseExpression) -> str:
    """Return the name that holds a device, of which a comparison reads the type: ``device.type``, ``device.split(":")[0]``."""
    while True:
        if isinstance(node, cst.Subscript):
            node = node.value
        elif isinstance(node, cst.Call) and isinstance(node.func, cst.Attribute) and node.func.attr.value == "split":
            node = node.func.value
        elif isinstance(node, cst.Call) and dotted(node.func) in ("str", "torch.device") and len(node.args) == 1:
            node = node.args[0].value
        elif isinstance(node, cst.Attribute) and node.attr.value == "type":
            node = node.value
        else:
            return dotted(node) or ""
