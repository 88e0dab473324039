"""Visits a module once and records what each scope binds and reads."""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import libcst as cst
from libcst.helpers import get_full_name_for_node
from libcst.metadata.scope_provider import GlobalScope, ImportAssignment

from .scopes import Access, Scope, Scopes

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["scopes_of"]

Visit = Callable[["_Visitor", Any], None]

_NO_NAMES = re.compile(
    r"whitespace|_lines|lines_|^([lr](par|bracket|brace)|comma|semicolon|operator|equal|header|footer|dot|colon|\w+_colon)$"
)
_ORDER = {  # fields in the order of the source, where LibCST declares them in another one
    "IfExp": ("body", "test", "orelse"),
    "Parameters": ("posonly_params", "params", "star_arg", "kwonly_params", "star_kwarg"),
    "ExceptHandler": ("type", "name", "body"),
    "ExceptStarHandler": ("type", "name", "body"),
    "MatchCase": ("pattern", "guard", "body"),
}
_ENDS_ASSIGNMENT = (
    cst.AnnAssign,
    cst.AsName,
    cst.Assign,
    cst.AugAssign,
    cst.CompFor,
    cst.Import,
    cst.ImportFrom,
    cst.NamedExpr,
    cst.Parameters,
    cst.WithItem,
)
_TYPING = ("typing", "typing_extensions")


def scopes_of(module: cst.Module, of_kind: Callable[..., Iterable[Any]]) -> Scopes:
    """Return the scopes of a module.

    Args:
        module: its tree.
        of_kind: returns all nodes of some types in the tree.
    """
    visitor = _Visitor(_stored(of_kind), _names_of_typing(of_kind))
    visitor.visit(module)
    return Scopes(visitor.every, visitor.of_names, visitor.accesses)


def _stored(of_kind: Callable[..., Iterable[Any]]) -> set[cst.CSTNode]:
    """Return the names that are assigned, rather than read."""
    waiting = [target.target for node in of_kind(cst.Assign) for target in node.targets]
    waiting += [node.target for node in of_kind(cst.AnnAssign, cst.AugAssign, cst.NamedExpr, cst.CompFor, cst.For)]
    waiting += [node.name for node in of_kind(cst.AsName, cst.MatchAs, cst.MatchStar)]
    waiting += [node.rest for node in of_kind(cst.MatchMapping)]
    found: set[cst.CSTNode] = set()
    while waiting:
        node = waiting.pop()
        if isinstance(node, cst.Name):
            found.add(node)
        waiting += [each.value for each in node.elements] if isinstance(node, cst.Tuple | cst.List) else []
    return found


def _names_of_typing(of_kind: Callable[..., Iterable[Any]]) -> set[str]:
    """Return the names that may mean ``typing`` or a member of it."""
    found = set(_TYPING)
    for node in of_kind(cst.Import, cst.ImportFrom):
        names = () if isinstance(node.names, cst.ImportStar) else node.names
        for alias in names:
            origin = node.module if isinstance(node, cst.ImportFrom) else alias.name
            if origin is not None and (get_full_name_for_node(origin) or "").partition(".")[0] in _TYPING:
                found.add(alias.evaluated_alias or alias.evaluated_name.partition(".")[0])
    return found


