"""The op `dense` and the module `Dense` against their reference, in every mode that runs here."""

from __future__ import annotations

import copy
import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import torch

from anyaccel.op_builder import OpError
from anyaccel.op_builder.engine.toolchains.sycl import probe_dpcpp
from anyaccel.ops import Dense
from anyaccel.ops.dense_modes import MODES, PTX

from .compare import DTYPES, close, normal, opcheck
from .dense_reference import dense

if TYPE_CHECKING:
    from pathlib import Path

BUILDER = "DenseBuilder"
SHAPES = [(1, 1, 1), (5, 7, 3), (64, 33, 257), (0, 4, 3), (3, 1, 5), (1000, 16, 2)]
"""Rows, columns in and out."""
HERE = [
    "py", "cpp", None, *(["sycl"] if probe_dpcpp().tool is not None else []),
    *(["cuda", "ptx", "triton"] if torch.get_device_module("cuda").is_available() else []),
]  # fmt: skip
DEVICE = {"cuda": "cuda", "ptx": "cuda", "triton": "cuda"}


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("has_bias", [True, False], ids=["bias", "no bias"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_op_agrees_with_the_reference(op: Any, shape: tuple[int, ...], dtype: torch.dtype, has_bias: bool) -> None:
    rows, columns_in, columns_out = shape
    x = normal(rows, columns_in, dtype=dtype, device=op.device).requires_grad_()
    weight = normal(columns_out, columns_in, dtype=dtype, device=op.device, seed=1).requires_grad_()
    bias = normal(columns_out, dtype=dtype, device=op.device, seed=2).requires_grad_() if has_bias else None
    grad = normal(rows, columns_out, dtype=dtype, device=op.device, seed=3)
    exact = [None if one is None else one.detach().double().requires_grad_() for one in (x, weight, bias)]
    y, expected = op.functions.dense(x, weight, bias), dense(*exact)
    close(y, expected, 2)
    y.backward(grad)
    expected.backward(grad.double())
    for mine, theirs in zip((x, weight, bias), exact, strict=True):
        if mine is not None:
            close(mine.grad, theirs.grad, 4)


@pytest.mark.parametrize("mode", HERE)
def test_every_mode_agrees_and_takes_the_others_weights(mode: Any) -> None:
    device = DEVICE.get(mode, "cpu")
    torch.manual_seed(0)
    reference = Dense(13, 7, mode="py", device=device)
    layer = Dense(13, 7, mode=mode, device=device)
    layer.load_state_dict(reference.state_dict())
    x = torch.randn(2, 3, 13, device=device)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    expected = reference(theirs)
    y = layer(ours)
    torch.testing.assert_close(y, expected)
    y.square().sum().backward()
    expected.square().sum().backward()
    torch.testing.assert_close(ours.grad, theirs.grad)
    for mine, other in zip(layer.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad)
    assert f"mode={mode!r}" in repr(layer)
    assert copy.deepcopy(layer)(x).shape == (2, 3, 7)


@pytest.mark.parametrize("mode", ["py", "cpp", None])
@pytest.mark.parametrize("bias", [True, False])
def test_gradients_of_the_first_and_second_order(mode: Any, bias: bool) -> None:
    layer = Dense(4, 3, bias, mode=mode, dtype=torch.float64)
    arguments = [torch.randn(5, 4, dtype=torch.float64), *(one.detach() for one in layer.parameters())]
    for one in arguments:
        one.requires_grad_()

    def call(x: torch.Tensor, *parameters: torch.Tensor) -> torch.Tensor:
        names = dict(zip(("weight", "bias"), parameters, strict=False))
        return torch.func.functional_call(layer, names, (x,))

    assert torch.autograd.gradcheck(call, arguments)
    assert torch.autograd.gradgradcheck(call, arguments)


@pytest.mark.parametrize("mode", ["py", "cpp", None])
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize(("inputs", "outputs"), [(4, 0), (0, 3), (0, 0)])
@pytest.mark.parametrize("shape", [(2,), (), (0,), (2, 3)], ids=str)
def test_a_layer_without_features_has_gradients(mode: Any, inputs: int, outputs: int, shape: tuple[int, ...]) -> None:
    layer = Dense(inputs, outputs, mode=mode)
    x = torch.ones(*shape, inputs, requires_grad=True)
    layer(x).sum().backward()
    linear = torch.nn.Linear(inputs, outputs)
    linear.load_state_dict(layer.state_dict())
    other = torch.ones(*shape, inputs, requires_grad=True)
    linear(other).sigmoid().sum().backward()
    for got, expected in ((x, other), (layer.weight, linear.weight), (layer.bias, linear.bias)):
        assert torch.allclose(got.grad, expected.grad)


@pytest.mark.parametrize("mode", ["py", "cpp", None])
@pytest.mark.parametrize("has_bias", [True, False])
def test_autocast_changes_no_mode(mode: Any, has_bias: bool) -> None:
    layer, x = Dense(4, 3, bias=has_bias, mode=mode), torch.randn(2, 4)
    expected = layer(x)
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(x)
    assert torch.equal(y, expected)
    y.sum().backward()
    assert layer.weight.grad.dtype == torch.float32


@pytest.mark.parametrize("shape", [(5, 4), (3, 8)], ids=str)
def test_gradients_of_kernels_agree_with_differences_in_float64(op: Any, shape: tuple[int, int]) -> None:
    """On every device whose kernels have float64: SYCL's do not, as not every Intel GPU does."""
    values = (
        torch.randn(shape, dtype=torch.float64),
        *(torch.randn(*one, dtype=torch.float64) for one in ((6, shape[1]), (6,))),
    )
    arguments = [one.to(op.device).requires_grad_() for one in values]
    if op.name in ("sycl", "spirv") or os.environ.get("ANYACCEL_TEST_GROUP") == "sycl":
        with pytest.raises(
            RuntimeError, match=r"BiasSigmoidForward<double> failed: .* for which this kernel was not compiled"
        ):
            op.functions.dense(*arguments)
        return
    assert torch.autograd.gradcheck(op.functions.dense, arguments)


def test_torch_checks_the_ops(op: Any) -> None:
    namespace = op.space
    x = torch.randn(5, 4, device=op.device, requires_grad=True)
    weight, bias = (torch.randn(*shape, device=op.device, requires_grad=True) for shape in ((3, 4), (3,)))
    opcheck(namespace.dense.default, (x, weight, bias))
    opcheck(namespace.dense.default, (x, weight, None))
    opcheck(namespace.dense_linear.default, (x, weight, bias))
    opcheck(namespace.dense_linear.default, (x, weight, None))


@pytest.mark.parametrize("view", [lambda t: t.transpose(0, 1), lambda t: t[:, ::2], lambda t: t[:1].expand(6, 6, 6)])
def test_other_layouts(op: Any, view: Any) -> None:
    x = view(normal(6, 6, 6, dtype=torch.float32, device=op.device))
    weight = normal(6, 5, dtype=torch.float32, device=op.device, seed=1).t()
    close(op.functions.dense(x, weight, None), dense(x.double(), weight.double(), None), 2)


def test_wrong_arguments_are_refused(op: Any) -> None:
    x, weight = (torch.zeros(*shape, device=op.device) for shape in ((2, 4), (3, 4)))
    for wrong, text in (
        ((x, weight[:, :2], None), "got weight of shape"),
        ((x, weight, torch.zeros(2, device=op.device)), "got bias of shape"),
        ((x.double(), weight, None), "got weight of float32"),
    ):
        with pytest.raises(RuntimeError, match=text):
            op.functions.dense(*wrong)


def test_a_mode_that_there_is_not_or_that_cannot_run_here_says_so() -> None:
    with pytest.raises(ValueError, match="expected None or one of: py, cpp, cuda, ptx, sycl, triton"):
        Dense(3, 2, mode="cuda++")
    for mode in MODES:
        if mode not in HERE:
            with pytest.raises((OpError, RuntimeError)) as refused:
                Dense(3, 2, mode=mode)(torch.ones(1, 3))
            assert "Fix:" in str(refused.value)


def test_it_trains_under_torch_compile() -> None:
    layer = Dense(8, 4)
    x = torch.randn(16, 8)
    expected = layer(x)
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), expected)
    compiled(x).sum().backward()
    assert layer.weight.grad is not None


