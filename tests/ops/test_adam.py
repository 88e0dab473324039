"""The op `adam`: its kernel and deepspeed's functions against the plain reference."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from anyaccel import get_accelerator

from .adam_reference import AdamReference

HALVES = (torch.bfloat16, torch.float16)
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 2e-2, torch.float16: 3e-3}
"""Relative to the largest magnitude, after a few steps: some units in the last place of the parameter's dtype."""


@pytest.fixture(scope="module")
def op() -> Any:
    return get_accelerator().create_op_builder("CPUAdamBuilder").load()


def _states(params: list[torch.Tensor], dtype: torch.dtype | None = None) -> list[list[torch.Tensor]]:
    moments = [[torch.zeros_like(param, dtype=dtype or param.dtype) for param in params] for _ in range(2)]
    return [*moments, [torch.zeros(()) for _ in params]]


def _assert_close(ours: torch.Tensor, wanted: torch.Tensor) -> None:
    scale = max(1.0, wanted.abs().max().item()) if wanted.numel() else 1.0
    torch.testing.assert_close(ours.double(), wanted, rtol=0.0, atol=TOLERANCE[ours.dtype] * scale)


@pytest.mark.parametrize("adamw_mode", [True, False])
@pytest.mark.parametrize("state_is_float", [True, False])
@pytest.mark.parametrize("grad_dtype", TOLERANCE)
@pytest.mark.parametrize("param_dtype", TOLERANCE)
def test_every_combination_of_dtypes(
    op: Any, param_dtype: torch.dtype, grad_dtype: torch.dtype, state_is_float: bool, adamw_mode: bool
) -> None:
    generator = torch.Generator().manual_seed(0)
    param = torch.randn(1023, generator=generator).to(param_dtype)
    reference = AdamReference(param, lr=1e-2, adamw_mode=adamw_mode)
    states = _states([param], torch.float32 if state_is_float else None)
    for _ in range(5):
        grad = torch.randn(1023, generator=generator).to(grad_dtype)
        reference.step(grad)
        op.adam_step([param], [grad], *states, lr=1e-2, weight_decay=1e-2, adamw_mode=adamw_mode)
        if param_dtype is torch.float32 and state_is_float:
            _assert_close(states[0][0], reference.exp_avg)
            _assert_close(states[1][0], reference.exp_avg_sq)
        else:  # each step rounds the parameter: compare with the rounded one
            _assert_close(param, reference.param)
            reference.param = param.double()
    _assert_close(param, reference.param)
    assert states[2][0].item() == 5


@pytest.mark.parametrize(
    "options",
    [
        {"bias_correction": False},
        {"maximize": True},
        {"weight_decay": 0.0},
        {"beta1": 0.0, "beta2": 0.0},
        {"eps": 1e-3},
        {"lr": 0.0},
    ],
)
def test_options(op: Any, options: dict[str, Any]) -> None:
    param, grad = torch.randn(100), torch.randn(100)
    reference = AdamReference(param, **options)
    states = _states([param])
    for _ in range(3):
        reference.step(grad)
        op.adam_step([param], [grad], *states, **{"lr": 1e-3, "weight_decay": 1e-2, **options})
    _assert_close(param, reference.param)


def test_thousands_of_tensors_of_every_size_at_once(op: Any) -> None:
    sizes = [0, 1, 2, 3, 0, 15, 16, 17, 33, 1024, 40_000, 1, 70_001] * 20
    params = [torch.randn(size) for size in sizes]
    references = [AdamReference(param, weight_decay=0.0) for param in params]
    states = _states(params)
    for _ in range(2):
        grads = [torch.randn(size) for size in sizes]
        for reference, grad in zip(references, grads, strict=True):
            reference.step(grad)
        op.adam_step(params, grads, *states, lr=1e-3)
    for param, reference in zip(params, references, strict=True):
        _assert_close(param, reference.param)


