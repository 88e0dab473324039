"""What of a file a CPU does not run: branches for CUDA, what follows an early return, and what stops the program."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .cpu_values import CpuValues, Scope

__all__ = ["CpuReach"]

_EXITS = re.compile(r"^(sys\.|os\.)?(exit|_exit|quit|abort)\(")
_EXITS_IN_HANDLER = re.compile(r"\b(exit|_exit|quit|abort)\(")
_SUPPRESSES = re.compile(r"^(contextlib\.)?suppress\((Base)?Exception\)$")
_TORCHS_ERRORS = {"AssertionError", "RuntimeError"}  # without CUDA in torch, and without a device
_OF_DDP = ("device_ids", "output_device")
_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


class CpuReach:
    """Finds what of a file a CPU does not run.

    A test that names CUDA and that nothing else decides counts as false on a CPU, unless it denies.

    Args:
        tree: the file.
        values: the values of its expressions.

    Attributes:
        dead: the nodes that a CPU does not run, and what is in them.
        swallowed: the nodes whose errors the program catches, and goes on.
        stops: the statements at which the program certainly stops on a CPU, if it gets there: a test before an exit, or an
            assertion.
    """

    def __init__(self, tree: ast.Module, values: CpuValues) -> None:
        self._values = values
        self.dead = self._values.dead
        self.swallowed: set[ast.AST] = set()
        self.stops: list[ast.stmt] = []
        self._block(tree.body, tree, None)

    def _drop(self, nodes: Iterable[ast.AST]) -> None:
        for node in nodes:
            self.dead.update(ast.walk(node))

    def _block(self, lines: Sequence[ast.stmt], scope: Scope, because: ast.stmt | None) -> bool:
        """Follow a block, and return whether it leaves, so that what comes after it does not run.

        Args:
            lines: the statements.
            scope: the function around them, or the module.
            because: the test for CUDA that is decided, and in whose branch the block is; None if something else decides.
        """
        for number, line in enumerate(lines):
            if self._statement(line, scope, because):
                self._drop(lines[number + 1 :])
                return True
        return False

    def _statement(self, line: ast.stmt, scope: Scope, because: ast.stmt | None) -> bool:
        if isinstance(line, ast.If):
            return self._if(line, scope, because)
        if isinstance(line, ast.FunctionDef | ast.AsyncFunctionDef):
            self._expressions([*line.decorator_list, line.args], scope)
            self._block(line.body, line, None)
            return False
        if isinstance(line, ast.ClassDef):
            self._class(line, scope)
            return False
        if isinstance(line, ast.Try):
            self._try(line, scope)
            return False
        if isinstance(line, ast.With | ast.AsyncWith):
            self._expressions(line.items, scope)
            if any(_SUPPRESSES.match(ast.unparse(each.context_expr)) for each in line.items):
                self._swallow(line.body)
                self._block(line.body, scope, None)
                return False
            return self._block(line.body, scope, because)
        if isinstance(line, ast.For | ast.AsyncFor | ast.While):
            self._loop(line, scope)
            return False
        if isinstance(line, ast.Match):
            self._expressions([line.subject], scope)
            for case in line.cases:
                self._block(case.body, scope, None)
            return False
        self._expressions([line], scope)
        if isinstance(line, ast.Assert) and self._answer(line.test, scope) == (False, True):
            self.stops.append(line)
            return True
        ends = isinstance(line, ast.Raise) or (
            isinstance(line, ast.Expr) and _EXITS.match(ast.unparse(line)) is not None
        )
        if ends and because is not None:
            self.stops.append(because)
        return ends or isinstance(line, ast.Return | ast.Continue | ast.Break)

    def _if(self, line: ast.If, scope: Scope, because: ast.stmt | None) -> bool:
        self._expressions([line.test], scope)
        known, is_of_cuda = self._answer(line.test, scope)
        if known is None:
            if _guessed(line.test) is False:
                self._drop(line.body)
                self._block(line.orelse, scope, None)
                return False
            ends = [self._block(each, scope, None) for each in (line.body, line.orelse)]
            return all(ends)
        self._drop(line.orelse if known else line.body)
        return self._block(line.body if known else line.orelse, scope, line if is_of_cuda else because)

    def _answer(self, test: ast.expr, scope: Scope) -> tuple[bool | None, bool]:
        """Return whether a test is true, and whether a question about CUDA or the accelerator was asked for that."""
        before = self._values.asked
        return self._values.truth(test, scope), self._values.asked > before

    def _loop(self, line: ast.For | ast.AsyncFor | ast.While, scope: Scope) -> None:
        over = line.test if isinstance(line, ast.While) else line.iter
        self._expressions([over], scope)
        if self._values.truth(over, scope) is False:
            self._drop(line.body)
        else:
            self._block(line.body, scope, None)
        self._block(line.orelse, scope, None)

    def _try(self, line: ast.Try, scope: Scope) -> None:
        if _swallows(line):
            self._swallow(line.body)
        for block in (line.body, *(each.body for each in line.handlers), line.orelse, line.finalbody):
            self._block(block, scope, None)

    def _swallow(self, lines: Sequence[ast.stmt]) -> None:
        for line in lines:
            waiting: list[ast.AST] = [line]
            while waiting:  # what is defined there may be called elsewhere
                node = waiting.pop()
                if not isinstance(node, _DEFINITIONS):
                    self.swallowed.add(node)
                    waiting += ast.iter_child_nodes(node)

    def _class(self, line: ast.ClassDef, scope: Scope) -> None:
        self._expressions([*line.decorator_list, *line.bases, *line.keywords], scope)
        for member in line.body:
            if isinstance(member, ast.FunctionDef) and member.name == "cuda":
                self._drop(member.body)  # what moves to CUDA is for callers that have it
        self._block(line.body, scope, None)

    def _expressions(self, nodes: Iterable[ast.AST], scope: Scope) -> None:
        """Drop the parts of expressions that a CPU does not evaluate."""
        for node in (each for root in nodes for each in ast.walk(root)):
            if isinstance(node, ast.IfExp):
                known = self._values.truth(node.test, scope)
                runs = _guessed(node.test) if known is None else known
                if runs is not None:
                    self._drop([node.orelse if runs else node.body])
            elif isinstance(node, ast.BoolOp):
                self._operands(node, scope)
            elif isinstance(node, ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp):
                if any(self._values.truth(each.iter, scope) is False for each in node.generators):
                    self._drop([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])
            elif isinstance(node, ast.keyword) and node.arg in _OF_DDP:
                self._drop([node])  # None on a CPU after a rewrite

    def _operands(self, node: ast.BoolOp, scope: Scope) -> None:
        """Drop the operands after the one that decides: ``torch.cuda.is_available() and …``."""
        is_and = isinstance(node.op, ast.And)
        for number, operand in enumerate(node.values):
            known = self._values.truth(operand, scope)
            runs = _guessed(operand) if known is None else known
            if runs is not None and runs != is_and:
                self._drop(node.values[number + 1 :])
                return


def _guessed(test: ast.expr) -> bool | None:
    """Return False for a test that names CUDA, and that is taken to need it; None for one that denies it, and for others."""
    if isinstance(test, ast.BoolOp):
        found = [_guessed(each) is False for each in test.values]
        return False if (any if isinstance(test.op, ast.And) else all)(found) else None
    if "cuda" not in ast.unparse(test).lower():
        return None
    denies = any(
        isinstance(each, ast.Not | ast.NotEq | ast.IsNot | ast.NotIn | ast.Lt | ast.LtE)
        or (isinstance(each, ast.Compare) and isinstance(each.ops[0], ast.Eq | ast.Is | ast.In) and _is_nothing(each))
        for each in ast.walk(test)
    )
    return None if denies else False


def _is_nothing(compared: ast.Compare) -> bool:
    """Return whether a comparison is with the CPU, with zero or with None."""
    sides = (compared.left, *compared.comparators)
    return any(isinstance(each, ast.Constant) and each.value in ("cpu", 0, None, False) for each in sides)


def _swallows(node: ast.Try) -> bool:
    """Return whether a ``try`` goes on after every error that torch raises without CUDA."""
    for handler in node.handlers:
        caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
        names = {"" if each is None else ast.unparse(each) for each in caught}
        is_broad = bool(names & {"", "Exception", "BaseException"}) or names >= _TORCHS_ERRORS
        is_raised = any(isinstance(each, ast.Raise) for each in ast.walk(handler))
        if is_broad and not is_raised and not any(_EXITS_IN_HANDLER.search(ast.unparse(each)) for each in handler.body):
            return True
    return False
