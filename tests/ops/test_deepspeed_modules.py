"""The builders with deepspeed's names return modules with deepspeed 0.19.8's function names and arguments."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from anyaccel import get_accelerator
from anyaccel.kernels.functions.outputs import write_outputs
from anyaccel.op_builder.all_ops import builder_class
from anyaccel.op_builder.kernel_loader import InferenceOpsLoader

from . import optimizers_reference as reference
from .compare import close

NAMES = {
    "CPUAdagradBuilder": "cpu_adagrad",
    "CPULionBuilder": "cpu_lion",
    "FusedAdamBuilder": "fused_adam",
    "FusedLambBuilder": "fused_lamb",
    "FusedLionBuilder": "fused_lion",
    "InferenceCoreBuilder": "inference_core_ops",
    "QuantizerBuilder": "quantizer",
}
"""deepspeed's builders, and the names of their ops."""
FLAG = torch.zeros(1, dtype=torch.int32)


def _load(name: str) -> Any:
    return get_accelerator().create_op_builder(name).load()


def _tensors(count: int) -> list[torch.Tensor]:
    return [torch.rand(7, 5, generator=torch.Generator().manual_seed(seed)) for seed in range(count)]


@pytest.mark.parametrize("name", NAMES)
def test_every_device_has_the_builder_by_deepspeeds_name(name: str) -> None:
    for device in ("cpu", "cuda", "xpu"):
        mine = builder_class(name, device)
        assert mine is not None
        assert (mine.__name__, mine.NAME) == (name, NAMES[name])
    assert builder_class(name, "cpu")().is_compatible()


def test_fused_lion() -> None:
    grad, param, exp_avg = _tensors(3)
    options = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "maximize": False}
    expected = reference.lion(param.double(), grad.double(), exp_avg.double(), **options)
    lion = _load("FusedLionBuilder")
    lion.multi_tensor_lion(65536, FLAG, [[grad], [param], [exp_avg]], 0.1, 0.9, 0.99, 1, 0.1)
    close(param, expected[0])
    close(exp_avg, expected[1])
    with pytest.raises(ValueError, match="multi_tensor_lion failed: got 2 lists"):
        lion.multi_tensor_lion(65536, FLAG, [[grad], [param]], 0.1, 0.9, 0.99, 1, 0.1)


@pytest.mark.parametrize("builder", ["FusedAdamBuilder", "FusedLionBuilder"])
def test_states_of_the_parameters_dtype_are_rounded_after_each_step(builder: str) -> None:
    count = 4 if builder == "FusedAdamBuilder" else 3
    exact = [[tensor.bfloat16().float()] for tensor in _tensors(count)]
    rounded = [[tensor.bfloat16()] for (tensor,) in exact]
    op = _load(builder)
    for lists in (exact, rounded):
        if count == 4:
            op.multi_tensor_adam(65536, FLAG, lists, 0.1, 0.9, 0.99, 1e-8, 1, 1, 1, 0.1)
        else:
            op.multi_tensor_lion(65536, FLAG, lists, 0.1, 0.9, 0.99, 1, 0.1)
    for (expected,), (found,) in zip(exact, rounded, strict=True):
        assert found.dtype == torch.bfloat16
        assert torch.equal(found, expected.bfloat16())


def test_adams_step_is_counted_in_float32_whatever_the_defaults() -> None:
    param, first, second, grad = torch.ones(4), torch.zeros(4), torch.zeros(4), torch.ones(4)
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"):
            _load("FusedAdamBuilder").multi_tensor_adam(
                1, FLAG, [[grad], [param], [first], [second]], 0.1, 0.9, 0.999, 1e-8, 1, 1, 1, 0.0
            )
    finally:
        torch.set_default_dtype(torch.float32)
    torch.testing.assert_close(param, torch.full((4,), 0.9))


