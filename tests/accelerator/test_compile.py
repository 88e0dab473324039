"""The contract inside torch.compile: no graph break, including the first call of a process."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

FUNCTION = """
import torch
from anyaccel import CPU_Accelerator, get_accelerator, use_accelerator

def work(x):
    accelerator = get_accelerator()
    accelerator.range_push("work")
    x = x.to(accelerator.device_name()) * 2
    with accelerator.stream(accelerator.current_stream()):
        if accelerator.on_accelerator(x) and accelerator.is_bf16_supported():
            x = x + accelerator.device_count()
    accelerator.synchronize()
    accelerator.range_pop()
    return x
"""

CASES = {
    "explain finds no graph break on the first call": """
explained = torch._dynamo.explain(work)(torch.ones(3))
assert explained.graph_break_count == 0, explained.break_reasons
assert explained.graph_count == 1
""",
    "the first call and later ones agree with eager": """
compiled = torch.compile(work, fullgraph=True, backend="eager")
first = compiled(torch.ones(3))
assert torch.equal(first, work(torch.ones(3)))
assert torch.equal(first, compiled(torch.ones(3)))
""",
    "a replaced accelerator is noticed": """
class Seven(CPU_Accelerator):
    def device_count(self):
        return 7
compiled = torch.compile(work, fullgraph=True, backend="eager")
before = compiled(torch.ones(3))
with use_accelerator(Seven()):
    assert compiled(torch.ones(3)).tolist() == [9.0] * 3
assert torch.equal(before, compiled(torch.ones(3)))
""",
    "inductor compiles it": """
assert torch.equal(torch.compile(work, fullgraph=True)(torch.ones(3)), work(torch.ones(3)))
""",
}


@pytest.mark.parametrize("case", CASES)
def test_compile(case: str, run_with_torch: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    assert run_with_torch(FUNCTION + CASES[case], DS_ACCELERATOR="cpu").returncode == 0
