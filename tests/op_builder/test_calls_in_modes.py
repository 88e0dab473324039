"""Functions compute the same under torch's modes, such as autocast or another default device, and in threads."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from .calls import CALLS
from .calls.call import ShapedCall, arguments_of, function_of, tensors_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager


class _Functions(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class _Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def _default_dtype() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def _deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


MODES: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "default device": lambda: torch.device("meta"),
    "default dtype": _default_dtype,
    "deterministic algorithms": _deterministic,
    "dispatch mode": _Dispatch,
    "function mode": _Functions,
    "inference mode": torch.inference_mode,
    "no_grad": torch.no_grad,
}


def _after(call: ShapedCall, mode: Callable[[], AbstractContextManager[Any]] = contextlib.nullcontext) -> list[Any]:
    """Return what a call returns, and its arguments afterwards."""
    arguments = arguments_of(call)
    with mode():
        result = function_of(call)(**arguments)
    return [*tensors_of(result), *tensors_of(arguments)]


def _assert_equal(call: ShapedCall, found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, equal_nan=True, msg=lambda text: f"{call.function}: {text}")


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_changes_no_result(mode: str) -> None:
    for call in CALLS:
        _assert_equal(call, _after(call, MODES[mode]), _after(call))


def test_sixteen_threads_change_no_result() -> None:
    expected = [_after(call) for call in CALLS]
    with ThreadPoolExecutor(16) as pool:
        for _ in range(4):
            for call, found, one in zip(CALLS, pool.map(_after, CALLS), expected, strict=True):
                _assert_equal(call, found, one)