def test_results_do_not_depend_on_the_number_of_threads(op: Any) -> None:
    before = torch.get_num_threads()
    results = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        params = [torch.linspace(-1, 1, size) for size in (100_003, 7, 65_536)]
        op.adam_step(params, [param.sin() for param in params], *_states(params), lr=0.1)
        results.append(torch.cat(params))
    torch.set_num_threads(before)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_no_tensors_is_no_work(op: Any) -> None:
    assert op.adam_step([], [], [], [], [], lr=1.0) is None


def test_steps_may_differ_and_may_be_float64(op: Any) -> None:
    params = [torch.ones(5), torch.ones(5)]
    references = [AdamReference(param, weight_decay=0.0) for param in params]
    states = _states(params)
    references[1].step_count = 9
    states[2][1] = torch.tensor([9.0], dtype=torch.float64)
    for reference in references:
        reference.step(torch.full((5,), 0.5))
    op.adam_step(params, [torch.full((5,), 0.5)] * 2, *states, lr=1e-3)
    for param, reference in zip(params, references, strict=True):
        _assert_close(param, reference.param)
    assert [step.item() for step in states[2]] == [1.0, 10.0]


LAYOUTS = {
    "transposed": lambda: torch.randn(6, 5).t(),
    "channels last": lambda: torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "every other": lambda: torch.randn(20)[::2],
    "column": lambda: torch.randn(7, 3)[:, 1:2],
    "misaligned": lambda: torch.randn(1001)[1:],
    "scalar": lambda: torch.randn(()),
}


@pytest.mark.parametrize("grad_layout", [*LAYOUTS, "as the parameter", "contiguous", "expanded"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(op: Any, layout: str, grad_layout: str) -> None:
    param = LAYOUTS[layout]()
    untouched = param._base.clone() if param._base is not None else None
    reference = AdamReference(param)
    grad = torch.randn_like(param)
    if grad_layout == "contiguous":
        grad = grad.contiguous()
    elif grad_layout == "expanded":
        grad = torch.randn(()).expand(param.shape)
    elif grad_layout in LAYOUTS:
        other = LAYOUTS[grad_layout]()
        grad = (
            other
            if other.shape == param.shape
            else torch.randn(param.shape[::-1]).permute(tuple(reversed(range(param.dim()))))
        )
    states = _states([param])
    for _ in range(2):
        reference.step(grad)
        op.adam_step([param], [grad], *states, lr=1e-3, weight_decay=1e-2)
    _assert_close(param, reference.param)
    if untouched is not None and param.numel() < untouched.numel():
        gaps = torch.ones_like(untouched, dtype=torch.bool)
        gaps.as_strided(param.shape, param.stride(), param.storage_offset()).fill_(False)
        assert torch.equal(param._base[gaps], untouched[gaps]), "elements outside the parameter changed"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e-42, 3e38])