def test_cpu_lion_and_cpu_adagrad() -> None:
    grad, param, state = _tensors(3)
    options = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "maximize": False}
    expected = reference.lion(param.double(), grad.double(), state.double(), **options)
    lion = _load("CPULionBuilder")
    assert lion.create_lion(0, 0.1, 0.9, 0.99, 0.1, False) == 0
    assert lion.lion_update(0, 1, 0.1, 0.9, 0.99, 0.1, param, grad, state) == 0
    assert lion.destroy_lion(0) == 0
    close(param, expected[0])
    adagrad = _load("CPUAdagradBuilder")
    options = {"lr": 0.1, "eps": 1e-8, "weight_decay": 0.1, "maximize": False}
    expected = reference.adagrad(param.double(), grad.double(), state.double(), **options)
    assert adagrad.create_adagrad(0, 0.1, 1e-8, 0.1, False) == 0
    assert adagrad.adagrad_update(0, 1, 0.1, 1e-8, 0.1, param, grad, state) == 0
    assert adagrad.destroy_adagrad(0) == 0
    close(param, expected[0])
    close(state, expected[1])


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool, torch.complex64, torch.float8_e4m3fn])
def test_a_state_of_another_kind_is_refused_before_anything_is_written(dtype: torch.dtype) -> None:
    lion = get_accelerator().create_op_builder("CPULionBuilder").load()
    param, state = torch.ones(4), torch.zeros(4, dtype=dtype)
    with pytest.raises(RuntimeError, match=f"got a state of {dtype}; expected torch.float32"):
        lion.lion_update(0, 1, 0.1, 0.9, 0.99, 0.0, param, torch.ones(4), state)
    assert param.tolist() == [1.0] * 4


def test_a_state_that_requires_gradients_is_written_with_its_parameter() -> None:
    lion = get_accelerator().create_op_builder("CPULionBuilder").load()
    param, state = torch.ones(4), torch.zeros(4, dtype=torch.bfloat16, requires_grad=True)
    lion.lion_update(0, 1, 0.5, 0.9, 0.99, 0.0, param, torch.ones(4), state)
    assert param.tolist() == [0.5] * 4
    assert state.tolist() == [pytest.approx(0.01, rel=0.01)] * 4


@pytest.mark.parametrize("mode", [0, 1])
def test_fused_lamb(mode: int) -> None:
    grad, param, exp_avg, exp_avg_sq = _tensors(4)
    options = {
        "lr": 0.1, "beta1": 0.9, "beta2": 0.99, "eps": 1e-6, "weight_decay": 0.1, "min_coeff": 0.01, "max_coeff": 10.0,
        "eps_inside_sqrt": mode == 0, "bias_correction": True, "maximize": False,
    }  # fmt: skip
    exact = [tensor.double() for tensor in (param, grad, exp_avg, exp_avg_sq)]
    expected = reference.lamb(exact[0], exact[1] / 4, *exact[2:], 2, **options)
    copy = torch.empty(7, 5, dtype=torch.bfloat16)
    ratio = _load("FusedLambBuilder").lamb(
        param, copy, exp_avg, exp_avg_sq, grad, 0.1, 0.9, 0.99, 10.0, 0.01, 1e-6, 4.0, 2, mode, 1, 0.1
    )
    close(param, expected[0])
    assert ratio.shape == (1,)
    assert ratio.item() == pytest.approx(expected[3].item(), rel=1e-5)
    assert torch.equal(copy, param.bfloat16())


@pytest.mark.parametrize("shape", [(3,), (2, 4), (1,)])
def test_fused_lamb_refuses_a_copy_of_another_shape_before_the_writing(shape: tuple[int, ...]) -> None:
    param, first, second, grad = torch.ones(4), torch.zeros(4), torch.zeros(4), torch.ones(4)
    with pytest.raises(RuntimeError, match=r"lamb failed: got a copy of shape .*; expected \(4,\), or none"):
        _load("FusedLambBuilder").lamb(
            param, torch.zeros(shape), first, second, grad, 0.1, 0.9, 0.999, 10.0, 0.01, 1e-8, 1.0, 1, 0, True, 0.0
        )
    assert bool((param == 1).all())
    assert not first.any()


def test_fused_lamb_divides_by_no_zero() -> None:
    param, *states, grad = torch.ones(4), torch.zeros(4), torch.zeros(4), torch.ones(4)
    with pytest.raises(ValueError, match="lamb failed: got grad_scale=0"):
        _load("FusedLambBuilder").lamb(
            param, torch.empty(0), *states, grad, 0.1, 0.9, 0.999, 10.0, 0.01, 1e-8, 0.0, 1, 0, True, 0.0
        )
    assert param.tolist() == [1.0] * 4


def test_fused_lamb_copies_into_a_models_own_parameter() -> None:
    """As deepspeed's optimizer without ZeRO does, whose parameters require gradients."""
    grad, param, exp_avg, exp_avg_sq = _tensors(4)
    owned = torch.nn.Parameter(torch.zeros(7, 5, dtype=torch.bfloat16))
    _load("FusedLambBuilder").lamb(
        param, owned, exp_avg, exp_avg_sq, grad, 0.1, 0.9, 0.99, 10.0, 0.01, 1e-6, 4.0, 2, 0, 1, 0.1
    )
    assert owned.is_leaf
    assert torch.equal(owned.detach(), param.bfloat16())


