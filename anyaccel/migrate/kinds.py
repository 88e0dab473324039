"""Infers whether an argument is a device index (``local_rank``) or a device (``torch.device("cuda", 1)``)."""

from __future__ import annotations

import enum
import re
from typing import TYPE_CHECKING

import libcst as cst

from .device_text import is_device_literal
from .source_view import dotted, text_of

if TYPE_CHECKING:
    from .source_view import SourceView

__all__ = ["DEVICE_NAME", "Kind", "is_index_element", "kind_by_name", "kind_of", "passed_for", "told_index"]

_INDEX_NAME = re.compile(
    r"(^|_)(rank|gpu|gpu_?(id|no|num|idx|index)|cuda_?(id|idx|index)|idx|index|ordinal|"
    r"dev(ice)?_?(id|idx|index|num|no|ordinal)|id|[ijkn])$"
)
_INDEX_LIST = re.compile(r"(^|_)(gpus?|gpu_?(ids|list)|devices?_?ids|ranks|device_?indices)$")
DEVICE_NAME = re.compile(r"(^|_)(dev|device)$|^(device|dev)_?(name|str|type)?$")
_INDEX_CALL = re.compile(
    r"(^|_)(int|len|rank|get_rank|get_local_rank|get_node_local_rank|local_rank|current_device|device_count|get_device)$"
)
_SHORT = re.compile(r"(^|\.)(id|idx|index|[ijkn])$")
_INT = re.compile(r"(Optional\[)?int\]?( *\| *None)?$")
_DEPTH = 4
_COUNT = re.compile(r"^int$|(^|_)(get_rank|get_local_rank|local_rank|device_count)$")
_OPTIONS = re.compile(r"(^|[._])(args?|opts?|options?|cfg|conf(ig)?|hparams|flags|settings)\b", re.IGNORECASE)
_ARITHMETIC = (cst.Add, cst.Subtract, cst.Multiply, cst.FloorDivide, cst.Modulo)


class Kind(enum.Enum):
    """The kind of an argument: a device index, a device, or unknown."""

    INDEX = enum.auto()
    DEVICE = enum.auto()
    UNKNOWN = enum.auto()


def kind_of(view: SourceView, node: cst.BaseExpression, depth: int = 0) -> Kind:
    """Return the kind of an expression, from how this file uses it or, if that says nothing, from its name."""
    if isinstance(node, cst.Integer):
        return Kind.INDEX
    if is_device_literal(node):
        return Kind.DEVICE
    if isinstance(node, cst.Call):
        return _kind_of_call(view, node)
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, _ARITHMETIC):
        is_number = not _has_text(node) and (depth == 0 or _is_surely_index(node))
        return Kind.INDEX if is_number else Kind.UNKNOWN  # an assigned or passed value may multiply tensors
    if isinstance(node, cst.Subscript):
        return Kind.INDEX if _holds_indices(view, node.value) else _kind_of_element(node)
    name = dotted(node)
    if name is None:  # such as ``next(model.parameters()).device``
        is_device = isinstance(node, cst.Attribute) and node.attr.value == "device"
        is_option = isinstance(node, cst.Attribute) and _OPTIONS.search(view.code(node.value)) is not None
        return Kind.DEVICE if is_device and not is_option else Kind.UNKNOWN
    told = _kinds_told(view, node, depth)
    if told:
        return next(iter(told)) if len(told) == 1 else Kind.UNKNOWN
    return kind_by_name(name)


def _has_text(node: cst.BaseExpression) -> bool:
    """Return whether an operand of a binary operation is a string, so that the result is a string too."""
    if isinstance(node, cst.BinaryOperation):
        return _has_text(node.left) or _has_text(node.right)
    return text_of(node) is not None or isinstance(node, cst.FormattedString)


def told_index(view: SourceView, node: cst.BaseExpression) -> bool | None:
    """Return whether the assignments and calls in this file show that an expression is an index.

    Returns:
        True if all of them show an index, None if some do while others, or the name, show a device, else False.
    """
    if isinstance(node, cst.Integer | cst.BinaryOperation | cst.Call | cst.IfExp):
        return _is_surely_index(node)
    values = view.values_of(node) if dotted(node) is not None else []
    if dotted(node) is None or not all(_is_surely_index(value) or dotted(value) is not None for value in values):
        return False
    told = _kinds_told(view, node, 0)
    return told == {Kind.INDEX} or (None if Kind.INDEX in told else False)


