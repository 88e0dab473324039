"""Checks that a call ended in one of two allowed ways: a Python exception that left everything unchanged, or the
result for plain copies of the arguments."""

from __future__ import annotations

import contextlib
import math
import re
import warnings
from typing import TYPE_CHECKING, Any

import torch

from .references import reference_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .drawing import Drawing
    from .targets import Target

__all__ = ["Finding", "Outcome", "judge"]

_LARGEST = 1e6
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4, torch.bfloat16: 3e-2, torch.float16: 5e-3}


class Finding(Exception):
    """A call that ended in any other way."""


class Outcome:
    """How a call ended: accepted, or rejected with a text, and the message, which is the text without its numbers."""

    def __init__(self, target: Target, error: Exception | None) -> None:
        self.is_accepted = error is None
        self.message = "accepted"
        self.text = "" if error is None else str(error).split("\n")[0].split("Fix:")[0]
        if error is not None:
            text = re.sub(r"-?\d+", "#", self.text)
            self.message = f"{type(error).__name__}: {re.sub(r'#(, #)+', '#', text)[:140]}"
        self.target = target


_NEVER_EQUAL = {"ragged_ops.allocate_fast_host_buffer", "ragged_ops.allocate_view_on", "cpu_adam.zenflow_adam_create"}
"""Functions whose result is uninitialised, has its argument's strides, or is a number that no other call has."""


def judge(target: Target, drawing: Drawing, *, with_gradients: bool, with_reference: bool) -> Outcome:
    """Make a call twice, with the drawn arguments and with copies, and compare.

    Raises:
        Finding: with the difference.
    """
    arenas = drawing.arenas()
    if with_gradients:
        _require_gradients(drawing)
    copies = _copies(drawing) if drawing.is_ordinary else None
    for arena in arenas:
        arena.guard()
    error: Exception | None = None
    result: Any = None
    try:
        result = target.call(drawing.arguments)
    except Exception as refused:
        error = refused
    finally:
        for arena in arenas:
            arena.release()
    _check_memory(drawing, has_failed=error is not None)
    if isinstance(error, (MemoryError, SystemError, AssertionError)):
        raise Finding(f"an error of the wrong kind: {type(error).__name__}: {error}") from error
    outcome = Outcome(target, error)
    if error is None and copies is not None:
        exact = _float64(copies) if with_reference and drawing.is_tame and _are_moderate(copies) else None
        _compare_with_copies(target, drawing, result, copies, with_gradients=with_gradients)
        if exact is not None:
            _compare_with_reference(target, drawing, result, exact, with_gradients=with_gradients)
        if target.is_raw:
            _compare_with_fake(target, drawing, result)
    return outcome


def _check_memory(drawing: Drawing, *, has_failed: bool) -> None:
    for arena in drawing.arenas():
        changed = [
            laid.place
            for laid in drawing.laid
            if laid.arena is arena and laid.place is not None and laid.argument.is_written is not False
        ]
        if arena.is_unchanged([] if has_failed else changed):
            continue
        names = [laid.argument.name for laid in drawing.laid if laid.arena is arena]
        if has_failed:
            raise Finding(f"a call that was refused wrote to the memory of {names}")
        raise Finding(f"memory beside the elements of what is written was changed, at {names}")


def _resolved(tensor: torch.Tensor) -> torch.Tensor:
    detached = tensor.detach()
    detached = detached.resolve_neg() if detached.is_neg() else detached
    return detached.resolve_conj()


def _plain(value: Any, memo: dict[Any, torch.Tensor]) -> Any:
    if isinstance(value, list):
        return [_plain(item, memo) for item in value]
    if not isinstance(value, torch.Tensor):
        return value
    place = (value.data_ptr(), value.shape, value.stride(), value.dtype, value.is_neg())
    is_shared = value.layout == torch.strided and value.numel() > 0 and not value.requires_grad
    key = place if is_shared else id(value)  # the same tensor twice stays the same, except for autograd
    if key not in memo:
        memo[key] = _resolved(value).clone(memory_format=torch.contiguous_format)
    return memo[key]


def _copies(drawing: Drawing) -> dict[str, Any]:
    memo: dict[Any, torch.Tensor] = {}
    return {name: _plain(value, memo) for name, value in drawing.arguments.items()}


