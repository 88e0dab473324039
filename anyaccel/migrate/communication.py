"""The rule comm-backend: the backend of ``torch.distributed``."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .device_ids import RULE as IDS_RULE
from .guarded_places import is_guarded
from .questions import OF_WORD
from .regions import regions_of
from .source_view import dotted, text_of
from .stored_answers import regions_of_name
from .targets import expression

if TYPE_CHECKING:
    from .plan import Plan
    from .source_view import SourceView

__all__ = ["decide", "is_of_type"]

RULE = "comm-backend"
_TAKES_BACKEND = {"init_process_group": 0, "new_group": 2, "new_subgroups": None, "init_device_mesh": None}
_BACKEND = re.compile(r"^((dist(ributed)?|ddp|torch_distributed|process_group)_)?backend$")
_FIELD = re.compile(r"^(dist(ributed)?|ddp|torch_distributed|process_group)_backend$")
_SETUP = re.compile(r"init|dist|launch|set_?up|process_group", re.IGNORECASE)
_GROUP_OPTIONS = re.compile(
    r"^(dist|distributed|ddp|process_group|init_process_group)_?(cfg|config|params|kwargs|args|options)$"
)
_BY_DEVICE = "cpu:gloo,cuda:nccl"
_OF_RAY = "this process may run on a machine without the device; choose the backend in the process that uses it"
_OF_BARRIER = "checks for NCCL, because only NCCL's barrier takes device_ids"


def decide(plan: Plan) -> None:
    """Decide on every ``"nccl"``."""
    for node in plan.view.of(cst.SimpleString):
        value = text_of(node) or ""
        if "nccl" in value.lower() and plan.is_open(node) and not isinstance(plan.view.parent(node), cst.Expr):
            _decide_backend(plan, node, value)
    for node, full_name in plan.view.imported.items():
        if full_name.startswith("torch.distributed.") and full_name.endswith(".Backend.NCCL") and plan.is_open(node):
            _decide_backend(plan, node, "nccl")


def _decide_backend(plan: Plan, node: cst.CSTNode, value: str) -> None:
    if value == _BY_DEVICE and is_guarded(plan, node) and plan.function("communication_backend_name"):
        _decide_by_device(plan, node)
        return
    if value != "nccl":
        if value != "NCCL" and "cuda:nccl" not in value:
            plan.leave(node, RULE, OF_WORD)
        else:
            plan.report(
                node, RULE, "names NCCL; use get_accelerator().communication_backend_name() if it is a group's backend"
            )
        return
    function = plan.function("communication_backend_name")
    if is_of_type(plan.view, node):
        plan.leave(node, RULE, "a type that lists backends")
        return
    if _is_in_table(plan.view, node):
        plan.leave(node, RULE, "a table of backends by device, of which this is CUDA's")
        return
    if isinstance(around := plan.view.parent(node), cst.Param) and _is_unread(plan.view, around):
        plan.leave(node, RULE, "the default of a parameter that nothing reads")
        return
    comparison = _comparison_with_group(plan.view, node)
    if comparison is not None and function is not None:
        _decide_comparison(plan, node, comparison, function)
        return
    reason = _OF_RAY if _is_of_ray(plan.view, node) else _why_not(plan.view, node)
    if reason or function is None:
        plan.report(node, RULE, reason or plan.without("communication_backend_name"))
    else:
        plan.rewrite(node, RULE, lambda _: expression(f"{function}()"))


def _decide_by_device(plan: Plan, node: cst.CSTNode) -> None:
    """Name the accelerator, and its backend, in ``"cpu:gloo,cuda:nccl"``, which only a machine with CUDA came to before.

    Proof: on CUDA the new text is the old one. A CPU does not come here, because the question is rewritten so that it
    answers no, or stays.
    """
    backend = plan.function("communication_backend_name")
    name = plan.view.module.code_for_node(plan.named())
    plan.rewrite(node, RULE, lambda _: expression(f'f"cpu:gloo,{{{name}}}:{{{backend}()}}"'))


def _is_unread(view: SourceView, parameter: cst.Param) -> bool:
    """Return whether nothing reads a parameter, except to pass it on to a class of this file that does not read it either."""
    uses = view.uses(parameter.name)
    return uses is not None and all(_is_given_to_unread(view, use) for use in uses)


def _is_given_to_unread(view: SourceView, use: cst.CSTNode) -> bool:
    argument = view.parent(use)
    keyword = argument.keyword if isinstance(argument, cst.Arg) else None
    call = view.parent(argument) if argument is not None else None
    name = dotted(call.func) if isinstance(call, cst.Call) else None
    owner = next((each for each in view.of(cst.ClassDef) if each.name.value == name), None)
    if owner is None or keyword is None:
        return False
    made = [each for each in view.inside(owner, cst.FunctionDef) if each.name.value == "__init__"]
    given = [each for each in made[0].params.params if each.name.value == keyword.value] if made else []
    return bool(given) and view.uses(given[0].name) == []


def _is_of_ray(view: SourceView, node: cst.CSTNode) -> bool:
    """Return whether a backend is the default of an option, in a program that starts its processes by Ray."""
    is_default = isinstance(around := view.parent(node), cst.Arg) and around.keyword is not None
    is_default = is_default and isinstance(around, cst.Arg) and dotted(around.keyword or node) == "default"
    return is_default and any(name.partition(".")[0] == "ray" for name in view.imported.values())


def is_of_type(view: SourceView, node: cst.CSTNode) -> bool:
    """Return whether a string is inside ``Literal[...]``."""
    index = view.parent(node)
    whole = view.parent(view.parent(index) or node) if isinstance(index, cst.Index) else None
    return isinstance(whole, cst.Subscript) and view.code(whole.value).rpartition(".")[2] == "Literal"


def _comparison_with_group(view: SourceView, node: cst.CSTNode) -> cst.Comparison | None:
    """Return the comparison of a string with ``torch.distributed.get_backend()`` or a name for its result, if any."""
    around = view.parent(node)
    comparison = view.parent(around) if isinstance(around, cst.ComparisonTarget) else around
    if not isinstance(comparison, cst.Comparison) or len(comparison.comparisons) != 1:
        return None
    target = comparison.comparisons[0]
    other = target.comparator if comparison.left is node else comparison.left
    told = [other, *view.values_of(other)]
    is_group = any(isinstance(each, cst.Call) and view.name(each.func).endswith(".get_backend") for each in told)
    is_all = all(isinstance(each, cst.Call) for each in told[1:])
    return comparison if is_group and is_all and isinstance(target.operator, cst.Equal | cst.NotEqual) else None


def _decide_comparison(plan: Plan, node: cst.CSTNode, comparison: cst.Comparison, function: str) -> None:
    """Replace NCCL with this device's backend, for now; :mod:`.consequences` checks what depends on the comparison.

    On CUDA both are NCCL. On other devices the group uses the device's own backend, so the comparison is true there as
    well. ``device_ids`` of ``barrier`` is an option of NCCL only: a comparison that guards it is correct as it is.
    """
    found = regions_of(plan.view, comparison)
    for region in (each for one in (found, *regions_of_name(plan.view, found)) for each in one.all):
        for call in plan.view.inside(region, cst.Call):
            given = [each for each in call.args if each.keyword and each.keyword.value == "device_ids"]
            if given and (dotted(call.func) or "").endswith("barrier"):
                plan.leave(node, RULE, _OF_BARRIER)
                plan.leave(given[0], IDS_RULE, _OF_BARRIER)
    if plan.is_open(node):
        plan.rewrite(node, RULE, lambda _: expression(f"{function}()"))
        plan.questions.add(comparison)


def _is_field(view: SourceView, node: cst.CSTNode) -> bool:
    """Return whether a string is the default of a class's ``distributed_backend``, also in ``field(default=…)``."""
    around = view.parent(node)
    if isinstance(around, cst.Arg) and around.keyword is not None and around.keyword.value == "default":
        call = view.parent(around)
        is_made = isinstance(call, cst.Call) and (dotted(call.func) or "").rpartition(".")[2] == "field"
        around = view.parent(call) if is_made and call is not None else None
    if not isinstance(around, cst.AnnAssign) or "Literal" in view.code(around.annotation.annotation):
        return False
    owner = next((each for each in view.ancestors(around) if isinstance(each, cst.FunctionDef | cst.ClassDef)), None)
    return isinstance(owner, cst.ClassDef) and _FIELD.match(dotted(around.target) or "") is not None


