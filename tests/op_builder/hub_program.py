"""A program that loads kernels made by ``anyaccel build --hub``, and compares the results of every op with torch's.

``python hub_program.py kernels|plain absent|beside FOLDER...``: by Hugging Face's kernels or by Python's import alone; without
anyaccel, or beside its own ops.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import torch

F = torch.nn.functional
close = torch.testing.assert_close


def same_gradients(ours: torch.Tensor, theirs: torch.Tensor, inputs: list[torch.Tensor]) -> None:
    close(ours, theirs)
    weight = torch.randn_like(ours)
    close(torch.autograd.grad(ours, inputs, weight), torch.autograd.grad(theirs, inputs, weight))


def inputs(*shapes: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.randn(shape, requires_grad=True) for shape in shapes]


def stepped(optimizer: Any, **options: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return a parameter before a first step, its gradient, and what torch's optimizer makes of them."""
    start, grad = torch.randn(7, 5), torch.randn(7, 5)
    param = torch.nn.Parameter(start.clone())
    param.grad = grad.clone()
    optimizer([param], **options).step()
    return start, grad, param.detach()


def activations(kernel: Any) -> None:
    gate, up = inputs((3, 17), (3, 17))
    same_gradients(kernel.swiglu(gate, up), F.silu(gate) * up, [gate, up])
    same_gradients(kernel.geglu(gate, up, "tanh"), F.gelu(gate, approximate="tanh") * up, [gate, up])
    x, bias = inputs((3, 17), (17,))
    same_gradients(kernel.bias_gelu(x, bias, "none"), F.gelu(x + bias), [x, bias])


def adagrad(kernel: Any) -> None:
    param, grad, expected = stepped(torch.optim.Adagrad, lr=0.1)
    kernel.adagrad_step([param], [grad], [torch.zeros_like(param)], lr=0.1)
    close(param, expected)


def cpu_adam(kernel: Any) -> None:
    param, grad, expected = stepped(torch.optim.AdamW, lr=0.1, weight_decay=0.1)
    states = [torch.zeros_like(param)], [torch.zeros_like(param)], [torch.zeros(())]
    kernel.adam_step([param], [grad], *states, lr=0.1, weight_decay=0.1)
    close(param, expected)


def dense(kernel: Any) -> None:
    x, weight, bias = inputs((3, 5), (7, 5), (7,))
    same_gradients(kernel.dense(x, weight, bias), F.linear(x, weight, bias).sigmoid(), [x, weight, bias])


def lamb(kernel: Any) -> None:
    param, grad, adam = stepped(torch.optim.Adam, lr=1.0, weight_decay=0.0)
    start, update = param.clone(), param - adam
    states = [torch.zeros_like(param)], [torch.zeros_like(param)]
    kernel.lamb_step([param], [grad], *states, 1, lr=0.1, bias_correction=False)  # its factor cancels in the direction
    close(param, start - 0.1 * start.norm() / update.norm() * update, rtol=1e-4, atol=1e-5)


def layer_norm(kernel: Any) -> None:
    x, weight, bias = inputs((3, 17), (17,), (17,))
    same_gradients(kernel.layer_norm(x, weight, bias), F.layer_norm(x, (17,), weight, bias), [x, weight, bias])


def lion(kernel: Any) -> None:
    param, grad = torch.randn(7, 5), torch.randn(7, 5)
    expected = param * (1 - 0.1 * 0.5) - 0.1 * grad.sign()
    kernel.lion_step([param], [grad], [torch.zeros_like(param)], lr=0.1, weight_decay=0.5)
    close(param, expected)


def moe(kernel: Any) -> None:
    x, logits = inputs((6, 5), (6, 4))
    weights, taken, _ = kernel.topk_gating(logits, 2)
    routing = kernel.route(taken, 4)
    combined = kernel.combine(kernel.dispatch(x, routing), weights, routing)
    best = logits.softmax(-1).topk(2).values.sum(-1, keepdim=True)
    same_gradients(combined, x * best, [x, logits])