def _tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in _tensors(item)]
    if hasattr(value, "__dataclass_fields__"):
        return [tensor for name in value.__dataclass_fields__ for tensor in _tensors(getattr(value, name))]
    return []


def _differentiable(arguments: dict[str, Any]) -> list[torch.Tensor]:
    return [tensor for value in arguments.values() for tensor in _tensors(value) if tensor.is_floating_point()]


def _require_gradients(drawing: Drawing) -> None:
    for tensor in _differentiable(drawing.arguments):
        if tensor.layout == torch.strided and tensor.is_leaf and tensor.device.type == "cpu":
            tensor.requires_grad_()


def _gradients(result: Any, arguments: dict[str, Any]) -> list[torch.Tensor | None]:
    of = [tensor for tensor in _differentiable(arguments) if tensor.requires_grad]
    results = [tensor for tensor in _tensors(result) if tensor.requires_grad and tensor.is_floating_point()]
    if not results or not of:
        return []
    generator = torch.Generator().manual_seed(0)
    seeds = [torch.randn(tensor.shape, generator=generator).bfloat16().to(tensor.dtype) for tensor in results]
    return list(torch.autograd.grad(results, of, seeds, allow_unused=True, retain_graph=True))


def _compare_with_copies(
    target: Target, drawing: Drawing, result: Any, copies: dict[str, Any], *, with_gradients: bool
) -> None:
    if target.name in _NEVER_EQUAL:
        return
    if with_gradients:
        for tensor, original in zip(_all(copies), _all(drawing.arguments), strict=True):
            tensor.requires_grad_(original.requires_grad)
    try:
        with _other_defaults():
            expected = target.call(copies)
    except Exception as error:
        raise Finding(
            f"accepted, but not on plain copies of its arguments and under another default device: {error}"
        ) from error
    what = target.name
    _compare(result, expected, f"the result of {what} differs from that on plain copies", drawing)
    written = {laid.argument.name for laid in drawing.laid if laid.argument.is_written is not False}
    for name, value in drawing.arguments.items():
        if drawing.shares_memory and name not in written:
            continue  # it may be written
        _compare(value, copies[name], f"what {what} leaves in {name} differs from that on plain copies", drawing)
    if with_gradients:
        _compare_gradients(target, drawing, result, expected, copies)