class _Visitor:
    """Records the scopes, their assignments and the reads in them."""

    def __init__(self, stored: set[cst.CSTNode], of_typing: set[str]) -> None:
        self._stored, self._of_typing = stored, of_typing
        self.scope = Scope(Scope(None))
        self.every = [self.scope]
        self.of_names: dict[cst.CSTNode, Scope] = {}
        self.accesses: list[Access] = []
        self._chain: tuple[cst.Attribute, ...] | None = None
        self._is_annotation = self._is_hint = False
        self._literals = 0
        self._string: cst.CSTNode | None = None

    def visit(self, node: Any) -> None:
        """Visit a node and all in it, or several."""
        _VISITS[type(node)](self, node)

    def _within(self, scope: Scope, *nodes: Any) -> None:
        """Visit nodes in another scope."""
        outer, self.scope = self.scope, scope
        for node in nodes:
            self.visit(node)
        self.scope = outer

    def _new(self, *, is_class: bool = False, is_of_types: bool = False) -> Scope:
        scope = Scope(self.scope, is_class=is_class, is_of_types=is_of_types)
        self.every.append(scope)
        return scope

    def _define(self, node: cst.FunctionDef | cst.ClassDef | cst.Param) -> None:
        self.scope.bind(node.name.value, node)
        self.of_names[node.name] = self.scope

    def name(self, node: cst.Name) -> None:
        self.of_names[node] = self.scope
        if node in self._stored:
            self.scope.bind(node.value, node)
        else:
            self.accesses.append(Access(node, self.scope, (), self._string))

    def attribute(self, node: cst.Attribute) -> None:
        """Visit what an attribute is of; the name at the start of a dotted name is read with the attributes after it."""
        outer, chain = self._chain, [node]
        while isinstance(chain[-1].value, cst.Attribute):
            chain.append(chain[-1].value)
        start = chain[-1].value
        if isinstance(start, cst.Name):
            self.of_names[start] = self.scope
            around = tuple(chain) if outer is None else ()
            self.accesses.append(Access(start, self.scope, around, self._string))
            return
        self._chain = tuple(chain) if outer is None else outer
        self.visit(start)
        self._chain = outer

    def call(self, node: cst.Call) -> None:
        chain, is_hint = self._chain, self._is_hint
        self._chain, self._is_hint = None, False
        said = self._typing(node)
        self.visit(node.func)
        args = node.args
        if said & {"typing.NewType", "typing.TypeVar"}:
            self._is_hint = True
            args = args[1:]
        elif "typing.cast" in said and args:
            self._is_hint = True
            self.visit(args[0])
            self._is_hint = False
            args = args[1:]
        for each in args:
            self.visit(each.value)
        self._chain, self._is_hint = chain, is_hint

    def argument(self, node: cst.Arg) -> None:
        self.visit(node.value)

    def subscript(self, node: cst.Subscript) -> None:
        said = self._typing(node.value) if isinstance(node.value, cst.Name) else set()
        is_hint = self._is_hint
        self._is_hint = any(each.startswith(("typing.", "typing_extensions.")) for each in said)
        is_literal = bool(said & {"typing.Literal", "typing_extensions.Literal"})
        self._literals += is_literal
        self.visit(node.value)
        self.visit(node.slice)
        self._literals -= is_literal
        self._is_hint = is_hint

    def _typing(self, node: cst.CSTNode) -> set[str]:
        """Return the full names that a callee, or a name, may have so far; only names of ``typing`` are looked up."""
        start = node
        while isinstance(start, cst.Attribute | cst.Call | cst.Subscript):
            start = start.func if isinstance(start, cst.Call) else start.value
        if not isinstance(start, cst.Name) or start.value not in self._of_typing:
            return set()
        full = prefix = get_full_name_for_node(node) or ""
        while prefix and not self.scope.holds(prefix):
            prefix = prefix.rpartition(".")[0]
        found: set[str] = set()
        for each in self.scope[prefix] if prefix else ():
            if each.is_import:
                imported = ImportAssignment(each.name, GlobalScope(), each.node, 0, each.node)  # type: ignore[arg-type]
                found |= {qualified.name for qualified in imported.get_qualified_names_for(full)}
            elif self.scope.owner(prefix) is self.scope.top:
                found.add(full)
        return found

    def annotation(self, node: cst.Annotation) -> None:
        outer, self._is_annotation = self._is_annotation, True
        self.visit(node.annotation)
        self._is_annotation = outer

    def text(self, node: cst.SimpleString | cst.ConcatenatedString) -> None:
        """Visit the code in a string that is an annotation."""
        value = node.evaluated_value if (self._is_hint or self._is_annotation) and not self._literals else None
        if value:
            outer = self._string
            self._string = outer or node
            with contextlib.suppress(cst.ParserSyntaxError):  # not code
                self.visit(cst.parse_module(value))
            self._string = outer
        elif isinstance(node, cst.ConcatenatedString):
            self.visit(node.left)
            self.visit(node.right)

    def function(self, node: cst.FunctionDef) -> None:
        self._define(node)
        outer = self.scope
        if node.type_parameters:
            self.scope = self._new(is_of_types=True)
            self.visit(node.type_parameters)
        self._within(self._new(), node.params, node.body)
        self.visit(node.decorators)
        if node.returns:
            self.visit(node.returns)
        self.scope = outer
        outer.count += 1

    def function_of_expression(self, node: cst.Lambda) -> None:
        self._within(self._new(), node.params, node.body)

    def parameter(self, node: cst.Param) -> None:
        self._define(node)
        self._within(self.scope.parent, node.default, node.annotation)

    def class_(self, node: cst.ClassDef) -> None:
        self._define(node)
        outer = self.scope
        self.visit(node.decorators)
        if node.type_parameters:
            self.scope = self._new(is_of_types=True)
            self.visit(node.type_parameters)
        self.visit(node.bases)
        self.visit(node.keywords)
        self._within(self._new(is_class=True), node.body.body)
        self.scope = outer
        outer.count += 1

    def declaration(self, node: cst.Global | cst.Nonlocal) -> None:
        for each in node.names:
            self.scope.declare(each.name.value, is_global=isinstance(node, cst.Global))
        self.scope.count += 1

    def import_(self, node: cst.Import | cst.ImportFrom) -> None:
        for alias in () if isinstance(node.names, cst.ImportStar) else node.names:
            bound: cst.CSTNode = alias.asname.name if alias.asname else alias.name
            while isinstance(bound, cst.Attribute):
                self.scope.bind(get_full_name_for_node(bound) or "", node)
                bound = bound.value
            if isinstance(bound, cst.Name):
                self.scope.bind(bound.value, node)
        self.scope.count += 1

    def loop(self, node: cst.For) -> None:
        self.visit(node.target)
        self.scope.count += 1
        self.visit((node.iter, node.body, node.orelse))

    def comprehension(self, node: cst.ListComp | cst.SetComp | cst.DictComp | cst.GeneratorExp) -> None:
        first = node.for_in
        self.visit(first.iter)
        outer, self.scope = self.scope, self._new()
        self.visit(first.target)
        self.scope.count += 1
        self.visit((*first.ifs, first.inner_for_in))
        self.visit((node.key, node.value) if isinstance(node, cst.DictComp) else node.elt)
        self.scope = outer

    def type_alias(self, node: cst.TypeAlias) -> None:
        self.scope.bind(node.name.value, node)
        self._within(self._new(is_of_types=True), node.type_parameters, node.value)
        self.scope.count += 1

    def type_parameter(self, node: cst.TypeVar | cst.TypeVarTuple | cst.ParamSpec) -> None:
        self.scope.bind(node.name.value, node)
        self.visit(getattr(node, "bound", None))
        self.scope.count += 1

    def each(self, nodes: Iterable[Any]) -> None:
        for node in nodes:
            _VISITS[type(node)](self, node)

    def nothing(self, node: object) -> None:
        """Pass over a value that contains no name."""


