"""An op that is loaded while something records or changes calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

FIRST_USES = {
    "export": """
program = torch.export.export(Unit(), (x,))
names = [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
assert names[-1] == "anyaccel.swiglu.default" and not any("record" in name for name in names), names
assert torch.equal(program.module()(x), Unit()(x))
""",
    "jit": "assert torch.equal(torch.jit.trace(Unit(), x)(x), Unit()(x))",
    "fake": """
from torch._subclasses.fake_tensor import FakeTensorMode
with FakeTensorMode() as mode: shape = Unit()(mode.from_tensor(x)).shape
assert shape == Unit()(x).shape
""",
    "function mode": """
from torch.overrides import TorchFunctionMode
class Seen(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None): return func(*args, **(kwargs or {}))
with Seen(): y = Unit()(x)
assert torch.equal(y, Unit()(x))
""",
}


@pytest.mark.parametrize("how", FIRST_USES)
def test_the_first_use_of_an_op_may_be_traced(how: str, run_python: Callable[..., Any]) -> None:
    """The loader's own calls were part of an exported program, which could not run then."""
    code = f"""
import torch, warnings
warnings.simplefilter("ignore")
from anyaccel.ops import swiglu
class Unit(torch.nn.Module):
    def forward(self, x): return swiglu(*x.chunk(2, -1))
x = torch.randn(3, 8)
{FIRST_USES[how]}
"""
    run_python(code)
