# ruff: noqa: PT009  # assertEqual of torch's TestCase knows the tolerances of each op and dtype
"""Tests of one device, made by torch's own framework from torch's own cases.

torch's wheel has its cases (``OpInfo`` and ``ModuleInfo``: inputs, dtypes, tolerances, known exceptions) and the framework that
makes a test of each case for a device, but not the test files of its repository. The tests here have the names of those, so that
torch's known exceptions apply: what it skips for every device is skipped here.
"""

from __future__ import annotations

import copy
import functools
import itertools
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.modules.lazy import LazyModuleMixin
from torch.testing._internal.common_device_type import OpDTypes, instantiate_device_type_tests, ops
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_modules import module_db, modules
from torch.testing._internal.common_utils import TestCase
from torch.utils._pytree import tree_leaves, tree_map

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["make_tests"]

_TOLERANCES = {"atol": 1e-3, "rtol": 1e-3}  # as torch's test_compare_cpu
_MOST_SAMPLES = 20  # of one op; a few have hundreds
_WITH_INDICES_OF_THE_CPU = ("tensor_split",)  # torch refuses a device's


def _compares(test: Callable[..., None]) -> Callable[..., None]:
    """Skip a test whose samples all turned out to be none that it can compare: it has shown nothing."""

    @functools.wraps(test)
    def run(case: Any, **parameters: Any) -> None:
        case.has_compared = False
        test(case, **parameters)
        if not case.has_compared:
            case.skipTest("none of the samples can be compared in this way")

    return run


@_compares
def test_compare_cpu(case: Any, device: str, dtype: torch.dtype, op: Any) -> None:
    """The results on the device are the CPU's, and are on the device."""
    for sample, moved in _samples(op, device, dtype):
        expected, found = _call(op, sample), _call(op, moved)
        _assert_equal(case, found, expected)
        if op.name != "to" and "device" not in moved.kwargs:
            places = {leaf.device.type for leaf in _tensors(found)}
            case.assertEqual(places - {torch.device(device).type}, set(), "the op's results are on another device")


@_compares
def test_noncontiguous_samples(case: Any, device: str, dtype: torch.dtype, op: Any) -> None:
    """The results for tensors with gaps are those for contiguous ones."""
    for _, moved in _samples(op, device, dtype):
        if any(tensor.layout != torch.strided for tensor in _tensors((moved.input, moved.args))):
            continue
        found, expected = _call(op, moved.noncontiguous()), _call(op, moved)
        _assert_equal(case, found, expected)


@_compares
def test_variant_consistency_eager(case: Any, device: str, dtype: torch.dtype, op: Any) -> None:
    """The op that writes its result into its input leaves the result there."""
    for _, moved in _samples(op, device, dtype):
        if moved.broadcasts_input or not isinstance(moved.input, torch.Tensor):
            continue
        expected, target = _call(op, moved), moved.input.clone()
        if expected.dtype != target.dtype:
            continue
        returned = op.inplace_variant(target, *moved.args, **moved.kwargs)
        _assert_equal(case, target, expected)
        case.assertTrue(returned is target, "the op in place returns its input")


@_compares
def test_fn_grad(case: Any, device: str, dtype: torch.dtype, op: Any) -> None:
    """The gradients on the device are the CPU's."""
    if not (dtype.is_floating_point or dtype.is_complex):
        case.skipTest("the dtype has no gradients")
    for sample, moved in _samples(op, device, dtype, requires_grad=True):
        leaves, moved_leaves = [_differentiable((one.input, one.args, one.kwargs)) for one in (sample, moved)]
        expected = _derive(partial(_call, op, sample), leaves)
        found = _derive(partial(_call, op, moved), moved_leaves)
        _assert_equal(case, found, expected)


@_compares
def test_cpu_gpu_parity(case: Any, device: str, dtype: torch.dtype, module_info: Any, training: bool) -> None:
    """A module's results and gradients on the device are the CPU's."""
    options = {"device": "cpu", "dtype": dtype, "requires_grad": True, "training": training}
    for inputs in module_info.module_inputs_func(module_info, **options):
        if inputs.forward_input is None:
            continue
        made, given = inputs.constructor_input, inputs.forward_input
        of_cpu: Any = module_info.module_cls(*made.args, **made.kwargs).to(dtype).train(training)
        is_lazy = isinstance(of_cpu, LazyModuleMixin)
        if is_lazy:
            of_cpu(*given.args, **given.kwargs)  # which makes its parameters
        of_device = copy.deepcopy(of_cpu).to(device)
        args, kwargs = tree_map(_mover(device), (given.args, given.kwargs))
        leaves, moved_leaves = [*of_cpu.parameters(), *_differentiable(given.args)], _differentiable(args)
        expected = _derive(partial(of_cpu, *given.args, **given.kwargs), leaves)
        found = _derive(partial(of_device, *args, **kwargs), [*of_device.parameters(), *moved_leaves])
        _assert_equal(case, found, expected)


