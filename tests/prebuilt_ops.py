"""Runs every op that the installed wheel brought, and compares it with torch; ``make test-wheel`` runs this without a compiler.

It is one file without pytest, because it also runs in qemu, where starting Python with torch takes minutes.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
from torch.nn import functional

import anyaccel
from anyaccel import ops
from anyaccel.op_builder.all_ops import every_builder
from anyaccel.op_builder.engine.trace import Trace
from anyaccel.op_builder.table import OPS


def numbers(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def same(ours: torch.Tensor, torchs: torch.Tensor) -> None:
    torch.testing.assert_close(ours, torchs, rtol=1e-5, atol=1e-6)


def same_steps(ours: type[torch.optim.Optimizer], torchs: type[torch.optim.Optimizer], **options: float) -> None:
    mine, theirs = (torch.nn.Parameter(numbers(65)) for _ in range(2))
    both = [(mine, ours([mine], lr=0.1, **options)), (theirs, torchs([theirs], lr=0.1, **options))]
    for step in range(3):
        for parameter, optimizer in both:
            parameter.grad = numbers(65) + step
            optimizer.step()
    same(mine.detach(), theirs.detach())


def activations() -> None:
    gate, up = numbers(3, 65), numbers(65, 3).T
    same(ops.swiglu(gate, up), functional.silu(gate) * up)
    same(ops.geglu(gate, up), functional.gelu(gate) * up)
    same(ops.bias_gelu(gate, up[0]), functional.gelu(gate + up[0], approximate="tanh"))


def async_io() -> None:
    handle = anyaccel.get_accelerator().create_op_builder("AsyncIOBuilder").load().aio_handle()
    written, read = numbers(4096), torch.empty(4096)
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "tensor")
        assert handle.sync_pwrite(written, file) == 1
        assert handle.sync_pread(read, file) == 1
    assert torch.equal(written, read)


def dense() -> None:
    layer, x = ops.Dense(5, 3), numbers(4, 5)
    same(layer(x), torch.sigmoid(functional.linear(x, layer.weight, layer.bias)))


def lamb() -> None:
    parameter = torch.nn.Parameter(numbers(65))
    before, parameter.grad = parameter.detach().clone(), numbers(65) + 1
    ops.FusedLamb([parameter], lr=0.1, eps=1e-6).step()
    m, v = 0.1 * parameter.grad, 0.001 * parameter.grad**2
    update = m / (v.sqrt() + 1e-6)
    ratio = (before.norm() / update.norm()).clamp(0.01, 10)
    same(parameter.detach(), before - 0.1 * 0.001**0.5 / 0.1 * ratio * update)


def layer_norm() -> None:
    x, weight, bias = numbers(3, 65), numbers(65), numbers(1, 65)[0]
    same(ops.layer_norm(x, weight, bias), functional.layer_norm(x, (65,), weight, bias))


def lion() -> None:
    parameter = torch.nn.Parameter(numbers(65))
    before, parameter.grad = parameter.detach().clone(), numbers(65) + 1
    ops.CPULion([parameter], lr=0.1, weight_decay=0.5).step()
    same(parameter.detach(), before - 0.1 * (0.5 * before + parameter.grad.sign()))


def moe() -> None:
    logits, x = numbers(6, 4), numbers(6, 5)
    weights, taken, probabilities = ops.topk_gating(logits, k=2)
    same(probabilities, logits.softmax(-1))
    same(weights, logits.softmax(-1).topk(2).values)
    routing = ops.route(taken, experts=4)
    same(ops.combine(ops.dispatch(x, routing), weights, routing), x * weights.sum(-1, keepdim=True))


def multi_tensor() -> None:
    ours, theirs = (torch.nn.Parameter(torch.zeros(65)) for _ in range(2))
    ours.grad, theirs.grad = numbers(65), numbers(65)
    norms = ops.clip_grad_norm_([ours], 0.5), torch.nn.utils.clip_grad_norm_([theirs], 0.5)
    same(norms[0][0], norms[1])
    same(ours.grad, theirs.grad)


def quantization() -> None:
    x = numbers(4, 64)
    q, scales = ops.quantize(x, groups=4)
    same(scales, 2 * x.abs().amax(1, keepdim=True) / 256)
    assert torch.equal(q, (x / scales).round().clamp(-128, 127).to(torch.int8))
    same(ops.dequantize(q, scales), q * scales)
    codes, scale = ops.quantize_float8(x, groups=4)
    same(ops.dequantize_float8(codes, scale), codes.float() * scale.reshape(4, 1))


def rms_norm() -> None:
    x, weight = numbers(3, 65).requires_grad_(), numbers(65)
    y = x.detach().clone().requires_grad_()
    ours, torchs = ops.rms_norm(x, weight, 1e-6), functional.rms_norm(y, (65,), weight, 1e-6)
    same(ours, torchs)
    same(torch.autograd.grad(ours.sum(), x)[0], torch.autograd.grad(torchs.sum(), y)[0])


def rotary_embedding() -> None:
    x, angles = numbers(2, 3, 4, 8), numbers(3, 4)
    turned = torch.view_as_complex(torch.stack(x.chunk(2, -1), -1)) * torch.polar(torch.ones(3, 4), angles)[:, None]
    same(ops.rotary_embedding(x, angles.cos(), angles.sin()), torch.cat([turned.real, turned.imag], -1))


def softmax() -> None:
    x = numbers(2, 5, 7)
    hidden = numbers(5, 7) > 1
    same(ops.scaled_masked_softmax(x, hidden, 0.5), (0.5 * x).masked_fill(hidden, -torch.inf).softmax(-1))


CHECKS = {
    "activations": activations,
    "adagrad": lambda: same_steps(ops.CPUAdagrad, torch.optim.Adagrad, lr_decay=0.1),
    "async_io": async_io,
    "cpu_adam": lambda: same_steps(ops.CPUAdam, torch.optim.AdamW, weight_decay=0.1),
    "dense": dense,
    "lamb": lamb,
    "layer_norm": layer_norm,
    "lion": lion,
    "moe": moe,
    "multi_tensor": multi_tensor,
    "multi_tensor_adam": lambda: same_steps(ops.FusedAdam, torch.optim.AdamW, weight_decay=0.1),
    "quantization": quantization,
    "rms_norm": rms_norm,
    "rotary_embedding": rotary_embedding,
    "sgd": lambda: same_steps(ops.FusedSGD, torch.optim.SGD, momentum=0.9),
    "softmax": softmax,
}
NOT_RUN = {
    "autograd": "built for one torch, so in no released wheel",
    "cuda_runtime": "needs an NVIDIA GPU",
    "hip_runtime": "needs an AMD GPU",
    "shm_comm": "built for one torch, so in no released wheel",
    "sycl_runtime": "built for one DPC++, so in no wheel",
    "xpu_runtime": "built for one DPC++, so in no wheel",
}
NAMES = {op.name for op in OPS if op.name not in NOT_RUN}


def main() -> None:
    anyaccel.set_accelerator(anyaccel.CPU_Accelerator())
    builders = {builder.NAME: builder for builder in every_builder() if builder.NAME in NAMES}
    assert not NAMES ^ {*CHECKS}, NAMES ^ {*CHECKS}
    levels = set()
    for name, check in CHECKS.items():
        found = builders[name].prebuilt(Trace("what the wheel brought"))
        assert found is not None, f"{name} is not in this wheel, or does not fit this machine"
        assert "_C" in found.parts, found
        levels.add(found.parent.name.removeprefix(f"{name}-"))
        check()
    print(
        f"Python {sys.version.split()[0]}, torch {torch.__version__}: {len(CHECKS)} ops are right ({', '.join(sorted(levels))})"
    )


if __name__ == "__main__":
    main()