def multi_tensor(kernel: Any) -> None:
    tensors = [torch.randn(3, 5), torch.randn(7)]
    close(kernel.l2norm(tensors)[0][0], torch.cat([one.flatten() for one in tensors]).norm())
    kernel.scale(tensors, outputs := [torch.empty_like(one) for one in tensors], 3.0)
    close(outputs, [one * 3 for one in tensors])


def multi_tensor_adam(kernel: Any) -> None:
    param, grad, expected = stepped(torch.optim.AdamW, lr=0.1, weight_decay=0.1)
    states = [torch.zeros_like(param)], [torch.zeros_like(param)], [1]
    kernel.multi_tensor_adam_step([param], [grad], *states, lr=0.1, weight_decay=0.1)
    close(param, expected)


def quantization(kernel: Any) -> None:
    x = torch.randn(4, 32)
    whole, params = kernel.quantize(x, 4)
    close(kernel.dequantize(whole, params), x, rtol=0, atol=x.abs().max().item() / 127)
    small, scales = kernel.quantize_float8(x, 4)
    close(kernel.dequantize_float8(small, scales), x, rtol=0.07, atol=0.01)


def rms_norm(kernel: Any) -> None:
    x, residual, weight = inputs((3, 17), (3, 17), (17,))
    same_gradients(kernel.rms_norm(x, weight, 1e-6), F.rms_norm(x, (17,), weight, 1e-6), [x, weight])
    y, total = kernel.add_rms_norm(x, residual, weight, 1e-6)
    close(total, x + residual)
    same_gradients(y, F.rms_norm(x + residual, (17,), weight, 1e-6), [x, residual, weight])


def rotary_embedding(kernel: Any) -> None:
    (x,) = inputs((2, 3, 2, 8))
    angles = torch.rand(3, 4)
    a, b = x.chunk(2, -1)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    same_gradients(
        kernel.rotary_embedding(x, angles.cos(), angles.sin()),
        torch.cat([a * cos - b * sin, b * cos + a * sin], -1),
        [x],
    )


def sgd(kernel: Any) -> None:
    param, grad, expected = stepped(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=0.1)
    buffers = [torch.zeros_like(param)]
    kernel.sgd_step([param], [grad], buffers, lr=0.1, momentum=0.9, weight_decay=0.1, first_step=True)
    close(param, expected)


def softmax(kernel: Any) -> None:
    (x,) = inputs((2, 3, 5, 5))
    above = torch.ones(5, 5, dtype=torch.bool).triu(1)
    expected = (2 * x).masked_fill(above, -torch.inf).softmax(-1)
    same_gradients(kernel.scaled_upper_triang_masked_softmax(x, 2.0), expected, [x])


def imported(folder: Path) -> Any:
    """Import a kernel's only variant as Hugging Face's kernels does, without that package."""
    (variant,) = (folder / "build").iterdir()
    name = json.loads((variant / "metadata.json").read_text())["id"]
    spec = importlib.util.spec_from_file_location(name, variant / "__init__.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module


def main(loader: str, anyaccel: str, *folders: str) -> None:
    torch.manual_seed(0)
    if anyaccel == "absent":
        sys.modules["anyaccel"] = None  # type: ignore[assignment]
    else:
        from anyaccel.ops import rms_norm as ours

        ours(torch.randn(2, 8), torch.ones(8))
    load = imported
    if loader == "kernels":
        from kernels import get_local_kernel as load
    for folder in folders:
        op = Path(folder).name.removeprefix("anyaccel-").replace("-", "_")
        kernel = load(Path(folder))
        globals()[op](kernel)
        assert load(Path(folder)).__all__ == kernel.__all__, "loaded again, it is the same"
        print(op, *kernel.__all__)


if __name__ == "__main__":
    main(*sys.argv[1:])
