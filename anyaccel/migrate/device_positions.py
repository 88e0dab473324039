"""Decides whether a string is a device name from its place in the code."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

import libcst as cst

from .amp_defaults import OF_AMP, only_enables_amp
from .device_options import choices_of, is_default_of_option, is_for_no_device, names_of_row
from .device_text import ACCELERATORS
from .kinds import DEVICE_NAME
from .listed_devices import OF_LIST, is_listed, is_refused
from .nodes import target_of
from .other_libraries import is_name_of_other_library, is_of_other_library, is_where_tensors_are, names_other_library
from .source_view import dotted, text_of
from .words import OF_WORD, is_word

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .source_view import SourceView

__all__ = ["KEYWORDS", "Position", "is_device_position", "is_location"]

KEYWORDS = frozenset(
    [
        "device", "map_location", "device_type", "torch_device", "device_map", "target_device", "execution_device", "device_name",
        "storage_device", "default_device",
    ]
)  # fmt: skip
_FIRST_ARGUMENT = frozenset(
    {
        "torch.device", "torch.autocast", "torch.amp.autocast", "torch.amp.autocast_mode.autocast", "torch.amp.GradScaler",
        "torch.Generator", "torch.set_default_device", "torch.get_autocast_dtype", "torch.is_autocast_enabled",
        "torch.get_device_module", "torch.amp.is_autocast_available", "torch.distributed.init_device_mesh",
        "torch.distributed.device_mesh.init_device_mesh", "torch.distributed.DeviceMesh",
        "torch.distributed.device_mesh.DeviceMesh", "torch.distributed.tensor.DeviceMesh",
    }
)  # fmt: skip
_OF_SEVERAL = "the option lists several accelerators, which the program may tell apart; choose its default"
_STORES = (cst.BaseSmallStatement, cst.NamedExpr, cst.Module)
_MAKES = (cst.AssignTarget, cst.AnnAssign, cst.NamedExpr)
_DEVICE_TYPES = {"auto", "cpu", "cuda", "mps", *ACCELERATORS}
_READS_NAMES = re.compile(r"\b(globals|locals|vars|exec|eval)\s*\(")
_SHOWS = re.compile(r"(^|\.)(print|info|debug|warning|warn|error|log|write)$|Error$")
_OF_OTHER = "a device of another library, which has its own device names"
_LOCATION = re.compile(r"(^|[._])map_loc(ation)?$")
_OF_DICTIONARY = "part of a dictionary; use get_accelerator().device_name() if its reader takes any device"
_ONE_OF_SEVERAL = "one of several accelerators that the program names; decide whether one question can replace them"
_LISTED = "goes to a function that lists the devices it takes; add the new ones there first"
_OF_CUDA = re.compile(r"cuda|gpu")
_OF_NO_DEVICE = "stands for the CPU, or for a machine without a device; decide what that is on other devices"
_UNKNOWN = "may be a device's name; use get_accelerator().device_name() if it is"


@dataclass(frozen=True)
class Position:
    """Whether a place takes a device; if that is not certain, ``reason`` is the reason to report it."""

    reason: str = ""

    @property
    def is_device(self) -> bool:
        return not self.reason


_YES = Position()


def is_device_position(view: SourceView, node: cst.CSTNode, seen: frozenset[str] = frozenset()) -> Position:
    """Return whether an expression is used as a device, and only as a device.

    Args:
        view: the module.
        node: the expression.
        seen: the names whose uses are already being checked; it prevents endless recursion.
    """
    inner, around = node, view.parent(node)
    while isinstance(around, cst.IfExp | cst.BooleanOperation):
        if isinstance(around, cst.IfExp) and inner is around.test:
            return Position(_UNKNOWN)
        if isinstance(around, cst.IfExp) and is_for_no_device(view, around, inner):
            return Position(_OF_NO_DEVICE)
        inner, around = around, view.parent(around)
    if inner is not node and is_where_tensors_are(view):
        return Position(_OF_OTHER)  # a choice for the graphs and for what is beside them
    if isinstance(around, cst.Arg):
        return _as_argument(view, around)
    if is_of_other_library(view, node) and not _goes_to_torch(view, around):
        return Position(_OF_OTHER)
    if isinstance(around, cst.Param) and around.default is inner:
        return _as_default(view, around)
    if isinstance(around, cst.Return):
        return _as_result(view, around)
    if isinstance(around, cst.Assign | cst.AnnAssign):
        return _as_value(view, around, seen)
    if (
        isinstance(around, cst.Element)
        and (target := target_of(around, *islice(view.ancestors(around), 2))) is not None
    ):
        is_of_class = isinstance(next(_owners(view, target), None), cst.ClassDef)
        return Position(_UNKNOWN) if is_of_class else _as_named(view, target, seen)
    if isinstance(around, cst.DictElement) and inner is around.value and is_location(view, view.parent(around)):
        return _YES  # its key is the device that a checkpoint was saved from, and stays
    if isinstance(around, cst.DictElement) and _is_setting(view, text_of(around.key)):
        return _YES
    if isinstance(around, cst.DictElement):
        is_option = inner is around.value and is_default_of_option(view, around)
        return _YES if is_option else Position(_OF_DICTIONARY)
    return Position(_UNKNOWN)


def _goes_to_torch(view: SourceView, assigned: cst.CSTNode | None) -> bool:
    """Return whether a value is only passed to ``x.to()`` and to torch's functions."""
    target = assigned.targets[0].target if isinstance(assigned, cst.Assign) and len(assigned.targets) == 1 else None
    uses = view.uses(target) if target is not None else None
    calls = [view.parent(view.parent(use) or use) for use in uses or ()]
    return bool(calls) and all(
        isinstance(call, cst.Call)
        and (view.name(call.func).startswith("torch.") or (dotted(call.func) or "").endswith(".to"))
        for call in calls
    )


