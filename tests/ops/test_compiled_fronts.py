"""Every function and module of ``anyaccel.ops`` compiles into one graph, before anything is loaded, with eager's results."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

CALLS = {
    "rms_norm": "ops.rms_norm(x, w)",
    "add_rms_norm": "sum(ops.add_rms_norm(x, x * 2, w))",
    "layer_norm": "ops.layer_norm(x, w, w)",
    "add_layer_norm": "sum(ops.add_layer_norm(x, x * 2, w, w))",
    "RMSNorm": "norm(x)",
    "scaled_masked_softmax": "ops.scaled_masked_softmax(x.view(1, 1, 4, 8), mask, 0.5)",
    "scaled_upper_triang_masked_softmax": "ops.scaled_upper_triang_masked_softmax(x.view(2, 4, 4))",
    "swiglu": "ops.swiglu(x, x * 2)",
    "geglu": "ops.geglu(x, x * 2)",
    "bias_gelu": "ops.bias_gelu(x, w)",
    "rotary_embedding": "ops.rotary_embedding(x.view(1, 4, 2, 4), angles, angles)",
    "rotary_embedding in place": "ops.rotary_embedding((x * 1.0).view(1, 4, 2, 4), angles, angles, inplace=True)",
    "quantize": "ops.dequantize(*ops.quantize(x.detach(), 4))",
    "quantize_float8": "ops.dequantize_float8(*ops.quantize_float8(x.detach(), 4))",
    "mixture of experts": "experts(*ops.topk_gating(x * 1.0, 2))",
    "Dense": "dense(x)",
    "Dense, cpp": "cpp_dense(x)",
    "Dense, py": "py_dense(x)",
}
PROGRAM = """
import json, sys, torch
from anyaccel import ops
torch.manual_seed(0)
x, w = torch.randn(4, 8, requires_grad=True), torch.randn(8, requires_grad=True)
mask, angles, norm = torch.zeros(1, 1, 4, 8, dtype=torch.bool), torch.rand(4, 2), ops.RMSNorm(8)
dense, cpp_dense, py_dense = (ops.Dense(8, 8, mode=mode) for mode in (None, "cpp", "py"))

def experts(weights, taken, _):
    routing = ops.route(taken, 8)
    return ops.combine(ops.dispatch(x, routing), weights, routing)

def gradients(call):
    x.grad = w.grad = None
    y = call()
    if y.requires_grad:
        y.square().sum().backward()
    return y.detach(), x.grad, w.grad

failed = {}
for name, text in json.loads(sys.argv[1]).items():
    torch._dynamo.reset()
    call = eval("lambda: " + text)
    try:
        compiled = gradients(torch.compile(call, fullgraph=True, backend="aot_eager"))
        torch.testing.assert_close(compiled, gradients(call), rtol=1e-5, atol=1e-5)
    except Exception as error:
        failed[name] = repr(error)
assert not failed, failed
"""


SIZES = """
import torch
from anyaccel import ops
norm, layer_norm = ops.RMSNorm(8), ops.LayerNorm(8)
torch._dynamo.config.recompile_limit = 2
compiled = torch.compile(lambda x: ops.swiglu(norm(x), layer_norm(x)), fullgraph=True, backend="aot_eager")
for rows in range(2, 9):
    compiled(torch.randn(rows, 8, requires_grad=True)).sum().backward()
"""


def test_one_graph_serves_every_number_of_rows(run_with_torch: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    run_with_torch(SIZES, DS_ACCELERATOR="cpu")


def test_all_compile_into_one_graph_from_the_first_call_on(
    run_with_torch: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    run_with_torch(PROGRAM, json.dumps(CALLS), DS_ACCELERATOR="cpu")