def _steps() -> dict[str, Any]:
    """Return deepspeed's functions that take a step of one parameter, given a gradient, a parameter and two states."""
    adam, lion, adagrad = (_load(f"CPU{name}Builder") for name in ("Adam", "Lion", "Adagrad"))
    fused_adam, fused_lion, lamb = (_load(f"Fused{name}Builder") for name in ("Adam", "Lion", "Lamb"))
    adam.create_adam(71, 0.1, 0.9, 0.99, 1e-8, 0.1, True, False)
    options = (1, 0.1, 0.9, 0.99)
    return {
        "adam_update": lambda g, p, m, v: adam.adam_update(71, *options, 1e-8, 0.1, True, p, g, m, v),
        "adam_rollback": lambda g, p, m, v: adam.adam_rollback(71, *options, 1e-8, 0.1, True, p, g, m, v),
        "lion_update": lambda g, p, m, v: lion.lion_update(0, *options, 0.1, p, g, m),
        "adagrad_update": lambda g, p, m, v: adagrad.adagrad_update(0, 1, 0.1, 1e-8, 0.1, p, g, m),
        "multi_tensor_adam": lambda g, p, m, v: fused_adam.multi_tensor_adam(
            65536, FLAG, [[g], [p], [m], [v]], *options[1:], 1e-8, 1, 1, 1, 0.1
        ),
        "multi_tensor_lion": lambda g, p, m, v: fused_lion.multi_tensor_lion(
            65536, FLAG, [[g], [p], [m]], *options[1:], 1, 0.1
        ),
        "lamb": lambda g, p, m, v: lamb.lamb(
            p, torch.empty(0), m, v, g, *options[1:], 10.0, 0.01, 1e-6, 1.0, 1, 0, 1, 0.1
        ),
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", list(_steps()))
def test_gradients_and_states_may_have_another_shape_of_the_same_size(name: str, dtype: torch.dtype) -> None:
    """deepspeed's functions count elements only."""
    step = _steps()[name]
    shaped = [tensor.to(dtype) for tensor in _tensors(4)]
    grad, param, *states = (tensor.clone() for tensor in shaped)
    flat = [grad.flatten(), param, *(state.flatten() for state in states)]
    step(*shaped)
    step(*flat)
    assert not torch.equal(shaped[1], _tensors(4)[1].to(dtype))
    for expected, found in zip(shaped, flat, strict=True):
        assert torch.equal(found.view(7, 5), expected)
    with pytest.raises(RuntimeError, match=r"exp_avgs\[0\]|sums\[0\]"):
        step(grad, param, torch.rand(36)[:34], states[1])


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("kind", ["Symmetric", "Asymmetric"])
def test_quantizer(bits: int, kind: str) -> None:
    module = _load("QuantizerBuilder")
    quant_type = getattr(module, kind)
    assert quant_type is getattr(module.QuantizationType, kind)
    x = torch.randn(4, 64, generator=torch.Generator().manual_seed(0)).half()
    q, params = module.quantize(x, 4, bits, quant_type)
    assert q.shape == (4, 64 * bits // 8)
    assert params.shape == (4, 1 if kind == "Symmetric" else 2)
    step = params[:, :1] * 1.01 + 1e-3
    assert ((module.dequantize(q, params, 4, bits, quant_type) - x).abs() <= step).all()
    assert module.dequantize(q, params, 4, bits, quant_type).dtype == torch.float16
    values = module.dequantize_fp32(q, params, 4, bits, quant_type)
    assert values.dtype == torch.float32
    gathered = params.flatten()  # like ZeRO++
    assert torch.equal(module.dequantize_fp32(q, gathered, 4, bits, quant_type), values)
    with pytest.raises(ValueError, match=r"got params of shape \(4, [12]\) for 2 groups"):
        module.dequantize(q, params, 2, bits, quant_type)


def test_inference_core() -> None:
    core = _load("InferenceCoreBuilder")
    x, residual, out, total = (torch.randn(3, 8) for _ in range(4))
    weight, bias = torch.rand(8), torch.rand(8)
    functional = torch.nn.functional
    core.rms_norm(out, x, weight, 1e-5)
    torch.testing.assert_close(out, functional.rms_norm(x, (8,), weight, 1e-5))
    core.rms_pre_norm(out, total, x, residual, weight, 1e-5)
    torch.testing.assert_close(total, x + residual)
    torch.testing.assert_close(out, functional.rms_norm(x + residual, (8,), weight, 1e-5))
    core.layer_norm(out, x, weight, bias, 1e-5)
    torch.testing.assert_close(out, functional.layer_norm(x, (8,), weight, bias))
    core.pre_layer_norm(total, out, x, residual, weight, bias, 1e-5)
    torch.testing.assert_close(total, x + residual)
    core.post_layer_norm(total, x, residual, weight, bias, 1e-5)
    torch.testing.assert_close(total, out)


@pytest.mark.parametrize("biased", [False, True])
def test_inference_activations(biased: bool) -> None:
    core = _load("InferenceCoreBuilder")
    functional = torch.nn.functional
    x, bias = torch.randn(3, 8), torch.randn(8) if biased else None
    shifted = x if bias is None else x + bias
    acts = {0: lambda t: functional.gelu(t, approximate="tanh"), 1: torch.relu, 2: functional.silu, 6: lambda t: t}
    for act, formula in acts.items():
        given = x.clone()
        core.bias_activation(given, bias, act)
        torch.testing.assert_close(given, formula(shifted), rtol=1e-5, atol=1e-6)
    gated = {3: lambda t: functional.gelu(t, approximate="tanh"), 4: torch.relu, 5: functional.silu}
    out = torch.empty(3, 4)
    for act, formula in gated.items():
        core.gated_activation(out, x, bias, act)
        torch.testing.assert_close(out, formula(shifted[:, ::2]) * shifted[:, 1::2], rtol=1e-5, atol=1e-6)
    for call in (core.bias_activation, lambda t, b, act: core.gated_activation(out, t, b, act)):
        with pytest.raises(NotImplementedError, match="got activation 9; expected one of"):
            call(x, bias, 9)
    for wrong in (torch.ones(3, 1), torch.ones(1), torch.ones(8, dtype=torch.float64)):
        for call in (core.bias_activation, lambda t, b, act: core.gated_activation(out, t, b, act + 3)):
            with pytest.raises(
                ValueError, match=r"_activation failed: got bias, .*; expected torch.float32 of shape \(8,\)"
            ):
                call(x, wrong, 1)
    whole = torch.ones(1, 8)  # of as many elements
    core.gated_activation(out, x, whole, 4)
    torch.testing.assert_close(out, torch.relu((x + 1)[:, ::2]) * (x + 1)[:, 1::2], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_matrix_products_are_written_to_what_is_given(dtype: torch.dtype) -> None:
    core = _load("InferenceCoreBuilder")
    core.create_handle()
    hidden, weights, output = torch.randn(3, 8).to(dtype), torch.randn(5, 8).to(dtype), torch.empty(3, 5, dtype=dtype)
    core.blas_linear(output, hidden, weights)
    torch.testing.assert_close(output, hidden @ weights.t())
    a, b, c = torch.randn(2, 3, 4).to(dtype), torch.randn(2, 4, 6).to(dtype), torch.empty(2, 3, 6, dtype=dtype)
    core.blas_4d_matmul(c, b, a)
    torch.testing.assert_close(c, a @ b)
    with pytest.raises(RuntimeError, match=r"blas_linear failed: got a .* output of shape \(3, 4\)"):
        core.blas_linear(output[:, :4], hidden, weights)


def test_colossals_inference_ops() -> None:
    ops = InferenceOpsLoader().load()
    functional = torch.nn.functional
    x, residual, weight = torch.randn(3, 8), torch.randn(3, 8), torch.rand(8)
    out = torch.empty(3, 8)
    ops.rms_layernorm(out, x, weight, 1e-5)
    torch.testing.assert_close(out, functional.rms_norm(x, (8,), weight, 1e-5))
    total = x + residual
    ops.fused_add_rms_layernorm(x, residual, weight, 1e-5)
    torch.testing.assert_close(residual, total)
    torch.testing.assert_close(x, functional.rms_norm(total, (8,), weight, 1e-5))
    pair = torch.randn(2, 3, 8)
    torch.testing.assert_close(ops.silu_and_mul(pair), functional.silu(pair[0]) * pair[1])
    query, key, angles = torch.randn(5, 2, 4), torch.randn(5, 1, 4), torch.randn(5, 2)
    expected = torch.cat(
        [
            query[..., :2] * angles.cos()[:, None] - query[..., 2:] * angles.sin()[:, None],
            query[..., 2:] * angles.cos()[:, None] + query[..., :2] * angles.sin()[:, None],
        ],
        -1,
    )
    ops.rotary_embedding(query, key, angles.cos(), angles.sin())
    torch.testing.assert_close(query, expected)


def test_an_output_of_another_shape_is_refused_and_nothing_behind_it_is_written() -> None:
    """``out=`` would resize it, over the memory behind it."""
    memory = torch.zeros(64)
    with pytest.raises(RuntimeError):
        _load("InferenceCoreBuilder").gated_activation(memory[:2], torch.ones(4, 8), None, 4)
    assert not memory.any()


def test_when_one_of_two_outputs_is_refused_the_other_is_not_written() -> None:
    core, x, weight = _load("InferenceCoreBuilder"), torch.ones(2, 8), torch.ones(8)
    written, wrong = torch.zeros(2, 8), torch.zeros(3, 8)
    for call in (
        lambda: core.rms_pre_norm(written, wrong, x, x, weight, 1e-6),
        lambda: core.pre_layer_norm(wrong, written, x, x, weight, weight, 1e-6),
    ):
        with pytest.raises(RuntimeError, match=r"output of shape \(3, 8\)"):
            call()
    assert not written.any()


def test_float64_is_left_to_deepspeeds_own_ops() -> None:
    flag = torch.zeros(1, dtype=torch.int32)
    p, g, m, v = torch.ones(4, 3, dtype=torch.float64)
    adam, lion, lamb = (_load(f"Fused{name}Builder") for name in ("Adam", "Lion", "Lamb"))
    for call in (
        lambda: adam.multi_tensor_adam(1, flag, [[g], [p], [m], [v]], 0.1, 0.9, 0.9, 1e-6, 1, 0, True, 0.0),
        lambda: lion.multi_tensor_lion(1, flag, [[g], [p], [m]], 0.1, 0.9, 0.9, 1, 0.0),
        lambda: lamb.lamb(p, p[:0], m, v, g, 0.1, 0.9, 0.9, 10.0, 0.01, 1e-6, 1.0, 1, 0, True, 0.0),
    ):
        with pytest.raises(NotImplementedError, match="got float64; expected float32, bfloat16 or float16"):
            call()


@pytest.mark.parametrize("how", ["compiled", "meta", "fake", "traced", "vmap"])
def test_two_outputs_are_written_where_memory_cannot_be_looked_at(how: str) -> None:
    core, weight = _load("InferenceCoreBuilder"), torch.ones(4)

    def both(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out, total = torch.zeros_like(x), torch.zeros_like(y)
        write_outputs("both", (out, x + 1), (total, y + 2))
        return out, total

    x = torch.ones(2, 4)
    if how == "compiled":
        norm, total = torch.zeros(2, 4), torch.zeros(2, 4)
        torch.compile(core.rms_pre_norm, fullgraph=True, backend="aot_eager")(norm, total, x, x, weight, 1e-6)
        assert total.eq(2).all()
    elif how == "meta":
        assert both(x.to("meta"), x.to("meta"))[0].shape == (2, 4)
    elif how == "fake":
        with FakeTensorMode():
            assert both(torch.ones(2, 4), torch.ones(2, 4))[1].shape == (2, 4)
    elif how == "traced":
        assert make_fx(both, tracing_mode="fake")(x, x)(x, x)[0].eq(2).all()
    else:
        assert torch.func.vmap(both)(x, x)[1].eq(3).all()


def test_an_output_whose_elements_share_memory_is_refused_before_it_is_written() -> None:
    memory = torch.ones(5)
    window = memory.as_strided((3, 3), (1, 1))
    core, weight = _load("InferenceCoreBuilder"), torch.ones(3)
    flag, state = torch.zeros(1, dtype=torch.int32), memory.bfloat16().as_strided((3, 3), (1, 1))
    numbers = torch.ones(3, 3, dtype=torch.bfloat16)
    calls = [
        lambda: core.bias_activation(window, None, 1),
        lambda: core.rms_norm(window, torch.ones(3, 3), weight, 1e-6),
        lambda: InferenceOpsLoader().load().rms_layernorm(window, torch.ones(3, 3), weight, 1e-6),
        lambda: _load("FusedLionBuilder").multi_tensor_lion(
            0, flag, [[numbers], [numbers.clone()], [state]], 0.1, 0.9, 0.9, 1, 0.0
        ),
    ]
    for call in calls:
        with pytest.raises(RuntimeError, match=r"elements share memory; expected separate\s+memory for each"):
            call()
    assert torch.equal(memory, torch.ones(5))
    assert torch.equal(state, torch.ones(3, 3, dtype=torch.bfloat16))
