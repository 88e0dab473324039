"""Positions and texts of a tree are LibCST's own, which takes longer for them."""

from __future__ import annotations

import libcst as cst
import pytest
from libcst.metadata import MetadataWrapper, PositionProvider

from anyaccel.migrate.positions import Layout, written

from . import corpus

LAYOUTS = [
    "",
    "# only a comment",
    "x = (\n    1,  # one\n    2,\n)\r\nif x:\r\n\ty = f'''a\n{x}'''\r\n",
    "def f(\n    a=[  # list\n        1\n    ]\n):\n    return lambda: (\n        a\n    )\n\n\n@d\nclass C: pass; x = 1\n",
    "with (a as b, c):\n    match x:\n        case {'a': 1, **r} if r: pass\n",
    "if a:\n    pass\n# other\nelif b:\n    if c: x\n    elif d:\n        y\n    else: z\nelse:\n    pass\n",
    "class C:\n  def f(self):\n\n    # first\n    x = [\n      1,\n      # two\n    ]\n    # last\n  # after\ny\n",
    "while x:\n\tfor i in a, b:\n\t\ttry: f()\n\t\texcept (A, B) as e: raise E from e; print(e)\n",
    "try:\n  x\nfinally:\n  x = \\\n    1\n",
    "async def f(a, /, b: int = 1, *, c=2, **d) -> 'x':\n    async with y as z: yield await (\n        z\n    )\n",
    "def f(): yield from a\n",
]


@pytest.mark.parametrize("source", [*LAYOUTS, *map(corpus.before, corpus.names())])
def test_they_are_those_of_libcst(source: str) -> None:
    wrapper = MetadataWrapper(cst.parse_module(source), unsafe_skip_copy=True)
    expected = wrapper.resolve(PositionProvider)
    layout = Layout(wrapper.module)
    assert {node: (at.start.line, at.start.column, at.end.line) for node, at in expected.items()} == layout.found
    assert written(wrapper.module, wrapper.module) == source
    for node in layout.found:
        if isinstance(node, cst.Annotation):
            continue  # LibCST has no code for one on its own
        assert written(wrapper.module, node) == wrapper.module.code_for_node(node)
        known = layout.code(node)
        assert known == wrapper.module.code_for_node(node) or (known is None and isinstance(node, cst.If))
