"""Which name means which assignment: the scopes of a module, as LibCST's ``ScopeProvider`` finds them.

LibCST visits a tree by building a new one, and keeps every pair of a read and an assignment, which is quadratic for a name
that is often assigned. This analysis visits each node once, and works out the reads of a name when a rule asks. What it
finds is the same: a name is found in the innermost scope that binds it; classes hide theirs from the functions inside
them; a read before the first assignment in a scope belongs to the scope outside, too; and names in strings that are
annotations count.
"""

from __future__ import annotations

import builtins
from collections import defaultdict
from typing import TYPE_CHECKING

import libcst as cst

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Access", "Binding", "Scope", "Scopes", "imports_package"]


class Binding:
    """An assignment of a name.

    Attributes:
        name: the name; for ``import a.b`` both ``a`` and ``a.b``.
        node: the name, definition, parameter or import statement; None for a builtin.
        index: how many assignments ended before it in its scope.
    """

    __slots__ = ("index", "name", "node")

    def __init__(self, name: str, node: cst.CSTNode | None, index: int) -> None:
        self.name, self.node, self.index = name, node, index

    @property
    def is_import(self) -> bool:
        """Whether an import binds the name."""
        return isinstance(self.node, cst.Import | cst.ImportFrom)


def imports_package(binding: Binding, package: str) -> bool:
    """Return whether a binding is an import of a package by its own name: ``import a``, ``import a.b``."""
    names = binding.node.names if isinstance(binding.node, cst.Import) else ()
    return any(each.asname is None and str(each.evaluated_name).partition(".")[0] == package for each in names)


class Access:
    """A read of a name.

    Attributes:
        name: the name, or as much of a dotted name as an import binds.
        node: the node of that name; for a name in a string that is an annotation, the string.
        scope: the scope around it.
        index: how many assignments ended before it in its scope.
        chain: the attributes around the name, outermost first.
    """

    __slots__ = ("chain", "index", "name", "node", "scope")

    def __init__(
        self, node: cst.Name, scope: Scope, chain: tuple[cst.Attribute, ...], within: cst.CSTNode | None
    ) -> None:
        self.node: cst.CSTNode = within or node
        self.name, self.scope, self.index, self.chain = node.value, scope, scope.count, chain


class Scope:
    """A scope of names.

    Args:
        parent: the scope outside; None for that of the builtins.
        is_class: whether it is a class's, whose names functions in it do not see.
        is_of_types: whether it is that of type parameters, which see the names of a class.

    Attributes:
        bindings: the assignments, by name.
        count: how many assignments have ended so far.
        elsewhere: the scopes of the names that are declared global or nonlocal.
    """

    __slots__ = ("bindings", "count", "elsewhere", "is_class", "is_of_types", "parent", "top")

    def __init__(self, parent: Scope | None, *, is_class: bool = False, is_of_types: bool = False) -> None:
        self.parent: Scope = parent or self
        self.top: Scope = self if parent is None or parent.is_builtins else parent.top
        self.is_class, self.is_of_types = is_class, is_of_types
        self.bindings: dict[str, list[Binding]] = {}
        self.elsewhere: dict[str, Scope] = {}
        self.count = 0

    @property
    def is_builtins(self) -> bool:
        """Whether it is the scope of the builtins."""
        return self.parent is self

    def _visible(self, asking: Scope) -> Scope:
        """Return this scope, or the first one outside of it that shows its names to another scope."""
        scope = self
        while scope.is_class and not (asking.is_of_types and asking.parent is scope):
            scope = scope.parent
        return scope

    def bind(self, name: str, node: cst.CSTNode) -> None:
        """Record an assignment."""
        scope = self
        while name in scope.elsewhere:
            scope = scope.elsewhere[name]._visible(scope)
        scope.bindings.setdefault(name, []).append(Binding(name, node, scope.count))

    def declare(self, name: str, *, is_global: bool) -> None:
        """Record that a name is declared global or nonlocal."""
        if self is not self.top:
            self.elsewhere[name] = self.top if is_global else self.parent

    def owner(self, name: str) -> Scope | None:
        """Return the scope whose assignment a name means here; None if there is none."""
        scope = self
        while name not in scope.bindings or name in scope.elsewhere:
            if scope.is_builtins:
                if not hasattr(builtins, name):
                    return None
                scope.bindings[name] = [Binding(name, None, -1)]
                return scope
            scope = scope.elsewhere.get(name, scope.parent)._visible(self)
        return scope

    def __getitem__(self, name: str) -> list[Binding]:
        """Return the assignments that a name may mean here."""
        owner = self.owner(name)
        return [] if owner is None else owner.bindings[name]

    def holds(self, name: str) -> bool:
        """Return whether a name, which may be dotted, is bound here or outside."""
        scope = self
        while name not in scope.bindings or name in scope.elsewhere:
            if scope.is_builtins:
                return hasattr(builtins, name)
            scope = scope.elsewhere[name] if name in scope.elsewhere else scope.parent._visible(scope)
        return True


