"""The multi-tensor optimizers against their references, on every implementation available here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
import torch

from . import optimizers_reference as reference
from .compare import DTYPES, close, normal, opcheck
from .conftest import KINDS, Implementation, load

if TYPE_CHECKING:
    from collections.abc import Callable

SHAPES = [(1,), (7, 5), (0,), (1023,), (3, 1, 65), *[(11,)] * 200]
"""More tensors than one launch takes, including an empty one."""


@dataclass(frozen=True)
class Case:
    """An optimizer: its builder, function, number of states, whether it counts steps, and its options."""

    builder: str
    function: str
    states: int
    steps: str
    formula: Callable[..., Any]
    options: dict[str, Any] = field(default_factory=dict)


PLAIN = {"lr": 0.01, "weight_decay": 0.1, "maximize": False}
ADAM = {**PLAIN, "beta1": 0.9, "beta2": 0.99, "eps": 1e-6, "bias_correction": True}
WITHOUT = {"bias_correction": False, "maximize": True}
ADAGRAD = {**PLAIN, "eps": 1e-6}
SGD = {**PLAIN, "momentum": 0.9, "dampening": 0.3, "nesterov": False, "first_step": True}
NESTEROV = {"dampening": 0.0, "weight_decay": 0.0, "nesterov": True, "maximize": True, "first_step": False}
LAMB = {**ADAM, "min_coeff": 0.1, "max_coeff": 5.0, "eps_inside_sqrt": False}
INSIDE = {"min_coeff": 0.5, "max_coeff": 0.6, "eps_inside_sqrt": True, "bias_correction": False}


def _adam(**options: Any) -> Case:
    return Case("MultiTensorAdamBuilder", "multi_tensor_adam_step", 2, "each", reference.adam, {**ADAM, **options})


CASES = {
    "adamw": _adam(adamw_mode=True),
    "adam": _adam(adamw_mode=False, **WITHOUT),
    "lion": Case("LionBuilder", "lion_step", 1, "", reference.lion, {**PLAIN, "beta1": 0.9, "beta2": 0.99}),
    "adagrad": Case("AdagradBuilder", "adagrad_step", 1, "", reference.adagrad, ADAGRAD),
    "adagrad plain": Case("AdagradBuilder", "adagrad_step", 1, "", reference.adagrad, {**ADAGRAD, "weight_decay": 0.0}),
    "sgd first": Case("SGDBuilder", "sgd_step", 1, "", reference.sgd, SGD),
    "sgd first nesterov": Case("SGDBuilder", "sgd_step", 1, "", reference.sgd, {**SGD, **NESTEROV, "first_step": True}),
    "sgd": Case("SGDBuilder", "sgd_step", 1, "", reference.sgd, {**SGD, **NESTEROV}),
    "sgd without momentum": Case(
        "SGDBuilder", "sgd_step", 1, "", reference.sgd, {**SGD, "momentum": 0.0, "first_step": False}
    ),
    "lamb": Case("LambBuilder", "lamb_step", 2, "one", reference.lamb, LAMB),
    "lamb inside": Case("LambBuilder", "lamb_step", 2, "one", reference.lamb, {**LAMB, **INSIDE}),
}


@pytest.fixture(params=KINDS)
def implementation(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def _call(op: Implementation, case: Case, lists: list[list[torch.Tensor]], step: int = 3, **more: Any) -> Any:
    steps = {"each": [[step] * len(lists[0])], "one": [step], "": []}[case.steps]
    return getattr(op.functions, case.function)(*lists, *steps, **{**case.options, **more})


def _lists(op: Implementation, case: Case, param: torch.dtype, grad: torch.dtype) -> list[list[torch.Tensor]]:
    dtypes = [param, grad, *[torch.float32] * case.states]
    lists = [
        [normal(*shape, dtype=dtype, device=op.device, seed=role) for shape in SHAPES]
        for role, dtype in enumerate(dtypes)
    ]
    return [*lists[:2], *([state.abs() for state in states] for states in lists[2:])]


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("param", DTYPES)
def test_a_step_agrees_with_the_reference(implementation: str, name: str, param: torch.dtype) -> None:
    case = CASES[name]
    op = load(implementation, case.builder)
    for grad in {param, torch.float32}:
        lists = _lists(op, case, param, grad)
        exact = [[tensor.double().cpu() for tensor in tensors] for tensors in lists]
        returned = _call(op, case, lists)
        for i in range(len(SHAPES)):
            steps = [3] if case.steps else []
            expected = case.formula(*(tensors[i] for tensors in exact), *steps, **case.options)
            close(lists[0][i], expected[0])
            for state, wanted in zip(lists[2:], expected[1:], strict=False):
                close(state[i], wanted)
            if name.startswith("lamb"):
                assert returned[i].item() == pytest.approx(expected[3].item(), rel=1e-4)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("name", ["adam", "lion", "adagrad", "sgd", "lamb"])
@pytest.mark.parametrize("grad", DTYPES)
@pytest.mark.parametrize("param", DTYPES)
def test_every_pair_of_dtypes_is_stepped(implementation: str, name: str, param: torch.dtype, grad: torch.dtype) -> None:
    case = CASES[name]
    op = load(implementation, case.builder)
    dtypes = [param, grad, *[torch.float32] * case.states]
    for shapes in ([(1,)], [(3, 5), (0,), (130,)], [(131,)]):
        lists = [
            [normal(*shape, dtype=dtype, device=op.device, seed=role).abs() for shape in shapes]
            for role, dtype in enumerate(dtypes)
        ]
        exact = [[tensor.double().cpu() for tensor in tensors] for tensors in lists]
        _call(op, case, lists)
        for i in range(len(shapes)):
            steps = [3] if case.steps else []
            close(lists[0][i], case.formula(*(tensors[i] for tensors in exact), *steps, **case.options)[0])


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("name", ["adam", "lion", "lamb"])
@pytest.mark.parametrize("param", DTYPES[:2])
@pytest.mark.parametrize("past", [0, 1])
def test_chunks_agree_whatever_is_left_and_wherever_they_begin(
    implementation: str, name: str, param: torch.dtype, past: int
) -> None:
    """A device processes tensors in chunks of 4096, in tiles if all of a tensor's addresses are aligned."""
    case = CASES[name]
    op = load(implementation, case.builder)
    dtypes = [param, param, *[torch.float32] * case.states]
    lists = [
        [normal(size + past, dtype=dtype, device=op.device, seed=role).abs()[past:] for size in (4095, 0, 1, 4105)]
        for role, dtype in enumerate(dtypes)
    ]
    exact = [[tensor.double().cpu() for tensor in tensors] for tensors in lists]
    _call(op, case, lists)
    for i in range(4):
        steps = [3] if case.steps else []
        expected = case.formula(*(tensors[i] for tensors in exact), *steps, **case.options)
        close(lists[0][i], expected[0])
        for state, wanted in zip(lists[2:], expected[1:], strict=False):
            close(state[i], wanted)


