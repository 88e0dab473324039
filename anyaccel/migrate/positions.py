"""Faster versions of LibCST's positions and code generation, without unused objects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from libcst._nodes.internal import CodegenState

if TYPE_CHECKING:
    import libcst as cst

__all__ = ["positions_in", "written"]


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


def positions_in(module: cst.Module) -> dict[cst.CSTNode, tuple[int, int, int]]:
    """Return the first line and column of every node, and its last line; lines count from 1, columns from 0.

    The values equal those of LibCST's ``PositionProvider``, which creates five objects for each node.
    """
    state = _Positions(module.default_indent, module.default_newline)
    module._codegen(state)  # LibCST's provider does the same
    return state.found


class _Positions(CodegenState):
    """Code generation state that records where each node starts and ends."""

    def __init__(self, indent: str, newline: str) -> None:
        super().__init__(default_indent=indent, default_newline=newline)
        self.found: dict[cst.CSTNode, tuple[int, int, int]] = {}
        self.line, self.column = 1, 0
        self._began: list[tuple[int, int]] = []

    def add_indent_tokens(self) -> None:
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

    def before_codegen(self, _: cst.CSTNode) -> None:
        self._began.append((self.line, self.column))

    def after_codegen(self, node: cst.CSTNode) -> None:
        line, column = self._began.pop()
        self.found.setdefault(node, (line, column, self.line))

    def record_syntactic_position(
        self, node: cst.CSTNode, *, start_node: cst.CSTNode | None = None, end_node: cst.CSTNode | None = None
    ) -> Any:
        return _Syntactic(self, node, start_node, end_node)


class _Syntactic:
    """Records a node's position without surrounding whitespace; other nodes may define its start or its end."""

    __slots__ = ("_end", "_node", "_place", "_start", "_state")

    def __init__(
        self, state: _Positions, node: cst.CSTNode, start: cst.CSTNode | None, end: cst.CSTNode | None
    ) -> None:
        self._state, self._node, self._start, self._end = state, node, start, end

    def __enter__(self) -> None:
        self._place = (self._state.line, self._state.column)

    def __exit__(self, *_: object) -> None:
        found = self._state.found
        line, column = self._place if self._start is None else found[self._start][:2]
        found[self._node] = (line, column, self._state.line if self._end is None else found[self._end][2])
