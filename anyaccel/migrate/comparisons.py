"""The rule device-name, for checks: ``device.type == "cuda"``, ``"cuda" in device``, ``device.startswith("cuda")``.

``device_name()`` is ``"cuda"`` exactly where the accelerator is CUDA, so on CUDA the new comparison has the old result.
On another device it is true where the old one was false: :mod:`.consequences` undoes the rewrite if that would matter.
"""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

import libcst as cst

from .device_ids import is_none_elsewhere
from .device_text import ACCELERATORS, WRITTEN, is_device_literal, own_text
from .exact import compared_exactly
from .kinds import DEVICE_NAME, Kind, kind_of
from .listed_devices import is_validation, with_one_more
from .other_libraries import is_for_cpu_and_cuda
from .regions import regions_of
from .source_view import dotted, text_of
from .targets import parsed
from .visible_devices import only_sets_visible_devices

if TYPE_CHECKING:
    from .plan import Build, Plan
    from .source_view import SourceView

__all__ = ["LISTED", "decide", "decide_types"]

RULE = "device-name"
_CUDA_TEXT = re.compile(r"^cuda(:\d*)?$")
_OF_SOMETHING_ELSE = re.compile(r"^(impl|implementation|backend|kernel|mode|provider|engine|lang|language)$")
_PROVIDER = re.compile(r"^(?!.*device)(.*[_.])?(provider|onnx)(_|$)", re.IGNORECASE)
_OF_OTHER_MACHINES = {"mtia", "tpu"}
_TORCHS = re.compile(r"^(auto|default|none|gpu|rocm|cpu|cuda|mps|vulkan|meta|cuda:\d*|\d*)$", re.IGNORECASE)
_IDS = ("device_ids", "output_device")
_STRINGS_OWN = ("lower", "strip", "split", "casefold")
_REASON = "compares with CUDA; decide whether the code that depends on it is for CUDA or for any accelerator"
LISTED = "lists the types of devices that are allowed; add the types that also work"
_ONE_DEVICE = "compares with one numbered CUDA device; decide what to do on a device without numbers"
_REQUESTED = re.compile(r"(slurm_)?gpus_per_(node|task)$")


def decide_types(plan: Plan) -> None:
    """Rewrite ``"cuda" if "cuda" in device else "cpu"`` and similar expressions to ``torch.device(device).type``.

    Both are ``"cuda"`` for every name of a CUDA device, and ``"cpu"`` for the CPU. For another accelerator the old
    expression is ``"cpu"``, because it has no other branch.
    """
    for node in plan.view.of(cst.IfExp):
        pair = (text_of(node.body), text_of(node.orelse))
        device = _device_asked(node.test) if pair == ("cuda", "cpu") else None
        if device is None or not plan.is_open(node) or not _is_device(plan.view, device):
            continue
        written = plan.view.code(device)
        is_type = isinstance(node.test, cst.Comparison) and isinstance(node.test.left, cst.Attribute)
        if _is_for_provider(plan.view, node):
            plan.leave(node, RULE, "chooses another library's provider, whose names are not those of torch's devices")
            plan.claim(*node.children)
            continue
        plan.needs_torch |= not is_type
        plan.rewrite(
            node, RULE, _always(f"{written}.type" if is_type else f"torch.device({written}).type"), tuple(node.children)
        )


def _is_for_provider(view: SourceView, choice: cst.IfExp) -> bool:
    """Return whether a choice is returned by a function for a provider, or gets such a name."""
    around = view.parent(choice)
    names = [dotted(each.target) for each in around.targets] if isinstance(around, cst.Assign) else []
    if isinstance(around, cst.Return):
        function = view.function_around(choice)
        names = [function.name.value] if isinstance(function, cst.FunctionDef) else []
    elif isinstance(around, cst.Arg) and around.keyword is not None:
        names = [around.keyword.value]
    elif isinstance(around, cst.DictElement):
        names = [text_of(around.key)]
    return any(_PROVIDER.search(name or "") for name in names)