@pytest.mark.parametrize("name", ["adamw", "lion", "lamb"])
def test_layouts_of_every_kind_are_stepped(implementation: str, name: str) -> None:
    case = CASES[name]
    op = load(implementation, case.builder)
    lists = _lists(op, case, torch.float32, torch.float32)
    wide = [tensors[1].repeat(2, 2) for tensors in lists]
    for view in (lambda t: t.t(), lambda t: t[:, ::2], lambda t: t[1:, :3]):
        given = [view(tensor.clone()) for tensor in wide]
        given[1] = given[1].contiguous()  # its layout differs from the parameter's
        plain = [tensor.contiguous().clone() for tensor in given]
        _call(op, case, [[tensor] for tensor in given])
        _call(op, case, [[tensor] for tensor in plain])
        for mine, theirs in zip(given, plain, strict=True):
            torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("name", ["adamw", "lion", "adagrad", "sgd", "lamb"])
@pytest.mark.parametrize("dtype", [torch.int32, torch.float32])
def test_a_set_flag_leaves_everything_as_it_was(implementation: str, name: str, dtype: torch.dtype) -> None:
    case = CASES[name]
    op = load(implementation, case.builder)
    lists = _lists(op, case, torch.float32, torch.float32)
    before = [[tensor.clone() for tensor in tensors] for tensors in lists]
    _call(op, case, lists, noop_flag=torch.ones(1, dtype=dtype, device=op.device))
    assert all(
        torch.equal(a, b) for mine, old in zip(lists, before, strict=True) for a, b in zip(mine, old, strict=True)
    )
    _call(op, case, lists, noop_flag=torch.zeros(1, dtype=dtype, device=op.device))
    assert not torch.equal(lists[0][1], before[0][1])


@pytest.mark.parametrize("name", ["adamw", "lion", "adagrad", "sgd", "lamb"])
def test_gradients_are_divided_by_the_scale(implementation: str, name: str) -> None:
    case = CASES[name]
    op = load(implementation, case.builder)
    scaled, plain = (_lists(op, case, torch.float32, torch.float32) for _ in range(2))
    scaled[1] = [grad * 8 for grad in scaled[1]]
    _call(op, case, scaled, grad_scale=torch.tensor([8.0], device=op.device))
    _call(op, case, plain)
    for mine, theirs in zip(scaled[0], plain[0], strict=True):
        torch.testing.assert_close(mine, theirs)


