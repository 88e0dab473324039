"""Follows an answer that is stored, passed on or returned to the code in the same file that depends on it."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import libcst as cst

from .regions import TRUTH, regions_of
from .source_view import dotted, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .regions import Regions
    from .source_view import SourceView

__all__ = [
    "OF_TENSORS",
    "answer_name",
    "answers_of",
    "asked_by",
    "key_of",
    "names_for_others",
    "parameter_given",
    "regions_of_name",
]

OF_TENSORS = ("is_cuda", "device", "type")


def regions_of_name(view: SourceView, found: Regions) -> list[Regions]:
    """Return the code that depends on an answer through a name: a variable, an option, a parameter, a function.

    What such code stores, passes on or returns in its turn is followed, too.
    """
    return [each for each in _followed(view, found) if each.is_test or each.operands]


def _followed(view: SourceView, found: Regions) -> list[Regions]:
    """Return what every read of an answer's name is part of, and every read of a name that such code stores."""
    reached: list[Regions] = []
    waiting, seen = [found], set()
    while waiting:
        for value, is_negated in answers_of(view, waiting.pop()):
            if value in seen:
                continue
            seen.add(value)
            for read in _reads_of_answer(view, value):
                asked = asked_by(view, read)
                if asked is not None:
                    waiting.append(regions_of(view, asked, is_negated=is_negated))
                    reached.append(waiting[-1])
    return reached


def _reads_of_answer(view: SourceView, value: cst.CSTNode) -> Sequence[cst.CSTNode]:
    """Return what reads an answer; one that is stored as ``self.fast = True``, in its own class."""
    reads = _reads(view, value)
    is_told = isinstance(value, cst.Assign) and dotted(value.value) in TRUTH
    if not is_told or not isinstance(_target(value), cst.Attribute):
        return reads
    owner = view.class_around(value)
    return [each for each in reads if view.class_around(each) is owner]


def answers_of(view: SourceView, found: Regions) -> Iterator[tuple[cst.CSTNode, bool]]:
    """Yield what stores or returns an answer, and whether negated: its value, or ``return True`` in a branch for yes."""
    if found.value is not None:
        yield found.value, found.is_negated
    for block in found.blocks if found.is_test else ():
        suite = block.body if isinstance(block, cst.Else) else block
        lines = suite.body if isinstance(suite, cst.IndentedBlock) else [suite]
        for statement in (each for line in lines if isinstance(line, cst.SimpleStatementLine) for each in line.body):
            if isinstance(statement, cst.Assign | cst.Return) and _is_one_of_truths(view, statement):
                yield statement, dotted(statement.value) == "False"  # type: ignore[arg-type]


def _is_one_of_truths(view: SourceView, statement: cst.Assign | cst.Return) -> bool:
    """Return whether a statement gives ``True`` or ``False`` to what gets nothing but one of the two, and also the other."""
    if isinstance(statement, cst.Assign):
        target = statement.targets[0].target
        values = view.values_of(target) if isinstance(target, cst.Name | cst.Attribute) else []
    else:
        function = view.function_around(statement)
        returns = view.inside(function, cst.Return) if function is not None else []
        values = [each.value or each for each in returns if view.function_around(each) is function]
    given = [dotted(each) for each in values]
    truth = dotted(statement.value) if statement.value is not None else None
    return set(given) == set(TRUTH) and given.count(truth) == 1  # else another branch may give the same


def names_for_others(view: SourceView, found: Regions) -> set[str]:
    """Return the names by which other files may read an answer, with "not " before the name of a negated one."""
    names = set()
    for one in (found, *_followed(view, found)):
        for value, is_negated in answers_of(view, one):
            if name := _name_for_others(view, value):
                names.add(f"not {name}" if is_negated else name)
    return names


def _name_for_others(view: SourceView, value: cst.CSTNode) -> str:
    functions = [each for each in view.ancestors(value) if isinstance(each, cst.FunctionDef | cst.Lambda)]
    if isinstance(value, cst.Return):
        function = functions[0] if len(functions) == 1 else None
        return function.name.value if isinstance(function, cst.FunctionDef) else ""
    target = _target(value)
    if isinstance(target, cst.Name) and functions:
        return ""
    return _key_of(view, value, target) or answer_name(view, value).rpartition(".")[2]