def _is_surely_index(node: cst.BaseExpression) -> bool:
    """Return whether an expression is certainly an integer index, such as ``rank % n``, and not a sum of two tensors.

    ``x.get_device()`` does not count because it is -1 on the CPU. The rule current-device handles ``current_device()``.
    """
    if isinstance(node, cst.Integer):
        return True
    if isinstance(node, cst.Subscript):
        return _kind_of_element(node) is Kind.INDEX
    if isinstance(node, cst.IfExp):
        return _is_surely_index(node.body) and _is_surely_index(node.orelse)
    if isinstance(node, cst.BinaryOperation) and isinstance(node.operator, _ARITHMETIC):
        return not _has_text(node) and any(
            _is_surely_index(side) or kind_by_name(dotted(side) or "") is Kind.INDEX
            for side in (node.left, node.right)
            if not isinstance(side, cst.Integer)
        )
    return isinstance(node, cst.Call) and _COUNT.search((dotted(node.func) or "").rpartition(".")[2]) is not None


def _kinds_told(view: SourceView, node: cst.BaseExpression, depth: int) -> set[Kind]:
    """Return the kinds that a name's values, call sites, annotation, comparisons and loops suggest."""
    if (node, depth) not in view.told:
        view.told[node, depth] = _find_kinds(view, node, depth)
    return view.told[node, depth]


def _find_kinds(view: SourceView, node: cst.BaseExpression, depth: int) -> set[Kind]:
    if depth >= _DEPTH or _is_tensor(view, node):
        return set()
    checked = _kind_checked(view, node)
    if checked is not None:
        return {checked}
    told: set[Kind] = set()
    for value in view.values_of(node):
        if dotted(value) is not None and dotted(value) != dotted(node):
            told |= _kinds_told(view, value, depth + 1) or {_told_by_name(dotted(value) or "")}
        elif not _is_none(value) and not is_index_element(value):
            told.add(kind_of(view, value, depth + 1))
    parameter = view.parameter(node)
    if parameter is not None:
        if (parameter, depth) not in view.told:
            view.told[parameter, depth] = _kinds_that_callers_pass(view, parameter, depth)
        told |= view.told[parameter, depth]
    if _is_annotated_as_number(view, node) or _is_compared_with_number(view, node) or _is_option_of_numbers(view, node):
        told.add(Kind.INDEX)
    told |= {
        Kind.INDEX for loop in view.loops_of(node) if _is_range(view, loop.iter) or _holds_indices(view, loop.iter)
    }
    return told - {Kind.UNKNOWN}


def _is_option_of_numbers(view: SourceView, node: cst.BaseExpression) -> bool:
    """Return whether an attribute is what this file's command line reads as a number: ``--device`` of ``type=int``."""
    if not isinstance(node, cst.Attribute) or "add_argument(" not in view.source:
        return False
    option = node.attr.value.replace("_", "[-_]")
    declared = rf"\badd_argument\(\s*(?:[\"']-\w[\"'],\s*)?[\"']--{option}[\"'][^)]*\btype=int\b"
    return re.search(declared, view.source) is not None


def _kind_checked(view: SourceView, node: cst.BaseExpression) -> Kind | None:
    """Return the kind that ``isinstance(device, str)`` around a use tells; None if its type is not checked there."""
    inner: cst.CSTNode = node
    for around in view.ancestors(node):
        for test in _conjuncts(around.test) if isinstance(around, cst.If) and around.body is inner else ():
            is_check = isinstance(test, cst.Call) and dotted(test.func) == "isinstance" and len(test.args) > 1
            if is_check and isinstance(test, cst.Call) and dotted(test.args[0].value) == dotted(node):
                types = set(re.findall(r"\w+", view.code(test.args[1])))
                if ("int" in types) != bool(types & {"str", "device"}):
                    return Kind.INDEX if "int" in types else Kind.DEVICE
        if isinstance(around, cst.FunctionDef):
            break
        inner = around
    return None


def _conjuncts(test: cst.BaseExpression) -> list[cst.BaseExpression]:
    """Return ``a``, ``b`` and ``c`` of ``a and b and c``."""
    if isinstance(test, cst.BooleanOperation) and isinstance(test.operator, cst.And):
        return [*_conjuncts(test.left), *_conjuncts(test.right)]
    return [test]