class _Visits(dict[type[Any], Visit]):
    """How to visit each type of value: a tree's nodes, sequences of them, and what is neither."""

    def __missing__(self, kind: type[Any]) -> Visit:
        found: Visit = _Visitor.nothing
        if issubclass(kind, list | tuple):
            found = _Visitor.each
        elif issubclass(kind, cst.CSTNode):
            declared = [field.name for field in dataclasses.fields(kind) if not _NO_NAMES.search(field.name)]
            fields = _ORDER.get(kind.__name__, tuple(declared))
            if fields:
                found = _parts_visit(fields, ends_assignment=issubclass(kind, _ENDS_ASSIGNMENT))
        self[kind] = found
        return found


def _parts_visit(fields: tuple[str, ...], *, ends_assignment: bool) -> Visit:
    """Return how to visit a node of which only the parts matter."""

    def visit(visitor: _Visitor, node: cst.CSTNode) -> None:
        for name in fields:
            value = getattr(node, name)
            _VISITS[type(value)](visitor, value)
        visitor.scope.count += ends_assignment

    return visit


_VISITS = _Visits(
    {
        cst.Name: _Visitor.name,
        cst.Attribute: _Visitor.attribute,
        cst.Call: _Visitor.call,
        cst.Arg: _Visitor.argument,
        cst.Subscript: _Visitor.subscript,
        cst.Annotation: _Visitor.annotation,
        cst.SimpleString: _Visitor.text,
        cst.ConcatenatedString: _Visitor.text,
        cst.FunctionDef: _Visitor.function,
        cst.Lambda: _Visitor.function_of_expression,
        cst.Param: _Visitor.parameter,
        cst.ClassDef: _Visitor.class_,
        cst.Global: _Visitor.declaration,
        cst.Nonlocal: _Visitor.declaration,
        cst.Import: _Visitor.import_,
        cst.ImportFrom: _Visitor.import_,
        cst.For: _Visitor.loop,
        cst.ListComp: _Visitor.comprehension,
        cst.SetComp: _Visitor.comprehension,
        cst.DictComp: _Visitor.comprehension,
        cst.GeneratorExp: _Visitor.comprehension,
        cst.TypeAlias: _Visitor.type_alias,
        cst.TypeVar: _Visitor.type_parameter,
        cst.TypeVarTuple: _Visitor.type_parameter,
        cst.ParamSpec: _Visitor.type_parameter,
    }
)