@contextlib.contextmanager
def _other_defaults() -> Iterator[None]:
    """A program may set torch's default device and dtype, as ``torch.device("meta")`` around the making of a model does."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"):
            yield
    finally:
        torch.set_default_dtype(before)


def _compare_with_reference(
    target: Target, drawing: Drawing, result: Any, before: dict[str, Any], *, with_gradients: bool
) -> None:
    reference = reference_of(target.name)
    if reference is None or min([9, *(one.numel() for one in _all(before))]) == 0:
        return
    what = target.name
    if with_gradients:
        for one, original in zip(_all(before), _all(drawing.arguments), strict=True):
            one.requires_grad_(original.requires_grad)
    exact = reference(before)
    if exact is None:
        return
    _compare(_first(result), exact, f"the result of {what} differs from its float64 reference", drawing)
    if with_gradients:
        actual, wanted = _gradients(_first(result), drawing.arguments), _gradients(exact, before)
        _compare(actual, wanted, f"the gradients of {what} differ from those of its float64 reference", drawing, 10)


def _first(result: Any) -> Any:
    """Return the reference's value for an op's first result."""
    return result[0] if isinstance(result, tuple) else result


def _compare_gradients(target: Target, drawing: Drawing, result: Any, expected: Any, copies: dict[str, Any]) -> None:
    try:
        wanted = _gradients(expected, copies)
    except RuntimeError as error:
        wanted = [torch.empty(0)]
        refused = str(error)
    else:
        refused = ""
    try:
        gradients = _gradients(result, drawing.arguments)
    except RuntimeError as error:
        if not refused:
            raise Finding(f"backward refuses what it takes as a plain copy: {error}") from error
        return
    if refused:
        raise Finding(f"backward takes what it refuses as a plain copy: {refused}")
    _compare(gradients, wanted, f"the gradients of {target.name} differ from those of plain copies", drawing, 10)
    for arena in drawing.arenas():
        if not arena.is_unchanged(list(arena.places)):
            raise Finding("backward wrote to memory beside its arguments")


def _all(arguments: dict[str, Any]) -> list[torch.Tensor]:
    return [tensor for value in arguments.values() for tensor in _tensors(value)]


def _are_moderate(arguments: dict[str, Any]) -> bool:
    """Return whether float32 can hold the values: with shared memory, the bits of one argument are any number in another."""
    floats = [tensor.detach() for tensor in _all(arguments) if tensor.is_floating_point()]
    return all(bool((tensor.float().abs() <= _LARGEST).all()) for tensor in floats)


def _float64(arguments: dict[str, Any]) -> dict[str, Any]:
    def exact(value: Any) -> Any:
        if isinstance(value, list):
            return [exact(item) for item in value]
        if isinstance(value, torch.Tensor):
            return value.detach().double() if value.is_floating_point() else value.detach().clone()
        return value

    return {name: exact(value) for name, value in arguments.items()}


def _compare(actual: Any, expected: Any, what: str, drawing: Drawing, factor: float = 1.0) -> None:
    if isinstance(expected, (list, tuple)):
        for one, other in zip(actual, expected, strict=True):
            _compare(one, other, what, drawing, factor)
        return
    if hasattr(expected, "__dataclass_fields__"):
        _compare(_tensors(actual), _tensors(expected), what, drawing, factor)
        return
    if not isinstance(expected, torch.Tensor):
        if actual != expected and not (isinstance(expected, float) and math.isnan(expected)):
            raise Finding(f"{what}: {actual} against {expected}")
        return
    if not isinstance(actual, torch.Tensor) or actual.shape != expected.shape:
        raise Finding(f"{what}: {getattr(actual, 'shape', actual)} against {expected.shape}")
    if not drawing.is_exact or expected.numel() == 0:
        return
    left, right = _resolved(actual), expected.detach()
    if left.dtype == right.dtype and left.dtype != torch.complex32 and torch.equal(left, right):
        return
    if (
        left.dtype.itemsize == 1
        and left.dtype == right.dtype
        and torch.equal(left.view(torch.uint8), right.view(torch.uint8))
    ):
        return  # the same NaN in 8 bits
    if torch.complex32 == left.dtype == right.dtype:  # torch compares none
        left, right = (torch.view_as_real(one) for one in (left, right))
    if not left.is_floating_point() or left.dtype.itemsize == 1:
        raise Finding(f"{what}: {left.flatten()[:8]} against {right.flatten()[:8]}")
    left, right = left.double(), right.double()
    finite = right[right.isfinite()]
    largest = max(1.0, finite.abs().max().item() if finite.numel() else 1.0)
    bound = _TOLERANCE.get(actual.dtype, _TOLERANCE[torch.float16]) * largest * factor
    if not torch.allclose(left, right, rtol=0, atol=bound, equal_nan=True):
        raise Finding(f"{what}: {left.flatten()[:8].tolist()} against {right.flatten()[:8].tolist()}")


def _compare_with_fake(target: Target, drawing: Drawing, result: Any) -> None:
    def on_meta(value: Any) -> Any:
        if isinstance(value, list):
            return [on_meta(item) for item in value]
        if not isinstance(value, torch.Tensor):
            return value
        return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            fake = target.call({name: on_meta(value) for name, value in drawing.arguments.items()})
        except NotImplementedError:
            return  # it has none
        except Exception as error:
            raise Finding(f"the fake of {target.name} fails: {type(error).__name__}: {error}") from error
    for one, other in zip(_tensors(result), _tensors(fake), strict=True):
        told, is_so = _layout(other), _layout(one)
        if told != is_so:
            raise Finding(f"the fake of {target.name} says {told}, and the op {is_so}: shape, dtype and strides")


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return what torch.compile takes from a fake; the stride of a dimension of one element has no meaning."""
    strides = (
        () if tensor.numel() == 0 else tuple(s for n, s in zip(tensor.shape, tensor.stride(), strict=True) if n > 1)
    )
    return tuple(tensor.shape), tensor.dtype, strides