def _annotation(view: SourceView, node: cst.BaseExpression) -> str:
    """Return the annotation of the parameter with the name of a node; empty if there is none."""
    parameter = view.parameter(node)
    annotation = parameter.annotation if parameter is not None else None
    return view.code(annotation.annotation) if annotation is not None else ""


def _is_annotated_as_number(view: SourceView, node: cst.BaseExpression) -> bool:
    return _INT.match(_annotation(view, node)) is not None


def _is_tensor(view: SourceView, node: cst.BaseExpression) -> bool:
    """Return whether an annotation, or the use of its attributes anywhere in this file, shows that a name is a tensor."""
    return "Tensor" in _annotation(view, node) or (dotted(node) or "") in view.names_of_tensors


def _is_compared_with_number(view: SourceView, node: cst.BaseExpression) -> bool:
    """Return whether the enclosing function (for attributes, class) compares a name with a number: ``gpu >= 0``."""
    kind = cst.FunctionDef if isinstance(node, cst.Name) else cst.ClassDef
    owner = next((each for each in view.ancestors(node) if isinstance(each, kind)), None)
    return any(
        view.is_within(each, owner or view.module) for each in view.compared_with_numbers.get(dotted(node) or "", ())
    )


def _is_range(view: SourceView, node: cst.BaseExpression) -> bool:
    """Return whether a loop iterates over ``range(…)``, directly or through a variable."""
    told = [node, *view.values_of(node)] if dotted(node) is not None else [node]
    return any(isinstance(each, cst.Call) and dotted(each.func) == "range" for each in told)


def _holds_indices(view: SourceView, node: cst.BaseExpression) -> bool:
    """Return whether a name holds a list of integers: ``[int(each) for each in text.split(",")]``, ``[0, 1]``."""
    values = view.values_of(node) if dotted(node) is not None else []

    def is_list(value: cst.BaseExpression) -> bool:
        if isinstance(value, cst.List | cst.Tuple):
            return bool(value.elements) and all(isinstance(each.value, cst.Integer) for each in value.elements)
        return isinstance(value, cst.ListComp) and _is_surely_index(value.elt)

    return bool(values) and view.parameter(node) is None and all(map(is_list, values))


def passed_for(view: SourceView, parameter: cst.Param) -> list[cst.BaseExpression]:
    """Return what calls in this file pass for a parameter, and what its class assigns to the property that it sets."""
    owner = next((each for each in view.ancestors(parameter) if isinstance(each, cst.FunctionDef)), None)
    if owner is None:
        return []
    called = _called_as(view, owner)
    if any(view.code(each.decorator).endswith(".setter") for each in owner.decorators):
        values = view.assigned.get(f"self.{called}", [])
        return [each for each in values if view.class_around(each) is view.class_around(owner)]
    place = _place_of(owner, parameter)
    return [
        argument.value
        for call in view.calls_of(called)
        for number, argument in enumerate(call.args)
        if (
            argument.keyword.value == parameter.name.value
            if argument.keyword
            else number == place and not argument.star
        )
    ]


def _place_of(owner: cst.FunctionDef, parameter: cst.Param) -> int:
    """Return the position of the argument for a parameter; -1 if it is passed by its name alone."""
    names = [each.name.value for each in (*owner.params.posonly_params, *owner.params.params)]
    name = parameter.name.value
    return names.index(name) - (names[0] in ("self", "cls")) if name in names else -1


def _kinds_that_callers_pass(view: SourceView, parameter: cst.Param, depth: int) -> set[Kind]:
    """Return the kinds that call sites in this file pass for a parameter, and the kind that its name suggests.

    If these conflict, the kind of the parameter is unknown.
    """
    owner = next((each for each in view.ancestors(parameter) if isinstance(each, cst.FunctionDef)), None)
    if owner is None:
        return set()
    name, place = parameter.name.value, _place_of(owner, parameter)
    called = _called_as(view, owner)
    kinds = set(_kinds_passed(view, called, view.class_around(owner), (name, place, depth)))
    kinds |= _kinds_passed(view, called, view.module, (name, place, depth))
    if place == 0 and any(_spawns(view, call, owner.name.value) for call in view.calls_of("spawn")):
        kinds.add(Kind.INDEX)
    kinds.discard(Kind.UNKNOWN)
    return {*kinds, kind_by_name(name)} - {Kind.UNKNOWN} if kinds else set()