def _always(code: str) -> Build:
    """Return a builder of fixed code that ignores the old node."""
    return lambda _: parsed(code)


def _device_asked(test: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return ``device`` from a test that is true for ``"cuda"`` and ``"cuda:1"`` and for no other device; else None."""
    if isinstance(test, cst.Call) and isinstance(test.func, cst.Attribute) and test.func.attr.value == "startswith":
        is_cuda = len(test.args) == 1 and text_of(test.args[0].value) == "cuda"
        return _without_str(test.func.value) if is_cuda else None
    if not isinstance(test, cst.Comparison) or len(test.comparisons) != 1:
        return None
    operator, right = test.comparisons[0].operator, test.comparisons[0].comparator
    if isinstance(operator, cst.In) and text_of(test.left) == "cuda":
        return _without_str(right)
    is_type = isinstance(test.left, cst.Attribute) and test.left.attr.value == "type"
    if isinstance(operator, cst.Equal) and text_of(right) == "cuda" and is_type:
        assert isinstance(test.left, cst.Attribute)  # noqa: S101  # checked by is_type
        return test.left.value
    return None


def _without_str(node: cst.BaseExpression) -> cst.BaseExpression:
    is_str = isinstance(node, cst.Call) and dotted(node.func) == "str" and len(node.args) == 1
    return node.args[0].value if is_str and isinstance(node, cst.Call) else node


def decide(plan: Plan) -> None:
    """Rewrite comparisons with ``"cuda"``, for now, and report those with a numbered device such as ``"cuda:1"``."""
    for node in plan.view.of(cst.Comparison):
        sides = [node.left, *(each.comparator for each in node.comparisons)]
        named = [number for number, side in enumerate(sides) if _names_cuda(side)]
        if plan.is_open(node) and named:
            others = [side for number, side in enumerate(sides) if number not in named]
            _decide_one(plan, node, [sides[number] for number in named], others)
    for node in plan.view.of(cst.Call):
        is_prefix = isinstance(node.func, cst.Attribute) and node.func.attr.value == "startswith"
        if is_prefix and node.args and plan.is_open(node) and _names_cuda(node.args[0].value):
            assert isinstance(node.func, cst.Attribute)  # noqa: S101  # checked by is_prefix
            _decide_one(plan, node, [node.args[0].value], [node.func.value])


def _decide_one(
    plan: Plan, node: cst.BaseExpression, named: list[cst.BaseExpression], others: list[cst.BaseExpression]
) -> None:
    name = plan.device_name()
    texts = {text_of(each) or "" for side in named for each in _texts(side)}
    is_number = any(":" in each for each in texts)
    is_of_device = any(isinstance(each, cst.Attribute) and each.attr.value == "type" for each in others)
    if any(WRITTEN.search(plan.view.code(each)) for each in (*others, *named)):
        plan.leave(node, RULE, "compares the accelerator's name with CUDA's, as the documentation advises")
    elif texts & _OF_OTHER_MACHINES and not is_of_device:
        plan.leave(node, RULE, "a text that may name the devices of some other machine")
    elif texts & ACCELERATORS:
        plan.leave(node, RULE, "checks for one of several accelerators by name, which is correct on every machine")
    elif any(_OF_SOMETHING_ELSE.match((dotted(each) or "").rpartition(".")[2].lower()) for each in others):
        plan.leave(node, RULE, "compares the name of an implementation, not of a device")
    elif not is_of_device and is_for_cpu_and_cuda(plan.view):
        _leave_with_branch(plan, node, "for a library that has the CPU and CUDA only, by these names")
    elif _is_of_own_to(plan, node):
        plan.leave(node, RULE, "part of a class's own to(), which takes nothing but CUDA")
    elif _is_request(plan, node):
        plan.report(node, RULE, "asks a scheduler for GPUs of other machines; decide what it asks for other devices")
    elif only_sets_visible_devices(plan, node):
        plan.leave(node, RULE, "sets CUDA's own variable; other devices do not read it")
    elif isinstance(around := plan.view.parent(node), cst.IfExp) and _is_of_ids(plan, around):
        plan.leave(node, RULE, "chooses DDP's device arguments, which are already None on other devices")
    elif "cpu" in texts and name is not None and is_validation(plan.view, node) and not _has_other_mps(plan, node):
        plan.rewrite(node, RULE, lambda updated: _with_one_more(updated, name))
    elif "cpu" in texts or _is_listed(plan, node):
        plan.report(node, RULE, LISTED)
    elif is_number or name is None:
        plan.report(node, RULE, _ONE_DEVICE if is_number else plan.without("device_name"))
    elif not all(_is_device(plan.view, each) for each in others or named) or not all(map(_TORCHS.match, texts)):
        places = frozenset(named)
        build = compared_exactly(plan, node, name, lambda updated: _with_name(node, updated, places, name))
        plan.report(node, RULE, _REASON, "device-comparison", build)
    else:
        places = frozenset(named)
        plan.rewrite(node, RULE, lambda updated: _with_name(node, updated, places, name))
        plan.questions.add(node)
    plan.claim(*named)


def _leave_with_branch(plan: Plan, node: cst.BaseExpression, reason: str) -> None:
    """Leave a comparison, and the names of CUDA's devices in its branch: the code stays as it is, right on every machine."""
    plan.leave(node, RULE, reason)
    for block in regions_of(plan.view, node).blocks:
        for each in plan.view.inside(block, cst.SimpleString, cst.FormattedString):
            if is_device_literal(each):
                plan.leave(each, RULE, reason)
                plan.claim(*own_text(each))


def _is_of_own_to(plan: Plan, node: cst.BaseExpression) -> bool:
    """Return whether a comparison is all that ``def to(self, device): assert device == "cuda"`` asserts."""
    around = plan.view.parent(node)
    function = plan.view.function_around(node)
    is_own = isinstance(function, cst.FunctionDef) and function.name.value == "to"
    return isinstance(around, cst.Assert) and is_own and plan.view.class_around(node) is not None


def _is_request(plan: Plan, node: cst.BaseExpression) -> bool:
    """Return whether a comparison is part of ``Requirements(gpus_per_node=…, …)``, which a scheduler gets."""
    around = itertools.takewhile(lambda each: not isinstance(each, cst.BaseStatement), plan.view.ancestors(node))
    calls = (each for each in around if isinstance(each, cst.Call))
    return any(arg.keyword is not None and _REQUESTED.match(arg.keyword.value) for call in calls for arg in call.args)


def _is_listed(plan: Plan, node: cst.BaseExpression) -> bool:
    """Return whether ``device == "cpu" or device == "cuda"`` lists what is allowed, like ``device in ("cpu", "cuda")``."""
    either = plan.view.parent(node)
    if not isinstance(either, cst.BooleanOperation) or not isinstance(either.operator, cst.Or):
        return False
    other = either.right if either.left is node else either.left
    if not isinstance(node, cst.Comparison) or not isinstance(other, cst.Comparison):
        return False
    is_same = dotted(node.left) is not None and dotted(node.left) == dotted(other.left)
    target = other.comparisons[0]
    return is_same and isinstance(target.operator, cst.Equal) and text_of(target.comparator) == "cpu"


def _has_other_mps(plan: Plan, node: cst.BaseExpression) -> bool:
    """Return whether a list of devices names Apple's, and its function does elsewhere: a last ``else:`` may be for them.

    An earlier run may have replaced that name.
    """
    around = next(each for each in plan.view.ancestors(node) if isinstance(each, cst.FunctionDef | cst.Module))
    named = [each for each in plan.view.inside(around, cst.SimpleString) if text_of(each) == "mps"]
    inside = [each for each in named if plan.view.is_within(each, node)]
    return bool(inside) and (len(named) > len(inside) or WRITTEN.search(plan.view.code(around)) is not None)


def _is_of_ids(plan: Plan, choice: cst.IfExp) -> bool:
    argument = plan.view.parent(choice)
    while isinstance(argument, cst.IfExp):
        argument = plan.view.parent(argument)
    is_ids = isinstance(argument, cst.Arg) and argument.keyword is not None and argument.keyword.value in _IDS
    return is_ids and is_none_elsewhere(choice)


def _names_cuda(node: cst.BaseExpression) -> bool:
    return any(_CUDA_TEXT.match(text_of(each) or "") for each in _texts(node))


def _texts(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """Return the strings in an operand: itself, the elements of a collection, or the argument of ``torch.device``."""
    if isinstance(node, cst.List | cst.Tuple | cst.Set):
        return [text for element in node.elements for text in _texts(element.value)]
    if isinstance(node, cst.Call) and (dotted(node.func) or "").endswith(".device") and node.args:
        return _texts(node.args[0].value)
    if isinstance(node, cst.Attribute) and node.attr.value == "type" and isinstance(node.value, cst.Call):
        return _texts(node.value)
    return [node] if text_of(node) is not None else []


def _is_device(view: SourceView, node: cst.BaseExpression) -> bool:
    """Return whether an expression is a device, its name, or its type, judged by its own name or assigned values."""
    if isinstance(node, cst.Attribute) and node.attr.value == "type":
        return True  # only torch.device has an attribute ``type`` that is a device name
    if isinstance(node, cst.Attribute) and node.attr.value == "device":
        return True
    if isinstance(node, cst.Subscript):
        return _is_device(view, node.value)
    if isinstance(node, cst.Call):
        if dotted(node.func) in ("str", "torch.device") and len(node.args) == 1:
            return _is_device(view, node.args[0].value) or dotted(node.func) == "torch.device"
        is_text = isinstance(node.func, cst.Attribute) and node.func.attr.value in _STRINGS_OWN
        return is_text and isinstance(node.func, cst.Attribute) and _is_device(view, node.func.value)
    last = (dotted(node) or "").rpartition(".")[2].lower()
    return DEVICE_NAME.search(last) is not None or (bool(last) and kind_of(view, node) is Kind.DEVICE)


def _with_name(
    original: cst.BaseExpression, updated: cst.CSTNode, named: frozenset[cst.BaseExpression], name: cst.BaseExpression
) -> cst.CSTNode:
    """Return a comparison with CUDA's name replaced by this device's name in the operands ``named``."""
    if isinstance(updated, cst.Call) and isinstance(original, cst.Call):
        return updated.with_changes(args=[_named(updated.args[0], name), *updated.args[1:]])
    assert isinstance(updated, cst.Comparison)  # noqa: S101  # decide() passes no other type
    assert isinstance(original, cst.Comparison)  # noqa: S101  # as above
    targets = [
        new.with_changes(comparator=_named(new.comparator, name)) if old.comparator in named else new
        for old, new in zip(original.comparisons, updated.comparisons, strict=True)
    ]
    left = _named(updated.left, name) if original.left in named else updated.left
    return updated.with_changes(left=left, comparisons=targets)


def _with_one_more(updated: Any, name: cst.BaseExpression) -> cst.Comparison:
    """Return a comparison with a list of allowed devices to which the accelerator's name is added.

    Proof: on CUDA the name is in the list already, and so it is on a CPU. Other accelerators were refused.
    """
    target = updated.comparisons[0]
    listed = with_one_more(target.comparator, name)
    return updated.with_changes(comparisons=[target.with_changes(comparator=listed)])  # type: ignore[no-any-return]


def _named(side: Any, name: cst.BaseExpression) -> Any:
    """Return an operand of a comparison with each ``"cuda"`` in it replaced by a device name."""
    if text_of(side) == "cuda":
        return name.deep_clone()
    if isinstance(side, cst.List | cst.Tuple | cst.Set):
        return side.with_changes(elements=[each.with_changes(value=_named(each.value, name)) for each in side.elements])
    if isinstance(side, cst.Attribute):
        return side.with_changes(value=_named(side.value, name))
    if isinstance(side, cst.Call):
        return side.with_changes(args=[_named(side.args[0], name), *side.args[1:]])
    return side.with_changes(value=_named(side.value, name)) if isinstance(side, cst.Arg) else side