class Scopes:
    """All scopes of a module.

    Args:
        every: every scope.
        of_names: the scope around each name that is read or assigned.
        accesses: every read, in order.
    """

    def __init__(self, every: list[Scope], of_names: dict[cst.CSTNode, Scope], accesses: list[Access]) -> None:
        self.every, self.of_names, self.accesses = every, of_names, accesses
        self._reads: dict[tuple[Scope, str], list[Access]] = {}
        self._hidden: set[Access] = set()  # reads of a name that their function assigns later
        for (scope, name), reads in self._grouped().items():
            self._give(scope, name, reads)

    def _grouped(self) -> dict[tuple[Scope, str], list[Access]]:
        groups: dict[tuple[Scope, str], list[Access]] = defaultdict(list)
        dotted = {name for scope in self.every for name in scope.bindings if "." in name}
        starts = {name.partition(".")[0] for name in dotted}
        for access in self.accesses:
            for number, around in enumerate(access.chain if access.name in starts else ()):
                name = ".".join([access.name, *(each.attr.value for each in reversed(access.chain[number:]))])
                if name in dotted and access.scope.holds(name):
                    access.name = name
                    access.node = around if isinstance(access.node, cst.Name) else access.node
                    break
            groups[access.scope, access.name].append(access)
        return groups

    def _give(self, scope: Scope, name: str, reads: list[Access]) -> None:
        """Record which scope's assignments some reads in a scope may mean."""
        owner = scope.owner(name)
        if owner is None:
            return
        self._reads.setdefault((owner, name), []).extend(reads)
        if owner is scope:
            last = max(each.index for each in owner.bindings[name])
            earlier = [each for each in reads if each.index <= last]
            outer = owner.parent.owner(name) if earlier else None
            if outer is not None:
                self._reads.setdefault((outer, name), []).extend(earlier)
                self._hidden.update(() if scope.is_class else earlier)

    def reads(self, owner: Scope, name: str, after: int) -> Iterator[cst.CSTNode]:
        """Yield the reads of a name that may mean an assignment in a scope with a given index."""
        for access in self._reads.get((owner, name), ()):
            if access.scope is not owner or after < access.index:
                yield access.node

    def bindings_of(self, name: str) -> list[Binding]:
        """Return the assignments of a name in all scopes."""
        return [each for scope in self.every for each in scope.bindings.get(name, ())]

    def imports(self) -> Iterator[tuple[Binding, Scope]]:
        """Yield each name that an import binds, with the scope that it is bound in."""
        for scope in self.every:
            for bindings in scope.bindings.values():
                yield from ((each, scope) for each in bindings if each.is_import)

    def reads_of_import(self, binding: Binding, owner: Scope) -> Iterator[cst.CSTNode]:
        """Yield the reads that may mean an import, where Python is stricter than LibCST.

        A name that a function assigns is its own before the assignment, too.
        """
        for access in self._reads.get((owner, binding.name), ()):
            if access.scope is owner:
                if binding.index < access.index:
                    yield access.node
            elif access not in self._hidden:
                yield access.node

    def uses(self, target: cst.Name) -> list[cst.CSTNode] | None:
        """Return the reads of the name that a target binds; None for a target that is not in the tree."""
        scope = self.of_names.get(target)
        if scope is None:
            return None
        owner = scope.owner(target.value)
        if owner is None:
            return []
        first = min(each.index for each in owner.bindings[target.value])
        return list(dict.fromkeys(self.reads(owner, target.value, first)))

    def unbound(self, name: str) -> Iterator[cst.CSTNode]:
        """Yield the reads of a name that no assignment precedes: one of a notebook's earlier cells may bind it."""
        for access in self.accesses:
            if access.name == name and isinstance(access.node, cst.Name) and not self._is_bound(access):
                yield access.node

    @staticmethod
    def _is_bound(access: Access) -> bool:
        scope, owner = access.scope, access.scope.owner(access.name)
        if owner is None:
            return False
        if owner is not scope or any(each.index < access.index for each in owner.bindings[access.name]):
            return True
        return bool(scope.parent[access.name])