def _kinds_passed(view: SourceView, called: str, group: cst.CSTNode | None, given: tuple[str, int, int]) -> set[Kind]:
    """Return the kinds that some calls of a function pass: those by ``self`` in a class, or, for the module, all others."""
    key = (called, group, *given)
    if key in view.told:
        return view.told[key]
    if called not in view.callers:
        callers = view.callers[called] = {}
        for call in view.calls_of(called):
            is_own = isinstance(call.func, cst.Attribute) and dotted(call.func.value) == "self"
            callers.setdefault(view.class_around(call) if is_own else view.module, []).append(call)
    name, place, depth = given
    kinds = set()
    for call in view.callers[called].get(group, ()):
        for number, argument in enumerate(call.args):
            if argument.keyword.value == name if argument.keyword else number == place and not argument.star:
                passed = dotted(argument.value)
                is_short = passed is not None and _SHORT.search(passed) is not None
                kinds.add(Kind.UNKNOWN if is_short else kind_of(view, argument.value, depth + 1))
    view.told[key] = kinds
    return kinds


def _called_as(view: SourceView, owner: cst.FunctionDef) -> str:
    """Return the name that calls of a function use: the class name for ``__init__``."""
    around = view.parent(view.parent(owner) or owner)
    is_init = owner.name.value == "__init__" and isinstance(around, cst.ClassDef)
    return around.name.value if is_init and isinstance(around, cst.ClassDef) else owner.name.value


def _spawns(view: SourceView, call: cst.Call, name: str) -> bool:
    """Return whether a call is ``mp.spawn`` of a function, whose first argument is then the process index."""
    is_torchs = view.name(call.func).startswith("torch.multiprocessing")
    return is_torchs and bool(call.args) and dotted(call.args[0].value) == name


def kind_by_name(name: str) -> Kind:
    """Return the kind that a name such as ``args.local_rank`` suggests; ``Device.GPU`` is a constant, and no index."""
    owner, _, name = name.rpartition(".")
    if owner and name.isupper():
        return Kind.UNKNOWN
    name = name.lower()
    if DEVICE_NAME.search(name):
        return Kind.DEVICE
    return Kind.INDEX if _INDEX_NAME.search(name) else Kind.UNKNOWN


def _told_by_name(name: str) -> Kind:
    """Return the kind that a value's name suggests for its target; unknown for ``k`` or ``id``, which may be a key."""
    return Kind.UNKNOWN if _SHORT.search(name) else kind_by_name(name)


def _kind_of_call(view: SourceView, node: cst.Call) -> Kind:
    if view.name(node.func) == "torch.device":
        return Kind.DEVICE
    func = node.func
    called = func.attr.value if isinstance(func, cst.Attribute) else (dotted(func) or "")
    is_index = _INDEX_CALL.search(called) is not None and dotted(func) != "get_device"
    if is_index:  # Tensor.get_device() returns an index; a function of that name returns a device
        return Kind.INDEX
    return Kind.DEVICE if called == "current_device_name" or DEVICE_NAME.search(called.lower()) else Kind.UNKNOWN


def _kind_of_element(node: cst.Subscript) -> Kind:
    text = ""
    if len(node.slice) == 1 and isinstance(node.slice[0].slice, cst.Index):
        text = text_of(node.slice[0].slice.value) or ""
    listed = (dotted(node.value) or "").rpartition(".")[2].lower()
    if text:  # os.environ["LOCAL_RANK"] is a string
        return Kind.UNKNOWN if listed == "environ" else _told_by_name(text)
    return Kind.INDEX if _INDEX_LIST.search(listed) else Kind.UNKNOWN


def is_index_element(node: cst.BaseExpression) -> bool:
    """Return whether an expression is an index by its key: ``kwargs["rank"]``; stored as a device, it is reported."""
    is_element = isinstance(node, cst.Subscript) and not _INDEX_LIST.search((dotted(node.value) or "").lower())
    return is_element and isinstance(node, cst.Subscript) and _kind_of_element(node) is Kind.INDEX


def _is_none(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Name) and node.value == "None"
