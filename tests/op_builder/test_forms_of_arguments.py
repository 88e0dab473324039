"""A function computes the same for a tensor of another layout or dtype, or refuses it and writes nothing."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest
import torch

from anyaccel.kernels.functions.moe import Routing

from .calls import CALLS
from .calls.call import ShapedCall, arguments_of, function_of, tensors_of

if TYPE_CHECKING:
    from collections.abc import Callable

    Form = Callable[[torch.Tensor], torch.Tensor]

DTYPES = [
    torch.float64,
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int32,
    torch.uint8,
    torch.int8,
]
WITH_TORCHS_MESSAGE = ("meta", "sparse")
"""For these, torch's dispatcher says which device or layout has no kernel."""


def _shifted(tensor: torch.Tensor) -> torch.Tensor:
    memory = torch.empty(tensor.numel() + 1, dtype=tensor.dtype)[1:]
    return memory.view(tensor.shape).copy_(tensor)


def _expanded(tensor: torch.Tensor) -> torch.Tensor:
    return tensor[:1].expand(tensor.shape) if tensor.dim() else tensor


def _cast(dtype: torch.dtype) -> Form:
    return lambda tensor: tensor.to(dtype) if torch.equal(tensor.to(dtype).double(), tensor.double()) else tensor


FORMS: dict[str, Form] = {
    "stepped": lambda tensor: torch.stack((tensor, tensor), -1)[..., 0],
    "transposed": lambda tensor: tensor.movedim(-1, 0).contiguous().movedim(0, -1) if tensor.dim() > 1 else tensor,
    "shifted": _shifted,
    "expanded": _expanded,
    "negated": lambda tensor: torch._neg_view(-tensor) if tensor.dtype in DTYPES[:4] else tensor,
    "leaf": lambda tensor: tensor.requires_grad_() if tensor.dtype.is_floating_point else tensor,
    "meta": lambda tensor: tensor.to("meta"),
    "sparse": lambda tensor: tensor.to_sparse() if tensor.dim() else tensor,
    **{str(dtype): _cast(dtype) for dtype in DTYPES},
}


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.function} {call.case}".strip())
def test_a_tensor_in_another_form_changes_no_result(call: ShapedCall) -> None:
    written = _written(call)
    names = _names(call)
    wrong = []
    for number, name in enumerate(names):
        for form in FORMS:
            if (form == "torch.uint8" and "cache" in name) or (form == "sparse" and "float8" in call.function):
                continue  # a cache of bytes holds codes of floats; torch has no sparse 8-bit floats
            if call.function.endswith("zenflow_adam_register_group"):
                continue  # nothing is computed
            problem = _problem(call, number, form, is_written=number in written)
            if problem:
                wrong.append(f"{name} ({number}), {form}: {problem}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.function} {call.case}".strip())
@pytest.mark.parametrize("shift", [0, 1])
def test_two_arguments_in_the_same_memory_change_no_result(call: ShapedCall, shift: int) -> None:
    """The second one begins as many elements after the first."""
    names, given, written = _names(call), tensors_of(arguments_of(call)), _written(call)
    wrong = []
    for one, other in itertools.permutations(range(len(given)), 2):
        is_pair = given[one].shape == given[other].shape and given[one].dtype == given[other].dtype
        if is_pair and given[one].numel() > shift and (shift or one < other):
            problem = _problem_of_sharing(call, one, other, shift, written)
            if problem:
                wrong.append(f"{names[one]} ({one}) and {names[other]} ({other}): {problem}")
    assert not wrong, "\n".join(wrong)