def test_tensors_at_different_steps_are_corrected_each_by_its_own(implementation: str) -> None:
    case = CASES["adamw"]
    op = load(implementation, case.builder)
    lists = _lists(op, case, torch.float32, torch.float32)
    exact = [[tensor.double().cpu() for tensor in tensors] for tensors in lists]
    steps = [1 + i % 3 for i in range(len(SHAPES))]
    op.functions.multi_tensor_adam_step(*lists, steps, **case.options)
    for i, step in enumerate(steps):
        close(lists[0][i], reference.adam(*(tensors[i] for tensors in exact), step, **case.options)[0])


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("adamw", {}),
        ("adamw", {"beta1": 0.0, "maximize": True}),
        ("adamw", {"bias_correction": False}),
        ("adam", {"bias_correction": True}),
        ("lamb", {}),
        ("lamb", {"bias_correction": False}),
        ("lion", {}),
        ("sgd", {}),
    ],
)
def test_learning_rates_and_steps_of_the_device_agree_with_the_hosts(
    implementation: str, name: str, options: dict[str, Any]
) -> None:
    case = CASES[name]
    op = load(implementation, case.builder)
    lists = [tensors[:6] for tensors in _lists(op, case, torch.float32, torch.float32)]
    exact = [[tensor.double().cpu() for tensor in tensors] for tensors in lists]
    given = {**case.options, **options, "lr": -1.0, "device_lr": torch.tensor(0.02, device=op.device)}
    taken = [float(i % 3 * 1000) for i in range(6)]
    if case.steps:
        given["device_steps"] = torch.tensor(taken, device=op.device)
    numbers = {"each": [[]], "one": [0], "": []}[case.steps]
    getattr(op.functions, case.function)(*lists, *numbers, **given)
    for i in range(6):
        steps = [int(taken[i]) + 1] if case.steps else []
        wanted = {**case.options, **options, "lr": 0.02}
        close(lists[0][i], case.formula(*(tensors[i] for tensors in exact), *steps, **wanted)[0])


@pytest.mark.parametrize(
    ("name", "numbers", "options", "said"),
    [
        ("lion", [], {"device_lr": torch.ones(2)}, r"got device_lr of shape \(2\); expected one number"),
        ("lion", [], {"device_lr": torch.ones(1, dtype=torch.float64)}, "got device_lr of float64; expected float32"),
        ("adamw", [[]], {"device_steps": torch.ones(2)}, r"got device_steps of shape \(2\); expected \(205\)"),
        ("adamw", [[]], {"device_steps": torch.ones(205).long()}, "got device_steps of int64; expected float32"),
        ("adamw", [[]], {"device_steps": torch.ones(410)[::2]}, "got device_steps with gaps between its elements"),
        (
            "adamw",
            [[3] * 205],
            {"device_steps": torch.ones(205)},
            "got steps .* expected none together with device_steps",
        ),
        ("lamb", [3], {"device_steps": torch.ones(205)}, "got step 3; expected 0 together with device_steps"),
    ],
)
def test_a_schedule_that_does_not_fit_is_named(
    name: str, numbers: list[Any], options: dict[str, Any], said: str
) -> None:
    case = CASES[name]
    op = load("cpu", case.builder)
    lists = _lists(op, case, torch.float32, torch.float32)
    before = [tensor.clone() for tensor in lists[0]]
    with pytest.raises(RuntimeError, match=said):
        getattr(op.functions, case.function)(*lists, *numbers, **{**case.options, **options})
    assert all(torch.equal(a, b) for a, b in zip(lists[0], before, strict=True))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda ls: ls[1].pop(), r"got grads with \d+ tensors; expected \d+, as params has"),
        (lambda ls: ls[1].__setitem__(3, ls[1][3][:-1]), r"got grads\[3\] of shape \(1022\); expected \(1023\)"),
        (lambda ls: ls[2].__setitem__(1, ls[2][1].bfloat16()), r"got exp_avgs\[1\] of bfloat16; expected float32"),
        (lambda ls: ls[0].__setitem__(1, ls[0][1].double()), r"got params\[1\] of float64; expected float32, bfloat16"),
        (lambda ls: ls[0].__setitem__(1, ls[0][1][:1].expand(7, 5)), r"got params\[1\], whose elements share memory"),
    ],
)
def test_wrong_lists_are_named_before_anything_is_written(implementation: str, change: Any, said: str) -> None:
    case = CASES["lion"]
    op = load(implementation, case.builder)
    lists = _lists(op, case, torch.float32, torch.float32)
    change(lists)
    before = [tensor.clone() for tensor in lists[0]]
    with pytest.raises(RuntimeError, match=f"lion_step failed: {said}.*Fix: "):
        _call(op, case, lists)
    assert all(torch.equal(a, b) for a, b in zip(lists[0], before, strict=True))


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ({"noop_flag": torch.zeros(2, dtype=torch.int32)}, "got noop_flag of int32 and shape"),
        ({"noop_flag": torch.zeros(1, dtype=torch.int64)}, "got noop_flag of int64"),
        ({"grad_scale": torch.ones(1, dtype=torch.float64)}, "got grad_scale of float64; expected float32"),
        ({"grad_scale": torch.ones(2)}, "got grad_scale of shape"),
    ],
)
def test_wrong_flags_are_named(flag: dict[str, torch.Tensor], said: str) -> None:
    case = CASES["lion"]
    op = load("cpu", case.builder)
    with pytest.raises(RuntimeError, match=said):
        _call(op, case, _lists(op, case, torch.float32, torch.float32), **flag)