@pytest.mark.parametrize("where", ["param", "grad"])
def test_unusual_values_spread_as_in_torch(op: Any, where: str, value: float) -> None:
    param, grad = torch.ones(40), torch.full((40,), 0.25)
    (param if where == "param" else grad)[3] = value
    theirs = torch.nn.Parameter(param.clone())
    theirs.grad = grad.clone()
    torch.optim.AdamW([theirs], lr=1e-3, weight_decay=1e-2).step()
    op.adam_step([param], [grad], *_states([param]), lr=1e-3, weight_decay=1e-2)
    torch.testing.assert_close(param, theirs.detach(), equal_nan=True, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("dtype", HALVES)
def test_conversions_round_as_torchs(op: Any, dtype: torch.dtype) -> None:
    """With lr=0, a step converts to float and back to half; every bit pattern of a finite number must survive."""
    patterns = torch.arange(-(1 << 15), 1 << 15, dtype=torch.int32).to(torch.int16).view(dtype)
    finite = patterns[torch.isfinite(patterns)]
    param = finite.clone()
    op.adam_step([param], [torch.zeros_like(param)], *_states([param]), lr=0.0, eps=1.0)
    assert torch.equal(param.view(torch.int16), finite.view(torch.int16))


@pytest.mark.parametrize("dtype", HALVES)
def test_moments_round_to_nearest_even(op: Any, dtype: torch.dtype) -> None:
    """With beta1=0, the first moment is the gradient, rounded to the state's dtype."""
    magnitude = torch.logspace(-9, 5, 20_011, dtype=torch.float32)
    grad = torch.cat([magnitude, -magnitude, torch.tensor([65519.0, 65520.0, 5.9e-8, 2.9e-8, 0.0, -0.0])])
    param = torch.zeros(grad.numel(), dtype=dtype)
    states = _states([param])
    op.adam_step([param], [grad], *states, lr=0.0, beta1=0.0, eps=1.0)
    assert torch.equal(states[0][0], grad.to(dtype))


def _arguments(**replaced: Any) -> list[Any]:
    named = {
        "params": [torch.ones(4)],
        "grads": [torch.ones(4)],
        "exp_avgs": [torch.zeros(4)],
        "exp_avg_sqs": [torch.zeros(4)],
        "state_steps": [torch.zeros(())],
    }
    return list({**named, **replaced}.values())


@pytest.mark.parametrize(
    ("replaced", "message"),
    [
        ({"grads": []}, "lists of 1 params, 0 grads"),
        ({"params": [torch.ones(4, dtype=torch.float64)]}, r"params\[0\] of float64; expected .*create it with dtype"),
        ({"grads": [torch.ones(4, dtype=torch.int32)]}, r"grads\[0\] of int32; expected .*pass grads\[0\].float()"),
        ({"grads": [torch.ones(5)]}, r"grads\[0\] of another shape than params\[0\] \(5 against 4"),
        ({"grads": [torch.ones(2, 2)]}, r"grads\[0\] of another shape"),
        ({"exp_avgs": [torch.zeros(4, dtype=torch.float16)]}, r"exp_avgs\[0\] and exp_avg_sqs\[0\] of dtypes"),
        ({"exp_avg_sqs": [torch.zeros(4, dtype=torch.bfloat16)]}, r"exp_avg_sqs\[0\] of dtypes"),
        ({"params": [torch.ones(1).expand(4)]}, r"params\[0\], whose elements share memory"),
        ({"exp_avgs": [torch.zeros(1).expand(4)]}, r"exp_avgs\[0\], whose elements share memory"),
        ({"state_steps": [torch.zeros(2)]}, r"state_steps\[0\] with 2 elements"),
        ({"state_steps": [torch.zeros((), dtype=torch.int64)]}, r"state_steps\[0\]"),
        (
            {"grads": [torch.ones(4, device="meta")]},
            "got grads on meta; expected cpu, like the other tensors",
        ),
    ],
)
def test_wrong_arguments_are_named_and_nothing_is_written(op: Any, replaced: dict[str, Any], message: str) -> None:
    arguments = _arguments(**replaced)
    before = [[tensor.clone() for tensor in tensors] for tensors in arguments]
    # a valid tensor before the invalid one must not change either
    good = _arguments()
    together = [[*first, *second] for first, second in zip(good, arguments, strict=True)]
    for tried in (arguments, together):
        with pytest.raises(RuntimeError, match=message if tried is arguments else r"adam(_step)? failed: got"):
            op.adam_step(*tried, lr=1e-3)
    for tensors, saved in zip(arguments, before, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(tensors, saved, strict=True) if not a.is_meta)
    assert good[0][0].tolist() == [1.0] * 4


@pytest.mark.parametrize("adamw_mode", [True, False])
def test_deepspeeds_functions(op: Any, adamw_mode: bool) -> None:
    assert op.create_adam(7, 1e-3, 0.9, 0.999, 1e-8, 1e-2, adamw_mode, False) == 0
    param, exp_avg, exp_avg_sq = torch.randn(1001), torch.zeros(1001), torch.zeros(1001)
    reference = AdamReference(param, adamw_mode=adamw_mode)
    history = []
    for step in (1, 2, 3):
        grad = torch.rand(1001) + 0.5  # a moment near zero would amplify rounding without bound
        history.append((grad, param.clone(), exp_avg.clone(), exp_avg_sq.clone()))
        reference.step(grad)
        assert op.adam_update(7, step, 1e-3, 0.9, 0.999, 1e-8, 1e-2, True, param, grad, exp_avg, exp_avg_sq) == 0
        _assert_close(param, reference.param)
    for step in (3, 2, 1):
        grad, *before = history.pop()
        assert op.adam_rollback(7, step, 1e-3, 0.9, 0.999, 1e-8, 1e-2, True, param, grad, exp_avg, exp_avg_sq) == 0
        for ours, wanted in zip((param, exp_avg, exp_avg_sq), before, strict=True):
            torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-4)
    assert op.destroy_adam(7) == 0
    with pytest.raises(KeyError, match=r"create_adam\(7, …\) first"):
        op.adam_update(7, 1, 1e-3, 0.9, 0.999, 1e-8, 1e-2, True, param, grad, exp_avg, exp_avg_sq)


