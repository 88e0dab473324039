"""Faster versions of LibCST's positions and code generation, without unused objects and with one walk for all nodes."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Any

import libcst as cst
from libcst._nodes.internal import CodegenState

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Layout", "written"]


def written(module: cst.Module, node: cst.CSTNode) -> str:
    """Return the code of a node, like ``module.code_for_node`` but without a context manager for each node in it."""
    state = _Writer(module.default_indent, module.default_newline)
    node._codegen(state)
    return "".join(state.tokens)


class _Nothing:
    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, *_: object) -> None:
        """Do nothing."""


_NOTHING = _Nothing()


class _Writer(CodegenState):
    """Code generation state that records no positions."""

    def record_syntactic_position(self, *_: Any, **__: Any) -> Any:
        return _NOTHING


class Layout(CodegenState):
    """Where each node of a module starts and ends, and its code; found by generating the module's code once.

    The positions equal those of LibCST's ``PositionProvider``, which creates five objects for each node.

    Args:
        module: the module.

    Attributes:
        found: the first line and column of every node, and its last line; lines count from 1, columns from 0.
    """

    def __init__(self, module: cst.Module) -> None:
        super().__init__(default_indent=module.default_indent, default_newline=module.default_newline)
        self.found: dict[cst.CSTNode, tuple[int, int, int]] = {}
        self.line, self.column = 1, 0
        self._began: list[tuple[int, int, int]] = []
        self._tokens_of: dict[cst.CSTNode, tuple[int, int, int]] = {}  # the first, the end, and the indentation's depth
        self._indented: list[int] = []  # the tokens that start the indentation of a line
        self._elifs: set[cst.CSTNode] = set()
        self._is_cut = False
        module._codegen(self)  # LibCST's provider does the same

    def code(self, node: cst.CSTNode) -> str | None:
        """Return the code of a node on its own, as :func:`written` does, without its block's indentation.

        None is for a node that is not in the module, and for an ``elif``, which is an ``if`` on its own.
        """
        if node not in self._tokens_of or node in self._elifs:
            return None
        first, end, depth = self._tokens_of[node]
        kept: list[str] = []
        lines = bisect_left(self._indented, first), bisect_left(self._indented, end)
        for start in self._indented[slice(*lines)] if depth else ():
            kept += self.tokens[first:start]
            first = start + depth
        return "".join([*kept, *self.tokens[first:end]])

    def spliced(self, new: Mapping[cst.CSTNode, tuple[cst.CSTNode, list[str]]]) -> str:
        """Return the module's code with some of its nodes replaced.

        Args:
            new: by old node, the new one, and the indentation of each block around it. No old node is in another.
        """
        texts: list[str] = []
        place = 0
        for old in sorted(new, key=lambda each: self._tokens_of[each]):
            first, end, _ = self._tokens_of[old]
            state = _Writer(self.default_indent, self.default_newline)
            state.indent_tokens = new[old][1]
            new[old][0]._codegen(state)
            texts += self.tokens[place:first] + state.tokens
            place = end
        texts += self.tokens[place:]
        return "".join(texts[:-1] if self._is_cut else texts)

    def add_indent_tokens(self) -> None:
        if self.indent_tokens:
            self._indented.append(len(self.tokens))
        for token in self.indent_tokens:
            self.add_token(token)

    def add_token(self, value: str) -> None:
        self.tokens.append(value)
        if "\n" not in value and "\r" not in value:
            self.column += len(value)
            return
        lines = value.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self.line += len(lines) - 1
        self.column = len(lines[-1])

    def before_codegen(self, node: cst.CSTNode) -> None:
        self._began.append((self.line, self.column, len(self.tokens)))
        if type(node) is cst.If and type(node.orelse) is cst.If:
            self._elifs.add(node.orelse)

    def after_codegen(self, node: cst.CSTNode) -> None:
        line, column, first = self._began.pop()
        self.found.setdefault(node, (line, column, self.line))
        self._tokens_of[node] = (first, len(self.tokens) - self._is_cut, len(self.indent_tokens))

    def pop_trailing_newline(self) -> None:
        self._is_cut = True  # from the module only: its last line on its own ends with the newline

    def record_syntactic_position(
        self, node: cst.CSTNode, *, start_node: cst.CSTNode | None = None, end_node: cst.CSTNode | None = None
    ) -> Any:
        return _Syntactic(self, node, start_node, end_node)


class _Syntactic:
    """Records a node's position without surrounding whitespace; other nodes may define its start or its end."""

    __slots__ = ("_end", "_node", "_place", "_start", "_state")

    def __init__(self, state: Layout, node: cst.CSTNode, start: cst.CSTNode | None, end: cst.CSTNode | None) -> None:
        self._state, self._node, self._start, self._end = state, node, start, end

    def __enter__(self) -> None:
        self._place = (self._state.line, self._state.column)

    def __exit__(self, *_: object) -> None:
        found = self._state.found
        line, column = self._place if self._start is None else found[self._start][:2]
        found[self._node] = (line, column, self._state.line if self._end is None else found[self._end][2])
