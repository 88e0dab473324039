"""A module's tree with the lookups that the rules need: parents, positions, imported names and assigned values."""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left, bisect_right
from functools import cached_property
from typing import TYPE_CHECKING, Any

import libcst as cst

from .lines import ignored_lines
from .nodes import dotted, is_whitespace, pairs, parts, text_of, unpacked
from .parsing import parse
from .positions import Layout, written
from .rebound import has_two_meanings
from .scope_visitor import scopes_of
from .scopes import imports_package

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .project import Project
    from .scopes import Binding

__all__ = ["SourceView", "dotted", "text_of"]

_SUBMODULES = re.compile(r"^torch\.cuda\.(random|memory|streams|graphs)\.(?=\w+$)")
_OF_TENSORS = ("shape", "size", "dtype", "ndim", "numel", "requires_grad", "grad_fn")
_AMP_MODULES = re.compile(r"^torch\.cuda\.amp\.(autocast_mode|grad_scaler)\.")


class SourceView:
    """A module and its metadata.

    Args:
        source: the module's source.
        project: facts about the project's modules.

    Raises:
        SourceError: when it is not Python, with the line.
    """

    def __init__(self, source: str, project: Project) -> None:
        module = parse(source)
        self.module, self.source, self.project = module, source, project
        self.told: dict[tuple[Any, ...], set[Any]] = {}  # what :mod:`.kinds` has found out, and the calls it groups
        self.callers: dict[str, dict[cst.CSTNode | None, list[cst.Call]]] = {}
        self._codes: dict[cst.CSTNode, str] = {}
        self._parents: dict[cst.CSTNode, cst.CSTNode] = {}
        self._by_kind: dict[type[cst.CSTNode], list[cst.CSTNode]] = {}
        self._collect(module)
        self._scopes = scopes_of(module, self.of)
        self.imported: dict[cst.CSTNode, str] = {}
        self.ambiguous: set[cst.CSTNode] = set()
        self.rebound: list[cst.CSTNode] = []  # names from torch.cuda that also mean something else
        self.import_references: dict[cst.CSTNode, dict[str, list[cst.CSTNode]]] = {}
        self._resolve_imports()
        self.imported = dict(sorted(self.imported.items(), key=lambda item: self.place(item[0])))
        self.ignored = ignored_lines(source)

    def _collect(self, module: cst.Module) -> None:
        """Record every node's parent and the nodes of each type, except whitespace, which is never a site."""
        waiting: list[cst.CSTNode] = [module]
        self._order: list[cst.CSTNode] = []
        self._places: dict[cst.CSTNode, int] = {}
        while waiting:
            node = waiting.pop()
            self._places[node] = len(self._order)
            self._order.append(node)
            self._by_kind.setdefault(type(node), []).append(node)
            children = [child for child in parts(node) if not is_whitespace(type(child))]
            for child in children:
                self._parents[child] = node
            waiting += reversed(children)
        self._ends = list(range(len(self._order)))  # the place of the last node in each node
        for place in range(len(self._order) - 1, 0, -1):
            around = self._places[self._parents[self._order[place]]]
            self._ends[around] = max(self._ends[around], self._ends[place])
        self._places_of: dict[tuple[type[Any], ...], list[int]] = {}

    def place(self, node: cst.CSTNode) -> int:
        """Return a sort key for the order in the source; the order of LibCST's sets differs between runs."""
        return self._places[node]

    @cached_property
    def layout(self) -> Layout:
        """The position and the code of every node; computed only if it is needed."""
        return Layout(self.module)

    def position(self, node: cst.CSTNode) -> tuple[int, int]:
        """Return the line and the column of a node, both from 1."""
        line, column, _ = self.layout.found[node]
        return line, column + 1

    def end_line(self, node: cst.CSTNode) -> int:
        """Return the last line of a node."""
        return self.layout.found[node][2]

    def parent(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """Return the parent of a node; None for the module."""
        return self._parents.get(node)

    def ancestors(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        """Yield the ancestors of a node, innermost first."""
        around = self._parents.get(node)
        while around is not None:
            yield around
            around = self._parents.get(around)

    def code(self, node: cst.CSTNode) -> str:
        """Return the code of a node."""
        found = self._codes.get(node)
        if found is None:
            known = self.layout.code(node)
            found = self._codes[node] = written(self.module, node) if known is None else known
        return found

    def of(self, *kinds: type[Any]) -> Iterator[Any]:
        """Yield the nodes of the given types."""
        return (node for kind in kinds for node in self._by_kind.get(kind, ()))

    def inside(self, outer: cst.CSTNode, *kinds: type[Any]) -> Iterator[Any]:
        """Yield the nodes of the given types in a node, including the node itself, in order."""
        start = self._places.get(outer)
        if start is None:  # new code, which is not in the tree
            yield from (outer,) if isinstance(outer, kinds) else ()
            for part in parts(outer):
                yield from self.inside(part, *kinds)
            return
        places = self._places_of.get(kinds)
        if places is None:
            found = (each for kind, each in self._by_kind.items() if issubclass(kind, kinds))
            places = self._places_of[kinds] = sorted(self._places[node] for nodes in found for node in nodes)
        for index in range(bisect_left(places, start), bisect_right(places, self._ends[start])):
            yield self._order[places[index]]

    def name(self, node: cst.CSTNode) -> str:
        """Return the full name of an imported dotted name, such as ``torch.cuda.amp.autocast``; '' for other nodes."""
        return self.imported.get(node, "")

    def is_within(self, node: cst.CSTNode, outer: cst.CSTNode) -> bool:
        """Return whether a node is another node or inside it."""
        start, place = self._places.get(outer), self._places.get(node)
        if start is None or place is None:
            return node is outer  # new code is not in the tree
        return start <= place <= self._ends[start]

    def _resolve_imports(self) -> None:
        """Find every dotted name that starts with an imported name, and its full name."""
        for binding, scope in self._scopes.imports():
            has_two = has_two_meanings(self.ancestors, binding, scope.bindings[binding.name])
            for node in self._scopes.reads_of_import(binding, scope):
                if has_two:
                    self.rebound.append(node)
                else:
                    self._resolve(binding, node)
        for node in self._scopes.unbound("torch"):  # from an earlier notebook cell or a star import
            self._record(node, "torch")
        for made in self.of(cst.Assign):  # torch = lazily_imported(); torch, nn = try_import_torch()
            targets = made.targets if isinstance(made.value, cst.Call) else ()
            names = [each for target in targets for each in self.inside(target, cst.Name)]
            bound = (each for each in names if isinstance(self.parent(each), cst.AssignTarget | cst.Element))
            for node in (use for each in bound if each.value == "torch" for use in self.uses(each) or ()):
                self._record(node, "torch")
        for each in self.of(cst.Param):  # a function that is given the module
            for node in (self.uses(each.name) or ()) if each.name.value == "torch" else ():
                self._record(node, "torch")

    def _resolve(self, assignment: Binding, node: cst.CSTNode) -> None:
        statement = assignment.node
        assert isinstance(statement, cst.Import | cst.ImportFrom)  # noqa: S101  # an import is one of these
        for alias in statement.names if not isinstance(statement.names, cst.ImportStar) else ():
            bound = alias.evaluated_alias or (
                alias.evaluated_name if isinstance(statement, cst.Import) else alias.name.value
            )
            is_plain = isinstance(statement, cst.Import) and alias.asname is None
            if bound != assignment.name and not (is_plain and str(bound).startswith(f"{assignment.name}.")):
                continue  # `import torch.cuda` also binds torch
            if isinstance(statement, cst.ImportFrom):
                if statement.relative or statement.module is None:
                    continue
                prefix = f"{dotted(statement.module)}.{alias.evaluated_name}"
            else:
                prefix = alias.evaluated_name if alias.evaluated_alias else str(dotted(node))
            self.import_references.setdefault(statement, {}).setdefault(assignment.name, []).append(node)
            self._record(node, prefix)

    def _record(self, node: cst.CSTNode, prefix: str) -> None:
        while True:
            if self.imported.setdefault(node, _canonical(prefix)) != _canonical(prefix):
                self.ambiguous.add(node)
            around = self._parents.get(node)
            if not isinstance(around, cst.Attribute) or around.value is not node:
                return
            node, prefix = around, f"{prefix}.{around.attr.value}"

    @cached_property
    def assigned(self) -> dict[str, list[cst.BaseExpression]]:
        """The values that the module assigns to a name or an attribute, by the target's code (``"self.device"``)."""
        found: dict[str, list[cst.BaseExpression]] = {}
        for node in self.of(cst.Assign, cst.AnnAssign, cst.NamedExpr):
            targets = [each.target for each in node.targets] if isinstance(node, cst.Assign) else [node.target]
            for target in targets:
                for each, value in pairs(target, node.value) or [(target, node.value)]:
                    if (name := dotted(each)) is not None and value is not None:
                        found.setdefault(name, []).append(value)
        return found

    def values_of(self, node: cst.BaseExpression) -> list[cst.BaseExpression]:
        """Return the values assigned to a name in the scope where it is read, or to an attribute with this code."""
        if not isinstance(node, cst.Name):
            values = self.assigned.get(dotted(node) or "", [])
            owner = self.class_around(node)
            own = [value for value in values if self.class_around(value) is owner]
            return own if (dotted(node) or "").startswith("self.") and own else values
        values = []
        for bound in self.bindings_of(node):
            around = self.parent(bound)
            owner = self.parent(around) if isinstance(around, cst.AssignTarget) else around
            if isinstance(owner, cst.Assign | cst.AnnAssign | cst.NamedExpr) and owner.value is not None:
                values.append(owner.value)
            elif isinstance(around, cst.Element):
                values += unpacked(around, *itertools.islice(self.ancestors(around), 3))
        return values

    def bindings_of(self, node: cst.CSTNode) -> list[cst.CSTNode]:
        """Return what binds a name, where it is read: other names, definitions and imports."""
        scope = self._scopes.of_names.get(node)
        given = scope[node.value] if scope is not None and isinstance(node, cst.Name) else ()
        return [each.node for each in given if each.node is not None]

    def class_around(self, node: cst.CSTNode) -> cst.CSTNode | None:
        """Return the innermost class around a node."""
        return next((each for each in self.ancestors(node) if isinstance(each, cst.ClassDef)), None)

    def function_around(self, node: cst.CSTNode) -> cst.FunctionDef | None:
        """Return the innermost function around a node; None at a module's top."""
        return next((each for each in self.ancestors(node) if isinstance(each, cst.FunctionDef)), None)

    @cached_property
    def names_of_tensors(self) -> set[str]:
        """The names of which this file reads an attribute that tensors have, such as ``x`` of ``x.shape``."""
        return {
            name
            for each in self.of(cst.Attribute)
            if each.attr.value in _OF_TENSORS and (name := dotted(each.value)) is not None
        }

    @cached_property
    def compared_with_numbers(self) -> dict[str, list[cst.Comparison]]:
        """The comparisons of a name with an integer, by name: ``gpu >= 0``, ``-1 != args.gpu``."""
        found: dict[str, list[cst.Comparison]] = {}
        for node in self.of(cst.Comparison):
            sides = [node.left, *(each.comparator for each in node.comparisons)]
            numbers = [each.expression if isinstance(each, cst.UnaryOperation) else each for each in sides]
            if any(isinstance(each, cst.Integer) for each in numbers):
                for name in filter(None, map(dotted, sides)):
                    found.setdefault(name, []).append(node)
        return found

    def loops_of(self, node: cst.BaseExpression) -> list[cst.For | cst.CompFor]:
        """Return the loops and comprehensions that bind a name."""
        around = map(self.parent, self.bindings_of(node))
        return [each for each in around if isinstance(each, cst.For | cst.CompFor)]

    @cached_property
    def _calls(self) -> dict[str, list[cst.Call]]:
        found: dict[str, list[cst.Call]] = {}
        for call in self.of(cst.Call):
            func = call.func
            name = (
                func.attr.value if isinstance(func, cst.Attribute) else func.value if isinstance(func, cst.Name) else ""
            )
            found.setdefault(name, []).append(call)
        return found

    def calls_of(self, name: str) -> list[cst.Call]:
        """Return the calls of every function, class or method with a given name."""
        return self._calls.get(name, [])

    def parameter(self, node: cst.BaseExpression) -> cst.Param | None:
        """Return the parameter with the name of a node, from the innermost enclosing function that has one."""
        if not isinstance(node, cst.Name):
            return None
        for around in self.ancestors(node):
            if isinstance(around, cst.FunctionDef | cst.Lambda):
                every = [*around.params.posonly_params, *around.params.params, *around.params.kwonly_params]
                found = next((each for each in every if each.name.value == node.value), None)
                if found is not None:
                    return found
        return None

    @cached_property
    def defined_names(self) -> set[str]:
        """The names of the functions, classes, parameters and variables that the module defines."""
        found = {node.name.value for node in self.of(cst.FunctionDef, cst.ClassDef, cst.Param)}
        return found | {name for name in self.assigned if "." not in name}

    @cached_property
    def bound_names(self) -> set[str]:
        """Every name that the module binds in some scope."""
        return {name.partition(".")[0] for scope in self._scopes.every for name in scope.bindings}

    def has_other_meaning(self, package: str) -> bool:
        """Return whether some scope binds a package's name, and not by importing it."""
        return not all(imports_package(each, package) for each in self._scopes.bindings_of(package))

    @cached_property
    def has_torch(self) -> bool:
        """Whether the module itself imports torch by this name, also in a ``try`` or under ``if TYPE_CHECKING:``."""
        for node in self.of(cst.Import):
            is_inner = any(isinstance(each, cst.FunctionDef | cst.ClassDef) for each in self.ancestors(node))
            names = [str(each.evaluated_name) for each in node.names if each.asname is None]
            if not is_inner and any(name == "torch" or name.startswith("torch.") for name in names):
                return True
        return False

    def uses(self, target: cst.CSTNode) -> list[cst.CSTNode] | None:
        """Return the nodes that read the name that a target binds; None if they cannot be determined."""
        uses = self._scopes.uses(target) if isinstance(target, cst.Name) else None
        return None if uses is None else sorted(uses, key=self.place)

    def is_ignored(self, node: cst.CSTNode, rule: str) -> bool:
        """Return whether an ignore comment applies to a node: on its lines, at its statement's end, or for the file."""
        if not self.ignored:
            return False
        lines = range(self.position(node)[0], self.end_line(node) + 1)
        for number in (0, *lines, self._statement_end(node)):
            rules = self.ignored.get(number)
            if rules is not None and (not rules or rule in rules):
                return True
        return False

    def _statement_end(self, node: cst.CSTNode) -> int:
        """Return the last line of a node's statement, or of the header of a compound statement."""
        for around in (node, *self.ancestors(node)):
            if isinstance(around, cst.SimpleStatementLine):
                return self.end_line(around)
            if isinstance(around, cst.BaseCompoundStatement):
                suite = getattr(around, "body", None)  # a match statement has cases instead
                body = suite.body if isinstance(suite, cst.BaseSuite) else ()
                return self.position(body[0])[0] - 1 if body else self.end_line(around)
        return 0


def _canonical(name: str) -> str:
    """Return the canonical name of a member of a ``torch.cuda`` submodule."""
    return _AMP_MODULES.sub("torch.cuda.amp.", _SUBMODULES.sub("torch.cuda.", name))