@pytest.mark.parametrize("name", ["sgd first", "sgd first nesterov", "sgd without momentum"])
def test_buffers_that_are_not_read_may_hold_anything(implementation: str, name: str) -> None:
    case = CASES[name]
    op = load(implementation, case.builder)
    lists = _lists(op, case, torch.float32, torch.float32)
    exact = [[tensor.double().cpu() for tensor in tensors] for tensors in lists]
    for number, buffer in enumerate(lists[2]):
        buffer.fill_((torch.nan, torch.inf)[number % 2])
    _call(op, case, lists)
    for i in range(len(SHAPES)):
        expected = case.formula(*(tensors[i] for tensors in exact), **case.options)
        close(lists[0][i], expected[0])
        close(lists[2][i], expected[1])


@pytest.mark.parametrize("first", [True, False])
def test_sgd_without_momentum_takes_no_buffers(implementation: str, first: bool) -> None:
    case = CASES["sgd without momentum"]
    op = load(implementation, case.builder)
    params, grads, buffers = _lists(op, case, torch.bfloat16, torch.float32)
    params[4], grads[4] = params[4].transpose(0, 2), grads[4].transpose(0, 2).contiguous()
    exact = [[tensor.double().cpu() for tensor in tensors] for tensors in (params, grads)]
    with pytest.raises(RuntimeError, match=r"got momentum_buffers with 0 tensors; expected \d+, as params has"):
        _call(op, case, [params, grads, []], momentum=0.9)
    _call(op, case, [params, grads, []], first_step=first)
    for i in range(len(SHAPES)):
        close(
            params[i], case.formula(exact[0][i], exact[1][i], exact[0][i], **{**case.options, "first_step": first})[0]
        )
    with pytest.raises(RuntimeError, match="got momentum_buffers with 1 tensors"):
        _call(op, case, [params, grads, buffers[:1]])


def test_steps_from_one_are_asked_for() -> None:
    case = CASES["adamw"]
    op = load("cpu", case.builder)
    lists = _lists(op, case, torch.float32, torch.float32)
    with pytest.raises(RuntimeError, match=r"got steps with .* numbers; expected one of 1 or more"):
        op.functions.multi_tensor_adam_step(*lists, [0] * len(SHAPES), **case.options)
    with pytest.raises(RuntimeError, match="lamb_step failed: got step 0"):
        lamb = CASES["lamb"]
        _call(load("cpu", lamb.builder), lamb, _lists(op, lamb, torch.float32, torch.float32), step=0)


@pytest.mark.parametrize("name", ["adamw", "lion", "adagrad", "sgd", "lamb"])
def test_torch_knows_the_schema_and_autograd_the_writing(implementation: str, name: str) -> None:
    case = CASES[name]
    op = load(implementation, case.builder)
    lists = [[torch.rand(3, 4, device=op.device)] for _ in range(2 + case.states)]
    versions = [tensors[0]._version for tensors in lists]
    _call(op, case, lists)
    assert lists[0][0]._version > versions[0]
    space = op.space
    options = {**case.options, "noop_flag": None, "grad_scale": None}
    if name != "adagrad":
        options["device_lr"] = None
    if case.steps:
        options["device_steps"] = None
    if "adamw_mode" in options:
        options["decoupled"] = options.pop("adamw_mode")
    steps = {"each": [[3]], "one": [3], "": []}[case.steps]
    opcheck(getattr(space, case.function).default, (*lists, *steps), options)


def test_no_parameters_are_no_step(implementation: str) -> None:
    assert load(implementation, "LionBuilder").functions.lion_step([], [], [], lr=0.1) is None
    assert load(implementation, "LambBuilder").functions.lamb_step([], [], [], [], 1, lr=0.1).numel() == 0