def _as_default(view: SourceView, parameter: cst.Param) -> Position:
    if parameter.name.value not in KEYWORDS and not DEVICE_NAME.search(parameter.name.value):
        return Position(_UNKNOWN)
    if parameter.annotation is not None and _is_of_choices(view, parameter.annotation):
        return Position("the parameter's type lists the devices; add the new ones there first")
    uses = view.uses(parameter.name) or []
    if any(isinstance(view.parent(use), cst.Index) for use in uses):
        return Position("the parameter is used as a key; add an entry for other devices first")
    given = [each for each in map(view.parent, uses) if isinstance(each, cst.Arg)]
    if is_refused(view, parameter) or any(_as_argument(view, each).reason == _LISTED for each in given):
        return Position(OF_LIST)
    return Position(OF_AMP) if only_enables_amp(view, parameter) else _YES


def _is_of_choices(view: SourceView, annotation: cst.Annotation) -> bool:
    """Return whether an annotation is ``Literal[…]``, or a name that is assigned one in this file."""
    values = view.values_of(annotation.annotation)
    return any("Literal" in view.code(each) for each in (annotation.annotation, *values))


def is_location(view: SourceView, table: cst.CSTNode | None) -> bool:
    """Return whether a dictionary is a ``map_location``, as for ``torch.load``, directly or through a name."""
    owner = view.parent(table) if table is not None else None
    while isinstance(owner, cst.IfExp):
        owner = view.parent(owner)
    if isinstance(owner, cst.Arg):
        return owner.keyword is not None and owner.keyword.value == "map_location"
    if not isinstance(owner, cst.Assign) or len(owner.targets) != 1:
        return False
    uses = view.uses(owner.targets[0].target) or []
    is_goal = bool(uses) and all(is_location(view, use) for use in uses)
    return is_goal or _LOCATION.search(dotted(owner.targets[0].target) or "") is not None


def _is_setting(view: SourceView, key: str | None) -> bool:
    """Return whether a key names a device, in a module that imports no other library with devices of its own."""
    return (key or "").lstrip("_") in KEYWORDS and not any(map(names_other_library, view.imported.values()))


