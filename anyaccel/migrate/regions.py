"""Finds the code that runs only if a question such as ``torch.cuda.is_available()`` is true."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import libcst as cst

from .source_view import dotted

if TYPE_CHECKING:
    from .source_view import SourceView

__all__ = ["TRUTH", "Regions", "case_around", "chain_around", "following", "leaves", "regions_of"]

_LEAVES = (cst.Raise, cst.Return, cst.Continue, cst.Break)
_EXITS = re.compile(r"\b(exit|_exit|skip|skipTest|abort|error)\s*\(")
_NONE = re.compile(r"(Equal|LessThanEqual) 0$|LessThan 1$")
_CAUGHT = re.compile(r"Exception|Error")
TRUTH = ("True", "False")


@dataclass
class Regions:
    """The code that depends on a question.

    Attributes:
        asked: the question.
        operands: the operands of the same condition that are evaluated only if the question is true.
        blocks: the statements, or the branch, that run only if it is true.
        is_test: whether the question is part of a condition; otherwise its value is used elsewhere.
        is_entry: whether the program ends if the question is false: ``if not …: raise`` and ``assert …``.
        stops: whether a branch for a false question ends the program.
        refuses: whether the program ends if the question is true: ``assert not …``.
        value: the node that receives the answer, if it is used as a value.
        is_negated: whether what ``value`` receives is true if the question is false.
        other: the branch or the value for a false question, unless that ends the program.
    """

    asked: cst.CSTNode
    operands: list[cst.CSTNode] = field(default_factory=list)
    blocks: list[cst.CSTNode] = field(default_factory=list)
    is_test: bool = False
    is_entry: bool = False
    stops: bool = False
    refuses: bool = False
    value: cst.CSTNode | None = None
    is_negated: bool = False
    other: cst.CSTNode | None = None

    @property
    def all(self) -> list[cst.CSTNode]:
        return [*self.operands, *self.blocks]


def regions_of(view: SourceView, asked: cst.CSTNode, *, is_negated: bool = False) -> Regions:
    """Return the code that depends on an expression that is a question, or its stored answer, which may be negated."""
    found = Regions(asked)
    inner, is_yes = asked, is_negated == _is_negated(asked)
    for around in view.ancestors(asked):
        if isinstance(around, cst.UnaryOperation) and isinstance(around.operator, cst.Not):
            is_yes = not is_yes
        elif isinstance(around, cst.BooleanOperation):
            if is_yes == isinstance(around.operator, cst.And) and around.left is inner:
                found.operands.append(around.right)
        elif isinstance(around, cst.IfExp) and around.test is inner:
            if not _is_truth(around.body) or not _is_truth(around.orelse):
                found.other = around.orelse if is_yes else around.body
                return _tested(found, [around.body if is_yes else around.orelse])
            is_yes = is_yes == (isinstance(around.body, cst.Name) and around.body.value == "True")
        elif isinstance(around, cst.If) and around.test is inner:
            return _of_if(view, found, around, is_yes=is_yes)
        elif (isinstance(around, cst.While) and around.test is inner) or (
            isinstance(around, cst.For) and around.iter is inner
        ):
            return _tested(found, [around.body])
        elif isinstance(around, cst.CompFor) and around.iter is inner:
            found.operands += _elements(view.parent(around))
            found.value, found.is_negated = around, not is_yes
            return found
        elif isinstance(around, cst.Assert) and around.test is inner:
            if not is_yes or _is_compared_with_other(view, asked):
                found.refuses = True
                return _tested(found, [])  # the program goes on where the answer is no
            found.is_entry = not _is_caught(view, around)
            line = view.parent(around)
            return _tested(found, following(view, line) if line is not None else [])
        elif isinstance(around, cst.Decorator):
            decorated = view.parent(around)
            return _tested(found, [decorated.body] if isinstance(decorated, cst.FunctionDef | cst.ClassDef) else [])
        elif isinstance(around, cst.GeneratorExp) and around.elt is inner and _is_of_bool(view, view.parent(around)):
            pass  # any(t.is_cuda for t in tensors)
        elif _is_listed_in_bool(view, around):
            pass  # all([q.is_cuda, k.is_cuda])
        elif isinstance(around, cst.Comparison | cst.ComparisonTarget) or _is_of_bool(view, around):
            is_yes = is_yes != _is_negated(around)
        elif isinstance(around, cst.NamedExpr):
            found.value, found.is_negated = around, not is_yes  # stored, and used here as well
        else:
            if found.value is None:
                found.value, found.is_negated = around, not is_yes
            return found
        inner = around
    return found


def _is_negated(asked: cst.CSTNode) -> bool:
    """Return whether a comparison is true without the device: ``!= "cuda"``, or ``== 0`` for a device count."""
    if not isinstance(asked, cst.Comparison):
        return False
    target = asked.comparisons[0]
    if isinstance(target.comparator, cst.Integer):
        return _NONE.match(f"{type(target.operator).__name__} {target.comparator.value}") is not None
    if isinstance(target.comparator, cst.Name) and target.comparator.value in TRUTH:
        return isinstance(target.operator, cst.NotEqual | cst.IsNot) == (target.comparator.value == "True")
    return isinstance(target.operator, cst.NotEqual | cst.NotIn)


def _is_compared_with_other(view: SourceView, asked: cst.CSTNode) -> bool:
    """Return whether an answer is compared with something else than a constant: ``flag == torch.cuda.is_available()``."""
    around = view.parent(asked)
    if isinstance(around, cst.ComparisonTarget):
        compared = view.parent(around)
        other = compared.left if isinstance(compared, cst.Comparison) else None
    else:
        other = around.comparisons[0].comparator if isinstance(around, cst.Comparison) else None
    is_constant = isinstance(other, cst.Integer) or (isinstance(other, cst.Name) and other.value in TRUTH)
    is_asked = isinstance(asked, cst.Call) and view.name(asked.func) == "torch.cuda.is_available"
    return is_asked and other is not None and not is_constant


def _elements(comprehension: cst.CSTNode | None) -> list[cst.CSTNode]:
    """Return the expressions that a comprehension evaluates for each element."""
    if isinstance(comprehension, cst.BaseSimpleComp):
        return [comprehension.elt]
    return [comprehension.key, comprehension.value] if isinstance(comprehension, cst.DictComp) else []


def _tested(found: Regions, blocks: list[cst.CSTNode]) -> Regions:
    found.blocks, found.is_test = blocks, True
    return found


def _is_truth(node: cst.BaseExpression) -> bool:
    return isinstance(node, cst.Name) and node.value in TRUTH


def _is_of_bool(view: SourceView, node: cst.CSTNode | None) -> bool:
    """Return whether a node is a call that passes the answer on, or its argument: ``bool(…)``, ``skipIf(…)``."""
    call = view.parent(node) if isinstance(node, cst.Arg) else node
    called = (dotted(call.func) or "").rpartition(".")[2] if isinstance(call, cst.Call) else ""
    return called in ("bool", "range", "any", "all", "skipIf", "skipUnless", "skipif")


def _is_listed_in_bool(view: SourceView, node: cst.CSTNode) -> bool:
    """Return whether a node is a list that ``all()`` or ``any()`` gets, or an element of one."""
    listed = view.parent(node) if isinstance(node, cst.Element) else node
    return isinstance(listed, cst.List | cst.Tuple | cst.Set) and _is_of_bool(view, view.parent(listed))


def _of_if(view: SourceView, found: Regions, test: cst.If, *, is_yes: bool) -> Regions:
    other = test.body if not is_yes else test.orelse.body if isinstance(test.orelse, cst.Else) else None
    if other is not None:
        found.stops = _ends_program(view, other)
        found.other = None if found.stops else other
    elif is_yes and isinstance(test.orelse, cst.If):
        found.other = test.orelse
    if is_yes:
        return _tested(found, [test.body])
    if test.orelse is not None:
        return _tested(found, [test.orelse])
    found.is_entry = _ends_program(view, test.body) and not _is_caught(view, test)
    return _tested(found, following(view, test) if leaves(view, test.body) else [])


def _last(block: cst.BaseSuite) -> list[cst.CSTNode]:
    line = block.body[-1] if block.body else None
    if isinstance(line, cst.SimpleStatementLine):
        return list(line.body)
    return [line] if line is not None else []


def _ends_program(view: SourceView, block: cst.BaseSuite) -> bool:
    last = _last(block)
    return any(
        isinstance(one, cst.Raise) or (isinstance(one, cst.Expr) and _EXITS.search(view.code(one))) for one in last
    )


def _is_caught(view: SourceView, statement: cst.CSTNode) -> bool:
    """Return whether a ``try`` in the same function catches what a statement raises, so that the program continues."""
    inner = statement
    for around in view.ancestors(statement):
        if isinstance(around, cst.FunctionDef):
            return False
        if isinstance(around, cst.Try) and around.body is inner:
            catching = [each for each in around.handlers if each.type is None or _CAUGHT.search(view.code(each.type))]
            return any(not _ends_program(view, each.body) for each in catching)
        inner = around
    return False


def leaves(view: SourceView, block: cst.BaseSuite) -> bool:
    """Return whether a block ends with ``raise``, ``return``, ``continue`` or ``break``, or ends the program."""
    return _ends_program(view, block) or any(isinstance(one, _LEAVES) for one in _last(block))


def case_around(view: SourceView, node: cst.CSTNode) -> cst.MatchCase | None:
    """Return the case of a ``match`` statement in whose pattern a node is: patterns take no calls."""
    case = next((each for each in view.ancestors(node) if isinstance(each, cst.MatchCase)), None)
    return case if case is not None and view.is_within(node, case.pattern) else None


def chain_around(view: SourceView, node: cst.CSTNode) -> list[cst.If]:
    """Return the chain of ``if`` and ``elif`` in one of whose tests or blocks a node is, if that is its nearest block."""
    first: cst.CSTNode | None = next(
        (each for each in view.ancestors(node) if isinstance(each, cst.If | cst.BaseSuite)), None
    )
    while isinstance(around := view.parent(first) if first is not None else None, cst.If):
        first = around
    found: list[cst.If] = []
    while isinstance(first, cst.If):
        found.append(first)
        first = first.orelse
    return found


def following(view: SourceView, statement: cst.CSTNode) -> list[cst.CSTNode]:
    """Return the statements that follow a statement in its block."""
    block = view.parent(statement)
    body: list[cst.CSTNode] = list(block.body) if isinstance(block, cst.IndentedBlock | cst.Module) else []
    return body[body.index(statement) + 1 :] if statement in body else []