def _problem_of_sharing(call: ShapedCall, one: int, other: int, shift: int, written: set[int]) -> str:
    tensor = tensors_of(arguments_of(call))[one].flatten()
    memory = torch.cat((tensor, tensor[:shift]))
    views = [
        memory[begin : begin + tensor.numel()].view_as(tensors_of(arguments_of(call))[one]) for begin in (0, shift)
    ]
    copies = [view.clone() for view in views]
    arguments, plain = (
        _with(_with(arguments_of(call), one, lambda _, pair=pair: pair[0]), other, lambda _, pair=pair: pair[1])
        for pair in (views, copies)
    )
    given = tensors_of(arguments)
    before = [tensor.clone() for tensor in given]
    try:
        expected = function_of(call)(**plain)
    except Exception:  # the one's values are none for the other
        return ""
    try:
        result = function_of(call)(**arguments)
    except Exception as error:
        is_same = all(_alike(*pair) for pair in zip(given, before, strict=True))
        return "" if is_same and "Fix:" in str(error) else f"refused after it wrote, or with another's message: {error}"
    left, right = (
        [tensor for number, tensor in enumerate(tensors_of(all_)) if number not in (one, other) or number in written]
        for all_ in (arguments, plain)
    )
    pairs = zip([*tensors_of(result), *left], [*tensors_of(expected), *right], strict=True)
    return "" if all(_alike(*pair) for pair in pairs) else "another result"


def _names(call: ShapedCall) -> list[str]:
    return [name for name, value in arguments_of(call).items() for _ in tensors_of(value)]


def _written(call: ShapedCall) -> set[int]:
    before, arguments = tensors_of(arguments_of(call)), arguments_of(call)
    function_of(call)(**arguments)
    pairs = zip(tensors_of(arguments), before, strict=True)
    return {number for number, (after, one) in enumerate(pairs) if not _alike(after, one)}


def _problem(call: ShapedCall, number: int, form: str, *, is_written: bool) -> str:
    """Return what is wrong with a call whose tensor of this number has another form, or an empty string."""
    of_one_row: Form = lambda tensor: _expanded(tensor).clone() if form == "expanded" else tensor  # noqa: E731
    plain, others = (_with(arguments_of(call), number, of_one_row) for _ in range(2))
    arguments = _with(others, number, FORMS[form])
    given = tensors_of(arguments)
    before = [tensor.detach().clone() for tensor in given]
    try:
        result = function_of(call)(**arguments)
    except Exception as error:
        if "Fix:" not in str(error) and form not in WITH_TORCHS_MESSAGE:
            return f"refused with another's message: {type(error).__name__}: {error}".splitlines()[0]
        is_same = all(_alike(*pair) for pair in zip(given, before, strict=True))
        return "" if is_same or (form == "meta" and not is_written) else "refused after it wrote"
    if form == "meta":
        return "written on another device" if is_written else ""
    expected = function_of(call)(**plain)
    pairs = zip([*tensors_of(result), *given], [*tensors_of(expected), *tensors_of(plain)], strict=True)
    is_small = any(tensor.dtype in DTYPES[2:4] for tensor in given)
    return "" if all(_alike(*pair, is_small=is_small) for pair in pairs) else "another result"


def _with(value: Any, number: int, form: Form) -> Any:
    """Return arguments in which one tensor, counted as :func:`tensors_of` does, has another form."""
    replaced = iter([form(one) if at == number else one for at, one in enumerate(tensors_of(value))])

    def rebuilt(part: Any) -> Any:
        if isinstance(part, torch.Tensor):
            return next(replaced)
        if isinstance(part, Routing):
            return Routing(*map(rebuilt, vars(part).values()))
        return [rebuilt(one) for one in part] if isinstance(part, list) else part

    return {name: rebuilt(part) for name, part in value.items()}


def _alike(tensor: torch.Tensor, expected: torch.Tensor, *, is_small: bool = False) -> bool:
    """Return whether values agree to the precision of float32, or of bfloat16; on other devices there are none."""
    if "meta" in (tensor.device.type, expected.device.type):
        return True
    left, right = (one.detach().to_dense().resolve_neg().double() for one in (tensor, expected))
    finite = right[right.isfinite()]
    bound = (2e-2 if is_small else 1e-4) * max([1.0, *finite.abs().flatten().tolist()])
    return left.shape == right.shape and torch.allclose(left, right, rtol=0, atol=bound, equal_nan=True)