def test_a_graph_that_needs_the_old_values_refuses(op: Any) -> None:
    param = torch.randn(4, requires_grad=True)
    loss = (param * param).sum()
    with torch.no_grad():
        op.adam_step([param], [torch.ones(4)], *_states([param]), lr=0.1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_inference_tensors_step(op: Any) -> None:
    with torch.inference_mode():
        param = torch.ones(2)
        op.adam_step([param], [torch.ones(2)], *_states([param]), lr=0.5)
        assert param.tolist() == [0.5, 0.5]


@pytest.mark.parametrize("taken", [-1.0, -2.0, float("nan")])
@pytest.mark.parametrize("bias_correction", [True, False])
def test_a_counter_whose_next_step_is_none_is_refused_before_the_writing(
    op: Any, taken: float, bias_correction: bool
) -> None:
    lists = [[torch.ones(4), torch.ones(3)] for _ in range(4)]
    counters = [torch.tensor(1.0), torch.tensor(taken)]
    with pytest.raises(RuntimeError, match=r"adam failed: got state_steps\[1\].*expected a number of 0 or more"):
        op.adam_step(*lists, counters, lr=0.1, bias_correction=bias_correction)
    assert all(bool((tensor == 1).all()) for tensors in lists for tensor in tensors)
    assert counters[0] == 1


def test_update_refuses_step_zero(op: Any) -> None:
    op.create_adam(8)
    with pytest.raises(RuntimeError, match="got step 0; expected 1 or more"):
        op.adam_update(8, 0, 1e-3, 0.9, 0.999, 1e-8, 0.0, True, *(torch.ones(2) for _ in range(4)))


@pytest.mark.parametrize("name", ["adam_step", "adam_update", "adam_rollback"])
def test_opcheck(op: Any, name: str) -> None:
    tensors = [torch.rand(2, 3) for _ in range(4)]
    numbers = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0, "eps": 1e-8}
    flags = {"decoupled": True, "bias_correction": True}
    if name == "adam_step":
        arguments: tuple[Any, ...] = tuple([[tensor] for tensor in tensors] + [[torch.zeros(())]])
        flags["maximize"] = False
    else:
        arguments = (*tensors, 1)
    results = torch.library.opcheck(getattr(torch.ops.anyaccel, name).default, arguments, {**numbers, **flags})
    assert set(results.values()) == {"SUCCESS"}


def test_compiles_without_graph_break(op: Any) -> None:
    def take(param: torch.Tensor, grad: torch.Tensor, *states: torch.Tensor) -> torch.Tensor:
        op.adam_step([param], [grad], [states[0]], [states[1]], [states[2]], lr=0.1)
        return param * 2

    eager = [torch.ones(5), torch.ones(5), torch.zeros(5), torch.zeros(5), torch.zeros(())]
    compiled = [tensor.clone() for tensor in eager]
    assert torch.equal(take(*eager), torch.compile(take, fullgraph=True, backend="aot_eager")(*compiled))
    for ours, wanted in itertools.zip_longest(compiled, eager):
        assert torch.equal(ours, wanted)