def make_tests(device_type: str, dtypes: tuple[torch.dtype, ...] = ()) -> dict[str, Any]:
    """Make the tests of a device.

    Args:
        device_type: the device's name, as ``torch.device(...).type``.
        dtypes: the dtypes to test ops with; empty: one of each op's, float32 where the op takes it.

    Returns:
        The test cases by name, such as ``test_compare_cpu_add_simdev_float32``; none for a device that torch's framework lacks.
    """
    of_ops = {"allowed_dtypes": dtypes} if dtypes else {"dtypes": OpDTypes.any_one}
    tested = [
        op for op in op_db if op.variant_test_name != "partial_views"
    ]  # those of storage that a copy does not have
    in_place, with_gradient = (
        [op for op in tested if op.inplace_variant is not None],
        [op for op in tested if op.supports_autograd],
    )

    class TestCommon(TestCase):
        test_compare_cpu = ops(tested, **of_ops)(test_compare_cpu)
        test_noncontiguous_samples = ops(tested, **of_ops)(test_noncontiguous_samples)
        test_variant_consistency_eager = ops(in_place, **of_ops)(test_variant_consistency_eager)

    class TestBwdGradients(TestCase):
        test_fn_grad = ops(with_gradient, **of_ops)(test_fn_grad)

    class TestModule(TestCase):
        test_cpu_gpu_parity = modules(module_db, allowed_dtypes=(torch.float32,))(test_cpu_gpu_parity)

    generics = (TestCommon, TestBwdGradients, TestModule)
    made: dict[str, Any] = {
        generic.__name__: generic for generic in generics
    }  # each is replaced by those of its devices
    for generic in generics:
        instantiate_device_type_tests(generic, made, only_for=device_type, allow_xpu=True, allow_mps=True)
    return {
        name: test_class(name)
        for test_class in made.values()
        for name in sorted(vars(test_class))
        if name.startswith("test_") and callable(vars(test_class)[name])
    }


def _samples(op: Any, device: str, dtype: torch.dtype, **options: Any) -> Iterator[tuple[Any, Any]]:
    """Yield an op's samples, on the CPU and on the device.

    They are made on the CPU: a device whose random numbers are all equal would agree about much that it computes wrong.
    """
    samples: Iterable[Any] = op.sample_inputs("cpu", dtype, **options)
    for sample in itertools.islice(samples, _MOST_SAMPLES):
        moved = sample.transform(_mover(device))
        if op.name in _WITH_INDICES_OF_THE_CPU:
            moved.args, moved.kwargs = sample.args, sample.kwargs
        if "device" in moved.kwargs:
            moved.kwargs["device"] = device
        yield sample, moved


def _mover(device: str) -> Callable[[Any], Any]:
    def move(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        return value.detach().to(device).requires_grad_(value.requires_grad)

    return move


def _call(op: Any, sample: Any) -> Any:
    result = op(sample.input, *sample.args, **sample.kwargs)
    return sample.output_process_fn_grad(result)  # of results that are not unique, such as eigenvectors


def _tensors(values: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor)]


def _assert_equal(case: Any, found: Any, expected: Any) -> None:
    """Compare on the CPU: the kernels of the device under test must not decide whether its results are right."""

    def comparable(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        is_low = value.dtype.is_floating_point and value.dtype.itemsize == 1  # torch compares those bit by bit only
        return value.cpu().float() if is_low else value.cpu()

    case.assertEqual(*tree_map(comparable, (found, expected)), **_TOLERANCES)
    case.has_compared = True


def _differentiable(values: Any) -> list[torch.Tensor]:
    return [tensor for tensor in _tensors(values) if tensor.requires_grad]


def _derive(function: Callable[[], Any], inputs: list[torch.Tensor]) -> tuple[Any, Any]:
    """Return a function's results, and its gradients for unequal gradients of the results."""
    results = function()
    outputs = _differentiable(results)
    if not outputs or not inputs:
        return results, None
    steps = [torch.linspace(0.5, 1.5, output.numel()).reshape(output.shape).to(output) for output in outputs]
    return results, torch.autograd.grad(outputs, inputs, steps, allow_unused=True)