def _as_argument(view: SourceView, argument: cst.Arg) -> Position:
    call = view.parent(argument)
    if not isinstance(call, cst.Call) or argument.star:
        return Position(_UNKNOWN)
    full_name = view.name(call.func)
    called = full_name.rpartition(".")[2] or (dotted(call.func) or "").rpartition(".")[2]
    method = call.func.attr.value if isinstance(call.func, cst.Attribute) else called
    if names_other_library(full_name):
        return Position(_OF_OTHER)
    if called in view.project.lists_devices and not full_name.startswith("torch."):
        return Position(_LISTED)
    if argument.keyword is not None:
        is_for_other = any(is_name_of_other_library(each.value) for each in call.args if each is not argument)
        return Position(_OF_OTHER) if is_for_other else _as_keyword(view, call, method, argument.keyword.value)
    place = call.args.index(argument)
    is_first = full_name in _FIRST_ARGUMENT or full_name.startswith("torch.cuda.")
    if place == 0 and (is_first or method == "to" or _is_autocast_by_name(view, call)):
        return _YES
    if full_name == "torch.load" and place == 1:
        return _YES
    if method in ("get", "pop", "getattr", "setdefault") and place >= 1:
        stored = next(each for each in view.ancestors(call) if isinstance(each, _STORES))
        made = stored.targets if isinstance(stored, cst.Assign) else [stored]
        if any(is_listed(view, each.target) for each in made if isinstance(each, _MAKES)):
            return Position(OF_LIST)
        return _YES if DEVICE_NAME.search(text_of(call.args[place - 1].value) or "") else Position(_UNKNOWN)
    is_moved = place == 1 and full_name.startswith("accelerate.") and called == "send_to_device"
    return _YES if is_moved or _is_device_parameter(view, call, place) else Position(_UNKNOWN)


def _is_autocast_by_name(view: SourceView, call: cst.Call) -> bool:
    """Return whether the called name may refer to autocast: ``scope = autocast if amp else nullcontext``."""
    values = view.assigned.get(dotted(call.func) or "", [])
    return any("autocast" in view.code(value) and not isinstance(value, cst.Call) for value in values)


def _as_keyword(view: SourceView, call: cst.Call, method: str, keyword: str) -> Position:
    if method == "add_argument" and keyword == "default":
        options = {arg.keyword.value for arg in call.args if arg.keyword}
        names = [text_of(arg.value) or "" for arg in call.args if not arg.keyword]
        if not any("device" in name for name in names):
            return Position(_UNKNOWN)
        listed = choices_of(call)
        if listed & ACCELERATORS:
            return Position(_OF_SEVERAL)
        is_open = "choices" not in options or ({"cpu", "cuda"} <= listed and listed <= _DEVICE_TYPES)
        return _YES if is_open else Position("the option has choices; add the new default to them first")
    if method in ("dict", "update"):
        return _YES if _is_setting(view, keyword) else Position(_OF_DICTIONARY)
    is_one_of_several = len(view.calls_of(method)) > 1 or isinstance(view.parent(call), cst.Element)
    if is_one_of_several and "cuda" in names_of_row(call):
        return Position("CUDA's row of a table of devices; decide what the row for the accelerator is")
    is_named = keyword.endswith("_device") and not _OF_CUDA.search(keyword)
    return _YES if keyword in KEYWORDS or is_named else Position(_UNKNOWN)


def _is_device_parameter(view: SourceView, call: cst.Call, place: int) -> bool:
    """Return whether a positional argument is for a device parameter of a function in this module, or else the project.

    If the module that the function is imported from is not in the run, all definitions of that name must agree.
    """
    if any(each.star for each in call.args[:place]):
        return False
    if isinstance(call.func, cst.Attribute) and dotted(call.func.value) == "self":
        return _is_parameter_of_own_method(view, call, call.func.attr.value, place)
    if not isinstance(call.func, cst.Name):
        return False
    for node in view.of(cst.FunctionDef):
        is_method = isinstance(view.parent(view.parent(node) or node), cst.ClassDef)
        if node.name.value == call.func.value and not is_method:
            params = [*node.params.posonly_params, *node.params.params]
            return place < len(params) and bool(DEVICE_NAME.search(params[place].name.value))
    full_name = view.name(call.func)
    name = full_name.rpartition(".")[2] or call.func.value
    return bool(DEVICE_NAME.search(view.project.parameter(name, full_name, place)))


def _is_parameter_of_own_method(view: SourceView, call: cst.Call, name: str, place: int) -> bool:
    """Return whether ``self.name(…)`` gives its class's method a device: all methods of that name here must agree."""
    owner = view.class_around(call)
    found = [
        each for each in view.of(cst.FunctionDef) if each.name.value == name and view.class_around(each) is not None
    ]
    if owner is None or not any(view.class_around(each) is owner for each in found):
        return False
    given = [[*each.params.posonly_params, *each.params.params] for each in found]
    return all(place + 1 < len(each) and bool(DEVICE_NAME.search(each[place + 1].name.value)) for each in given)


