"""The Triton implementations: on a GPU, otherwise in Triton's interpreter, which runs the same kernels on the CPU."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import anyaccel.kernels
from anyaccel.kernels.triton.launch_shape import launch_shape
from anyaccel.op_builder.table import OPS

from .conftest import PRESENT

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

CODE = """
import sys
import torch
from anyaccel.kernels.triton.dense import TritonDense
from anyaccel.kernels.triton.norms_and_softmax import TritonRMSNorm, TritonSoftmax

device = sys.argv[1]
functional = torch.nn.functional
for dtype, tolerance in ((torch.float32, 2e-6), (torch.bfloat16, 1.6e-2), (torch.float16, 2e-3)):
    def close(mine, theirs):
        largest = max(1.0, theirs.abs().max().item())
        torch.testing.assert_close(mine.double(), theirs.double(), rtol=0, atol=tolerance * largest)

    for shape in ((1, 1), (5, 131), (2, 3, 64), (0, 8)):
        x = torch.randn(shape, device=device).to(dtype).requires_grad_()
        weight = torch.rand(shape[-1], device=device).to(dtype).requires_grad_()
        grad = torch.randn(shape, device=device).to(dtype)
        exact = [tensor.detach().double().requires_grad_() for tensor in (x, weight)]
        y, expected = TritonRMSNorm().rms_norm(x, weight), functional.rms_norm(exact[0], shape[-1:], exact[1], 1e-6)
        if x.numel():
            close(y, expected)
            got = torch.autograd.grad(y, (x, weight), grad)
            wanted = torch.autograd.grad(expected, exact, grad.double())
            for mine, theirs in zip(got, wanted, strict=True):
                close(mine, theirs)
            total = TritonRMSNorm().add_rms_norm(x, x, weight)[1]
            close(total, 2 * exact[0])
    for rows, columns_in, columns_out in ((1, 1, 1), (5, 7, 131), (40, 3, 64), (0, 2, 3)):
        shapes = (rows, columns_in), (columns_out, columns_in), (columns_out,)
        given = [torch.randn(shape, device=device).to(dtype).requires_grad_() for shape in shapes]
        exact = [tensor.detach().double().requires_grad_() for tensor in given]
        y, expected = TritonDense().dense(*given), torch.sigmoid(functional.linear(*exact))
        if rows:
            close(y, expected)
            grad = torch.randn(y.shape, device=device).to(dtype)
            wanted = torch.autograd.grad(expected, exact, grad.double())
            for mine, theirs in zip(torch.autograd.grad(y, given, grad), wanted, strict=True):
                close(mine / 4, theirs / 4)
    for shape in ((1, 1), (3, 7, 7), (2, 5, 9)):
        x = torch.randn(shape, device=device).to(dtype).requires_grad_()
        grad = torch.randn(shape, device=device).to(dtype)
        exact = x.detach().double().requires_grad_()
        hidden = torch.ones(shape[-2:], device=device).triu(1 + shape[-1] - shape[-2]).bool()
        causal = (exact * 0.5).masked_fill(hidden, -torch.inf).softmax(-1)
        mask = torch.rand(shape, device=device) > 0.5
        mask[..., 0] = False
        masked = (exact * 0.5).masked_fill(mask, -torch.inf).softmax(-1)
        softmax = TritonSoftmax()
        for y, expected in (
            (softmax.scaled_upper_triang_masked_softmax(x, 0.5), causal),
            (softmax.scaled_masked_softmax(x, mask, 0.5), masked),
            (softmax.scaled_masked_softmax(x, None, 0.5), (exact * 0.5).softmax(-1)),
        ):
            close(y, expected)
            close(torch.autograd.grad(y, x, grad)[0], torch.autograd.grad(expected, exact, grad.double())[0])
        for scale in (0.0, -1.5):
            close(softmax.scaled_masked_softmax(x, mask, scale), (exact * scale).masked_fill(mask, -torch.inf).softmax(-1))
        assert (softmax.scaled_masked_softmax(x, torch.ones_like(mask)) == 0).all()
        nothing = torch.full(shape, -torch.inf, device=device, dtype=dtype, requires_grad=True)
        for y in (softmax.scaled_masked_softmax(nothing), softmax.scaled_upper_triang_masked_softmax(nothing)):
            assert (y == 0).all()
            assert (torch.autograd.grad(y, nothing, grad)[0] == 0).all()
        damaged = x.detach().clone()
        damaged[..., 0, 0] = torch.nan
        damaged.requires_grad_()
        y = softmax.scaled_masked_softmax(damaged, torch.ones_like(mask))
        assert (y == 0).all() and (torch.autograd.grad(y, damaged, grad)[0] == 0).all()
    empty = [torch.randn(size, device=device, dtype=dtype, requires_grad=True) for size in ((3, 4), (0, 4), (0,))]
    gradients = torch.autograd.grad(TritonDense().dense(*empty).sum(), empty)
    assert [found.shape for found in gradients] == [given.shape for given in empty]
for call in (lambda: TritonRMSNorm().rms_norm(x, weight[:1]), lambda: TritonSoftmax().scaled_masked_softmax(x.long())):
    try:
        call()
    except RuntimeError as error:
        assert "Fix: " in str(error)
    else:
        raise AssertionError("it was not refused")
"""

KERNELS = Path(anyaccel.kernels.__path__[0]) / "triton"


@pytest.mark.parametrize("target", sorted({op.triton for op in OPS if op.triton}))
def test_the_class_that_the_table_names_exists(target: str) -> None:
    module, name = target.split(":")
    parsed = ast.parse((KERNELS / f"{module}.py").read_text())
    classes = [node for node in parsed.body if isinstance(node, ast.ClassDef)]
    assert name in [found.name for found in classes]


@pytest.mark.parametrize(
    ("columns", "block", "warps"),
    [(0, 1, 4), (1, 1, 4), (2, 2, 4), (3, 4, 4), (1024, 1024, 4), (1025, 2048, 8), (4096, 4096, 16), (8192, 8192, 32),
     (65536, 65536, 32)],
)  # fmt: skip
def test_longer_rows_get_more_warps(columns: int, block: int, warps: int) -> None:
    assert launch_shape(columns) == {"BLOCK": block, "num_warps": warps}


@pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="no package triton: CUDA builds of torch bring it"
)
def test_triton_agrees_with_torch_in_float64(run_python: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    if "cuda" in PRESENT:
        run_python(CODE, "cuda")
    else:
        run_python(CODE, "cpu", TRITON_INTERPRET="1")