def _is_default(view: SourceView, node: cst.CSTNode) -> bool:
    """Return whether a string is the default of a ``backend`` parameter used only as a process group's backend."""
    parameter = view.parent(node)
    if (
        not isinstance(parameter, cst.Param)
        or parameter.default is not node
        or not _BACKEND.match(parameter.name.value)
    ):
        return False
    uses = view.uses(parameter.name) or []
    given = [use for use in uses if not isinstance(view.parent(use), cst.Comparison | cst.ComparisonTarget)]
    return bool(given) and all(isinstance(view.parent(use), cst.Arg) and not _why_not(view, use) for use in given)


def _why_not(view: SourceView, node: cst.CSTNode) -> str:
    """Return why a place may need the string "nccl" and not this device's backend; empty if it needs the backend."""
    if _is_field(view, node) or _is_default(view, node):
        return ""
    inner, around = node, view.parent(node)
    while isinstance(around, cst.IfExp | cst.BooleanOperation) and inner is not getattr(around, "test", None):
        inner, around = around, view.parent(around)
    if isinstance(around, cst.Arg):
        call = view.parent(around)
        if isinstance(call, cst.Call) and _is_read_of_backend(call, around):
            return _why_not(view, call)
        return _why_not_argument(view, around)
    if isinstance(around, cst.DictElement) and _is_option_of_group(view, around):
        return ""
    if isinstance(around, cst.ComparisonTarget | cst.Comparison):
        return "compared with NCCL; compare with communication_backend_name() if the code below also works for other backends"
    if isinstance(around, cst.Assign) and len(around.targets) == 1:
        target = around.targets[0].target
        is_field = isinstance(target, cst.Attribute) and _FIELD.match(target.attr.value.lower()) is not None
        if is_field or (isinstance(target, cst.Attribute) and _is_backend_of_group(view, target)):
            return ""
        uses = view.uses(target)
        if uses and all(isinstance(view.parent(use), cst.Arg) and not _why_not(view, use) for use in uses):
            return ""
    return "may be the backend of a process group; use get_accelerator().communication_backend_name() if it is"