def _as_result(view: SourceView, node: cst.Return) -> Position:
    for around in view.ancestors(node):
        if isinstance(around, cst.Try) and "triton." in view.code(around.body):
            return Position(_OF_OTHER)  # the name of one of its backends
        if isinstance(around, cst.FunctionDef):
            if around.returns is not None and _is_of_choices(view, around.returns):
                return Position("the annotation of the result lists the devices; add the new ones there first")
            if "device" in around.name.value.lower() and "cuda" not in around.name.value.lower():
                return _YES
            break
    return Position("a returned string; use get_accelerator().device_name() if the callers take it as a device")


def _owners(view: SourceView, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    return (each for each in view.ancestors(node) if isinstance(each, cst.FunctionDef | cst.ClassDef))


def _as_value(view: SourceView, node: cst.Assign | cst.AnnAssign, seen: frozenset[str]) -> Position:
    targets = [each.target for each in node.targets] if isinstance(node, cst.Assign) else [node.target]
    if len(targets) != 1:
        return Position(_UNKNOWN)
    owner = next(_owners(view, node), None)
    if isinstance(node, cst.AnnAssign) and _is_of_choices(view, node.annotation):
        return Position("the annotation lists the devices; add the new ones there first")
    if (isinstance(node.value, cst.IfExp) or isinstance(owner, cst.ClassDef)) and is_listed(view, targets[0]):
        return Position(OF_LIST)
    if isinstance(owner, cst.ClassDef) and _is_setting(view, dotted(targets[0])):
        return _YES
    if isinstance(owner, cst.ClassDef):
        return Position("a class attribute; use get_accelerator().device_name() if its reader takes any device")
    return _as_named(view, targets[0], seen)


def _as_named(view: SourceView, target: cst.BaseExpression, seen: frozenset[str]) -> Position:
    """Return whether a value that is stored under a name is used as a device."""
    owner = next(_owners(view, target), None)
    name = dotted(target)
    if name is None:
        return Position("stored under a key; use get_accelerator().device_name() if its reader takes any device")
    is_named = DEVICE_NAME.search(name.lower()) is not None  # the value stays a string, and the name says what it is
    if owner is None and is_word(view, name):
        return Position(OF_WORD)
    if owner is None and not is_named and _READS_NAMES.search(view.source):
        return Position(
            "a global of a program that reads its globals; use get_accelerator().device_name() if it is a device"
        )
    others = {text_of(value) for value in view.values_of(target)} if isinstance(target, cst.Name) else set()
    if others & ACCELERATORS:
        return Position(_ONE_OF_SEVERAL)
    if name in seen:
        return _YES  # assigned to itself, possibly through other names
    uses = view.uses(target)
    if uses is None:
        return _YES if DEVICE_NAME.search(name.rpartition(".")[2].lower()) else Position(_UNKNOWN)
    unsure = [use for use in uses if not _is_used_as_device(view, use, seen | {name})]
    if not unsure:
        return _YES
    line = view.position(unsure[0])[0]
    return Position(
        f"also used at line {line}, which may not take a device; use get_accelerator().device_name() if it does"
    )


def _is_used_as_device(view: SourceView, use: cst.CSTNode, seen: frozenset[str]) -> bool:
    around = view.parent(use)
    if isinstance(around, cst.Comparison | cst.ComparisonTarget):
        return True  # a site of its own
    if isinstance(around, cst.Attribute) and around.attr.value in ("startswith", "split", "type", "index", "lower"):
        return True  # only inspects it
    if isinstance(around, cst.FormattedStringExpression):
        shown = next(
            (each for each in view.ancestors(around) if isinstance(each, cst.Call | cst.Raise | cst.Assert)), None
        )
        return shown is not None and (not isinstance(shown, cst.Call) or bool(_SHOWS.search(dotted(shown.func) or "")))
    if isinstance(around, cst.Arg):
        call = view.parent(around)
        called = dotted(call.func) if isinstance(call, cst.Call) else None
        if _SHOWS.search(called or "") or (called or "").rpartition(".")[2] == "cuda":
            return True
        position = is_device_position(view, use, seen)
        is_named = isinstance(use, cst.Name) and DEVICE_NAME.search(use.value.lower()) is not None
        return position.is_device or (position.reason != _LISTED and is_named)
    return is_device_position(view, use, seen).is_device