def test_shared_memory_is_refused_and_nothing_is_written(op: Any) -> None:
    memory, step = torch.ones(8), torch.zeros(2)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"params": [memory[:4]], "exp_avgs": [memory[3:7]]}, r"params\[0\], which shares memory with exp_avgs\[0\]"),
        ({"exp_avgs": [memory[:4]], "exp_avg_sqs": [memory[:4]]}, r"exp_avg\w+\[0\], which shares memory"),
        ({"grads": [memory[1:5]], "params": [memory[:4]]}, r"params\[0\], which shares memory with grads\[0\]"),
        ({"exp_avgs": [memory[:4]], "state_steps": [memory[2:3]]}, "which shares memory with"),
    ]
    for replaced, said in cases:
        arguments = _arguments(**replaced)
        with pytest.raises(RuntimeError, match=said):
            op.adam_step(*arguments, lr=1e-3)
    for steps in ([step[0], step[0]], [step[1:], step[1]]):
        arguments = [[first[0], torch.ones(4)] for first in _arguments()]
        arguments[4] = steps
        with pytest.raises(RuntimeError, match=r"state_steps\[\d\], which shares memory with state_steps"):
            op.adam_step(*arguments, lr=1e-3)
    assert (memory == 1).all()
    assert (step == 0).all()


def test_a_sliding_window_is_not_written(op: Any) -> None:
    window = torch.ones(8).as_strided((2, 4), (2, 1))
    with pytest.raises(RuntimeError, match=r"params\[0\], whose elements share memory"):
        op.adam_step([window], [torch.ones(2, 4)], *_states([torch.ones(2, 4)]), lr=1e-3)


def test_parts_of_one_buffer_and_columns_of_one_matrix_are_taken(op: Any) -> None:
    memory, matrix = torch.ones(4, 4), torch.ones(4, 2)
    op.adam_step(*[[part] for part in memory], [torch.zeros(())], lr=1e-3)
    assert (memory[0] != 1).all()
    assert (memory[1] == 1).all()
    states = _states([matrix[:, 0], matrix[:, 1]])
    op.adam_step([matrix[:, 0], matrix[:, 1]], [torch.ones(4)] * 2, *states, lr=1e-3)
    assert torch.equal(matrix[:, 0], matrix[:, 1])


def test_misaligned_tensors_are_refused(op: Any) -> None:
    shifted = torch.frombuffer(bytearray(20), dtype=torch.float32, count=4, offset=1)
    with pytest.raises(RuntimeError, match=r"got exp_avgs\[0\] at an odd address"):
        op.adam_step(*_arguments(exp_avgs=[shifted]), lr=1e-3)
    with pytest.raises(RuntimeError, match=r"got state_steps\[0\] at an odd address"):
        op.adam_step(*_arguments(state_steps=[shifted[0]]), lr=1e-3)


def test_a_negated_view_is_refused_before_the_writing(op: Any) -> None:
    """Torch's own fallback would call the op with a copy, and fail afterwards."""
    options = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0, "eps": 1e-8, "decoupled": True}
    for role in (0, 2, 3):
        tensors = [torch.ones(3) for _ in range(4)]
        given = [torch._neg_view(one) if at == role else one for at, one in enumerate(tensors)]
        for function in (torch.ops.anyaccel.adam_update, torch.ops.anyaccel.adam_rollback):
            with pytest.raises(RuntimeError, match="adam failed: got a tensor that a flag marks as negated"):
                function(*given, 1, **options, bias_correction=True)
        assert all((one == 1).all() for one in tensors)


def test_a_leaf_of_another_layout_is_written_whole(op: Any) -> None:
    """Earlier versions failed to copy a result to a leaf, after the parameter had been written."""
    options = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.0, "eps": 1e-8, "decoupled": True}
    param = torch.ones(2, 3).t()
    moments = [torch.zeros(3, 2, requires_grad=True) for _ in range(2)]
    torch.ops.anyaccel.adam_update(param, torch.ones(3, 2), *moments, 1, **options, bias_correction=True)
    torch.testing.assert_close(param, torch.full((3, 2), 0.9))
    torch.testing.assert_close(moments[0].detach(), torch.full((3, 2), 0.1))
