"""Positions and texts of a tree are LibCST's own, which takes longer for them."""

from __future__ import annotations

import libcst as cst
import pytest
from libcst.metadata import MetadataWrapper, PositionProvider

from anyaccel.migrate.positions import positions_in, written

from . import corpus

LAYOUTS = [
    "",
    "# only a comment",
    "x = (\n    1,  # one\n    2,\n)\r\nif x:\r\n\ty = f'''a\n{x}'''\r\n",
    "def f(\n    a=[  # list\n        1\n    ]\n):\n    return lambda: (\n        a\n    )\n\n\n@d\nclass C: pass; x = 1\n",
    "with (a as b, c):\n    match x:\n        case {'a': 1, **r} if r: pass\n",
]


@pytest.mark.parametrize("source", [*LAYOUTS, *map(corpus.before, corpus.names())])
def test_they_are_those_of_libcst(source: str) -> None:
    wrapper = MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)
    expected = wrapper.resolve(PositionProvider)
    found = positions_in(wrapper.module)
    assert {node: (at.start.line, at.start.column, at.end.line) for node, at in expected.items()} == found
    assert written(wrapper.module, wrapper.module) == source
    for node in found:
        if isinstance(node, cst.BaseExpression | cst.BaseStatement):
            assert written(wrapper.module, node) == wrapper.module.code_for_node(node)