def test_the_ptx_assembles_for_every_generation(tmp_path: Path) -> None:
    ptxas = shutil.which("ptxas")
    if ptxas is None:
        pytest.skip("no ptxas")
    for architecture in ("sm_80", "sm_90", "sm_100", "sm_120"):
        subprocess.run([ptxas, f"-arch={architecture}", PTX, "-o", tmp_path / "out"], check=True)


def test_gradients_that_do_not_go_with_the_layer_are_refused(op: Any) -> None:
    space = op.space
    x, weight, y = (torch.ones(*shape, device=op.device) for shape in ((64, 32), (48, 32), (64, 48)))
    for grad, result, said in (
        (y.bfloat16(), y.bfloat16(), "got y of bfloat16; expected float32"),
        (y.double(), y, "got grad of float64; expected float32"),
        (y[:2], y[:2], r"got y of shape \(2, 48\); expected \(64, 48\)"),
        (y[:, :2], y, r"got grad of shape \(64, 2\); expected \(64, 48\)"),
    ):
        with pytest.raises(RuntimeError, match="dense_backward failed: " + said):
            space.dense_backward(grad, result, x, weight)
        if result is y:
            with pytest.raises(RuntimeError, match="dense_linear_backward failed: " + said):
                space.dense_linear_backward(grad, x, weight)


def test_expanded_parameters_are_read_where_they_lie(op: Any) -> None:
    """A matrix product library read a bias with stride 0 as one with stride 1, past its end."""
    x = normal(5, 64, dtype=torch.float32, device=op.device)
    bias = torch.full((1,), 3.0, device=op.device).expand(48)
    row = normal(1, 64, dtype=torch.float32, device=op.device, seed=1)
    memory = normal(48 + 63, dtype=torch.float32, device=op.device, seed=2)
    for weight in (row.expand(48, 64), row.t()[:48].expand(48, 64), memory.as_strided((48, 64), (1, 1))):
        exact = x.double() @ weight.double().t() + 3
        close(op.functions.linear(x, weight, bias), exact, 4)
        close(op.functions.dense(x, weight, bias), torch.sigmoid(exact), 4)