def asked_by(view: SourceView, read: cst.CSTNode) -> cst.CSTNode | None:
    """Return what asks with a name: itself, or its comparison with zero or with a truth value.

    None is for other comparisons, and for ``i in range(count)``.
    """
    around = view.parent(read)
    call = view.parent(around) if isinstance(around, cst.Arg) else None
    if (
        isinstance(call, cst.Call)
        and dotted(call.func) == "range"
        and isinstance(view.parent(call), cst.ComparisonTarget)
    ):
        return None
    if not isinstance(around, cst.Comparison | cst.ComparisonTarget):
        return read
    return around if isinstance(around, cst.Comparison) and _is_plain(around) else None


def _is_plain(node: cst.Comparison) -> bool:
    """Return whether a comparison distinguishes zero from more, or no from yes: ``n > 0``, ``n >= 1``, ``ok is True``."""
    if len(node.comparisons) != 1:
        return False
    operator, right = node.comparisons[0].operator, node.comparisons[0].comparator
    if isinstance(right, cst.Name):
        return right.value in TRUTH
    number = right.value if isinstance(right, cst.Integer) else ""
    return number == "0" or (number == "1" and isinstance(operator, cst.GreaterThanEqual | cst.LessThan))


def _reads(view: SourceView, value: cst.CSTNode) -> Sequence[cst.CSTNode]:
    """Return the expressions of this file that read an answer from where ``value`` puts it."""
    if isinstance(value, cst.Param):
        return view.uses(value.name) or ()
    parameter = parameter_given(view, value)
    if parameter is not None:
        return view.uses(parameter.name) or ()
    if isinstance(value, cst.Return):
        return _results(view, value)
    target = _target(value)
    if isinstance(target, cst.Name) and not _is_field(view, target):
        reads = view.uses(target)
        return reads if reads is not None else _named(view).get(target.value, ())
    name = _key_of(view, value, target) or answer_name(view, value).rpartition(".")[2]
    if not name:
        return ()
    found = [each for each in _named(view).get(name, ()) if not isinstance(each, cst.Name) or _is_field(view, each)]
    if name in OF_TENSORS and isinstance(target, cst.Attribute):
        return [each for each in found if dotted(each) == dotted(target)]
    return found


def _results(view: SourceView, value: cst.Return) -> Sequence[cst.CSTNode]:
    """Return the calls of the function that returns an answer, and the reads of a property."""
    function = next((each for each in view.ancestors(value) if isinstance(each, cst.FunctionDef | cst.Lambda)), None)
    if not isinstance(function, cst.FunctionDef):
        return ()
    name = function.name.value
    if any((dotted(each.decorator) or "").endswith("property") for each in function.decorators):
        return [each for each in _named(view).get(name, ()) if isinstance(each, cst.Attribute)]
    return [each for each in view.calls_of(name) if not view.is_within(each, function)]


def _target(value: cst.CSTNode) -> cst.CSTNode | None:
    if isinstance(value, cst.Assign) and len(value.targets) == 1:
        return value.targets[0].target
    return value.target if isinstance(value, cst.AnnAssign | cst.NamedExpr) else None


def _key_of(view: SourceView, value: cst.CSTNode, target: cst.CSTNode | None) -> str:
    """Return the key under which a dictionary keeps an answer, or the keyword of a call that takes it; else ''.

    torch's own objects do not keep theirs where the program reads them: ``GradScaler(enabled=…)`` is not ``settings.enabled``.
    """
    if isinstance(value, cst.DictElement):
        return text_of(value.key) or ""
    if isinstance(target, cst.Subscript):
        return key_of(target)
    call = view.parent(value)
    if isinstance(call, cst.Call) and view.name(call.func).startswith("torch."):
        return ""
    is_keyword = isinstance(value, cst.Arg) and value.keyword is not None and value.keyword.value != "default"
    return value.keyword.value if is_keyword and isinstance(value, cst.Arg) and value.keyword is not None else ""


