"""Scopes are those of LibCST's ``ScopeProvider``, which takes longer for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst
import pytest
from libcst.metadata import MetadataWrapper, ScopeProvider
from libcst.metadata.scope_provider import ImportAssignment

from anyaccel.migrate.project import Project
from anyaccel.migrate.source_view import SourceView

from . import corpus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from libcst.metadata.scope_provider import Scope as LibcstScope

TRICKY = [
    "import torch.cuda\nimport torch as t, a.b.c\ntorch.cuda.x(torch.y, a.b.c.d, a.z); del torch\n",
    "x = x\nx = f(x)\ndef f(x=x, *, y: x = 1) -> x:\n    global z\n    x, (z, *q) = x, y\n    return lambda x: x + z\n",
    "class C(x):\n    x = 1\n    y = [x for _ in x if x]\n    def f(self): return x, y\n    class D: x = x\n",
    "def f():\n    print(x); x = 1\n    def g():\n        nonlocal x\n        x += (y := x)\n    return g, y\nx = 2\n",
    "from typing import Optional as O, Literal as L, cast, TypeVar\nimport torch\nT = TypeVar('T', bound='torch.T')\n"
    "def f(a: 'torch.A', b: O['torch.B'], c: L['torch']): return cast('torch.C', a)[b.c].d\n",
    "try: import torch\nexcept E as e: torch = e\nelse: torch.cuda\nwith a as b, c as (d, e.f): b, d, e\nfor i in i: i\n",
    "x = [y for x in x for y in x if (z := y)]; y, z = (lambda y: (y, z)), {k: v async for k, v in z}\n",
    "type X[T] = list[T]\nclass C[T: int](B[T]):\n    def f[S](self, a: S, b: T = T) -> X[S]: return T, S\n",
    "a = b if (b := c) else b\n@a.b\ndef f(x, /, y, *z, **k): f.x = x[y.z].w; (a or torch.cuda).x\nprint(len, torch.cuda)\n",
]


@pytest.mark.parametrize("source", [*TRICKY, *map(corpus.before, corpus.names())])
def test_they_are_those_of_libcst(source: str) -> None:
    view = SourceView(source, Project())
    scopes: Mapping[cst.CSTNode, LibcstScope | None] = MetadataWrapper(view.module, unsafe_skip_copy=True).resolve(
        ScopeProvider
    )
    for name in view.of(cst.Name):
        expected, found = scopes.get(name), view._scopes.of_names.get(name)
        assert (expected is None) == (found is None), name.value
        if expected is not None and found is not None:
            assert {each.node for each in found[name.value]} == {
                getattr(each, "node", None) for each in expected[name.value]
            }, name.value
            reads = {read.node for each in expected[name.value] for read in each.references}
            assert set(view._scopes.uses(name) or ()) == reads, name.value
    every = {scope for scope in scopes.values() if scope is not None}
    imports = {
        (each.node, each.name): {read.node for read in each.references}
        for scope in every
        for each in scope.assignments
        if isinstance(each, ImportAssignment)
    }
    found_imports = {
        (each.node, each.name): set(view._scopes.reads(scope, each.name, each.index))
        for each, scope in view._scopes.imports()
    }
    assert found_imports == imports
    unbound = {read.node for scope in every for read in scope.accesses if not read.referents}
    of_torch = {each for each in unbound if isinstance(each, cst.Name) and each.value == "torch"}
    assert set(view._scopes.unbound("torch")) == of_torch