def _is_read_of_backend(call: cst.Call, default: cst.Arg) -> bool:
    """Return whether a call is ``options.get("backend", default)``."""
    is_get = isinstance(call.func, cst.Attribute) and call.func.attr.value in ("get", "pop")
    is_second = len(call.args) == 2 and call.args[1] is default
    return is_get and is_second and _BACKEND.match(text_of(call.args[0].value) or "") is not None


def _is_option_of_group(view: SourceView, element: cst.DictElement) -> bool:
    """Return whether ``{"backend": …}`` is stored as ``process_group_kwargs``, or another name for a group's options."""
    table = view.parent(element)
    owner = view.parent(table) if table is not None else None
    name = dotted(owner.targets[0].target) if isinstance(owner, cst.Assign) and len(owner.targets) == 1 else None
    return text_of(element.key) == "backend" and _GROUP_OPTIONS.match((name or "").rpartition(".")[2]) is not None


def _is_in_table(view: SourceView, node: cst.CSTNode) -> bool:
    """Return whether a backend is CUDA's value in a table such as ``{"cuda": "nccl", "cpu": "gloo"}``."""
    element = view.parent(node)
    return isinstance(element, cst.DictElement) and element.value is node and text_of(element.key) in ("cuda", "gpu")


def _is_backend_of_group(view: SourceView, target: cst.Attribute) -> bool:
    """Return whether an attribute is passed to ``init_process_group`` as its backend."""
    for call in view.of(cst.Call):
        if (dotted(call.func) or "").endswith("init_process_group"):
            for place, argument in enumerate(call.args):
                is_backend = argument.keyword.value == "backend" if argument.keyword else place == 0
                if is_backend and dotted(argument.value) == dotted(target):
                    return True
    return False


def _why_not_argument(view: SourceView, argument: cst.Arg) -> str:
    call = view.parent(argument)
    if not isinstance(call, cst.Call):
        return "an argument of an unknown call; use get_accelerator().communication_backend_name() if it is a group's backend"
    called = (dotted(call.func) or "").rpartition(".")[2]
    keyword = argument.keyword.value if argument.keyword else None
    if called == "add_argument":
        options = {arg.keyword.value for arg in call.args if arg.keyword}
        names = [text_of(arg.value) or "" for arg in call.args if not arg.keyword]
        if keyword == "default" and "choices" not in options and any("backend" in name for name in names):
            return ""
        return "a command-line option; decide which backends users may choose"
    if called in _TAKES_BACKEND and (
        keyword == "backend" or (not keyword and call.args.index(argument) == _TAKES_BACKEND[called])
    ):
        return ""
    if keyword == "backend" and _SETUP.search(called):
        return ""
    is_first = not keyword and call.args[0] is argument
    if view.name(call.func) == "deepspeed.init_distributed" and (keyword == "dist_backend" or is_first):
        return ""
    if keyword == "backend" and called == "dict" and _is_of_group(view, call):
        return ""
    is_named = keyword is None and not any(each.star for each in call.args[: call.args.index(argument)])
    named = view.project.parameter(called, view.name(call.func), call.args.index(argument)) if is_named else ""
    if named and _BACKEND.match(named) and _SETUP.search(called) and isinstance(call.func, cst.Name):
        return ""
    return "an argument of an unknown function; use get_accelerator().communication_backend_name() if it is a group's backend"


def _is_of_group(view: SourceView, options: cst.Call) -> bool:
    """Return whether ``dict(backend=…)`` is passed as ``dist_cfg`` or another name for a process group's options."""
    around = view.parent(options)
    name = around.keyword.value if isinstance(around, cst.Arg) and around.keyword is not None else ""
    return _GROUP_OPTIONS.match(name) is not None