def key_of(node: cst.Subscript) -> str:
    """Return the key of a subscript if it is a text; else ''."""
    inside = node.slice[0].slice if len(node.slice) == 1 else None
    return (text_of(inside.value) or "") if isinstance(inside, cst.Index) else ""


@lru_cache(maxsize=1)  # asked for each question of a module
def _named(view: SourceView) -> dict[str, list[cst.CSTNode]]:
    """Return the names, attributes and subscripts that a module reads, by the last name or the key."""
    found: dict[str, list[cst.CSTNode]] = {}
    for node in view.of(cst.Name, cst.Attribute, cst.Subscript):
        around = view.parent(node)
        is_part = isinstance(around, cst.Attribute) and around.attr is node
        is_target = isinstance(around, cst.AssignTarget) or getattr(around, "target", None) is node
        if is_part or is_target or view.name(node):
            continue
        name = key_of(node) if isinstance(node, cst.Subscript) else (dotted(node) or "").rpartition(".")[2]
        found.setdefault(name, []).append(node)
    return found


def parameter_given(view: SourceView, argument: cst.CSTNode | None) -> cst.Param | None:
    """Return the parameter that receives an argument: of a function, a method or a class of this file.

    None if there is no such function, or several of that name.
    """
    call = view.parent(argument) if isinstance(argument, cst.Arg) else None
    if not isinstance(argument, cst.Arg) or not isinstance(call, cst.Call) or any(each.star for each in call.args):
        return None
    function = _called(view, call)
    if function is None:
        return None
    params = [*function.params.posonly_params, *function.params.params]
    if isinstance(_block_owner(view, function), cst.ClassDef) and not _is_static(function):
        params = params[1:]
    if argument.keyword is not None:
        every = [*params, *function.params.kwonly_params]
        return next((each for each in every if each.name.value == argument.keyword.value), None)
    place = call.args.index(argument)
    return params[place] if place < len(params) else None


def _called(view: SourceView, call: cst.Call) -> cst.FunctionDef | None:
    """Return the only function of this file that a call may run; of a class, its ``__init__``."""
    func = call.func
    if view.name(func) or not isinstance(func, cst.Name | cst.Attribute):
        return None
    is_method = isinstance(func, cst.Attribute)
    name = func.attr.value if isinstance(func, cst.Attribute) else func.value
    owners = [
        each
        for each in view.of(cst.FunctionDef, cst.ClassDef)
        if each.name.value == name and is_method == isinstance(_block_owner(view, each), cst.ClassDef)
    ]
    if len(owners) != 1:
        return None
    own = owners[0].body.body if isinstance(owners[0], cst.ClassDef) else owners
    name = "__init__" if isinstance(owners[0], cst.ClassDef) else name
    return next((each for each in own if isinstance(each, cst.FunctionDef) and each.name.value == name), None)


def _block_owner(view: SourceView, node: cst.CSTNode) -> cst.CSTNode | None:
    return view.parent(view.parent(node) or node)


def _is_static(function: cst.FunctionDef) -> bool:
    return any(dotted(each.decorator) == "staticmethod" for each in function.decorators)


def answer_name(view: SourceView, value: cst.CSTNode | None) -> str:
    """Return the name that an answer is stored under: a variable, an attribute, or ``.name`` of a class or a command line."""
    target = _target(value) if value is not None else None
    if target is not None:
        return ("." if _is_field(view, target) else "") + (dotted(target) or "")
    call = view.parent(value) if isinstance(value, cst.Arg) else None
    is_default = isinstance(value, cst.Arg) and value.keyword is not None and value.keyword.value == "default"
    if is_default and isinstance(call, cst.Call) and (dotted(call.func) or "").endswith("add_argument"):
        options = [text_of(arg.value) or "" for arg in call.args if not arg.keyword]
        longest = max(options, key=len, default="").lstrip("-").replace("-", "_")
        return f".{longest}" if longest else ""
    return ""


def _is_field(view: SourceView, node: cst.CSTNode) -> bool:
    """Return whether a name is a class's own attribute, such as a dataclass's field, where the class's body names it."""
    owner = next(
        (each for each in view.ancestors(node) if isinstance(each, cst.ClassDef | cst.FunctionDef | cst.Lambda)), None
    )
    return isinstance(owner, cst.ClassDef)
