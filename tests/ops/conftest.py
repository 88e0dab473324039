"""Common code of the kernel tests: each runs on every implementation available here, on poisoned memory."""

from __future__ import annotations

import ctypes
import importlib
import json
import math
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from anyaccel.op_builder.all_ops import builder_class
from anyaccel.op_builder.cpu.autograd import AutogradBuilder
from anyaccel.op_builder.engine.toolchains.sycl import probe_dpcpp
from anyaccel.op_builder.kernel_extensions import has_device
from anyaccel.op_builder.op import KERNEL_DEVICES
from anyaccel.op_builder.table import OPS

if TYPE_CHECKING:
    from collections.abc import Iterator


AutogradBuilder().build()  # before any op is loaded: ops use it only if it has been built

PRESENT = [kind for kind in KERNEL_DEVICES if has_device(kind)]
"""Devices other than the CPU; if there are none, ``test_devices.py`` skips with the reason."""
IS_EMULATED = "ANYACCEL_TEST_EMULATED" in os.environ
IS_SPIRV = "ANYACCEL_TEST_SPIRV" in os.environ
KINDS = ["emulated"] if IS_EMULATED else ["spirv"] if IS_SPIRV else ["cpu", "sycl", *PRESENT]
"""The implementations to run: in a process of tests/emulator, CUDA's kernels on an emulated device; with ``spirv``, an XPU's
kernels, started by its runtime on Intel's OpenCL CPU device."""


TORCHS = {"sycl": "cpu", "hip": "cuda"}
"""What torch calls a kind of device, where that is something else."""


@dataclass(frozen=True)
class Implementation:
    """An op's functions, and the device of their tensors."""

    name: str
    functions: Any
    device: str

    @property
    def space(self) -> Any:
        """The torch ops that it calls."""
        return torch.ops.anyaccel_sycl if self.name in ("sycl", *_INSTEAD) else torch.ops.anyaccel


_INSTEAD = {"emulated": "..emulator.library", "spirv": ".spirv_on_host"}
"""Implementations for CPU tensors, by their modules, which put them in the place of SYCL's."""


@cache
def _in_place_of_sycl(kind: str, builder: str) -> Implementation:
    builder_class(builder, "cpu")().load()
    op = next(op for op in OPS if op.builder == builder)
    importlib.import_module(_INSTEAD[kind], __package__).register(op)
    return Implementation(kind, op.functions_class()("anyaccel_sycl"), "cpu")


def load(kind: str, builder: str) -> Implementation:
    """Return an op as run by the CPU, by SYCL on the CPU, by a device or by an emulated one."""
    if kind in _INSTEAD:
        return _in_place_of_sycl(kind, builder)
    if kind == "sycl" and probe_dpcpp().tool is None:
        pytest.skip(f"no DPC++: {probe_dpcpp().detail}")
    found = builder_class(builder, kind)
    assert found is not None, f"the table has no {builder} for {kind}"
    return Implementation(kind, found().load(), TORCHS.get(kind, kind))


@pytest.fixture(params=KINDS)
def op(request: pytest.FixtureRequest) -> Implementation:
    """The op of the builder that the test file names as ``BUILDER``."""
    return load(request.param, request.module.BUILDER)


def _is_slow_by_sycl(called: Any) -> bool:
    """Two of three shapes with 16-bit numbers: the CPU and CUDA's compiler use the same structs."""
    has_both = "shape" in called.indices and called.params.get("dtype", torch.float32) != torch.float32
    return has_both and called.indices["shape"] % 3 != 0


_FOR_BLOCKS = ("agree", "extremes", "every_pair", "few_tensors", "at_once", "nan_", "misaligned_memory")
_OF_MANY_TENSORS = ("test_a_step_agrees", "test_norms_agree", "test_scaling_agrees", "test_sums_agree")


def _is_slow_emulated(test: str, called: Any) -> bool:
    """All but small cases of kernels for blocks; the small ones are enough to start every kernel three times."""
    sizes = [called.params[name] for name in ("tokens", "experts") if name in called.params]
    small = math.prod(called.params.get("shape", sizes)) <= 1500
    return not (small and any(part in test for part in _FOR_BLOCKS)) or test.startswith(_OF_MANY_TENSORS)


@pytest.hookimpl(tryfirst=True)  # before the option -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark slow cases of implementations that do not need every case."""
    for item in items:
        called = getattr(item, "callspec", None)
        if called is None:
            continue
        is_slow_by_sycl = called.params.get("op") in ("sycl", "spirv") and _is_slow_by_sycl(called)
        if is_slow_by_sycl or (IS_EMULATED and _is_slow_emulated(item.name, called)):
            item.add_marker(pytest.mark.slow)


_M_PERTURB = -6
_FREED = 0x80
"""The byte that glibc writes to freed memory. New memory gets the complement: 3.4e38 as float32 and bfloat16, NaN as float16."""


@pytest.fixture
def poisoned() -> Iterator[None]:
    """Every uninitialised tensor holds NaN or a huge number, whether torch or an op creates it."""
    libc = ctypes.CDLL(None)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    assert libc.mallopt(_M_PERTURB, _FREED) == 1
    for kind in PRESENT:  # what its allocator hands out next
        torch.full((1 << 22,), float("nan"), device=TORCHS.get(kind, kind))
    yield
    libc.mallopt(_M_PERTURB, 0)
    torch.use_deterministic_algorithms(False)


def pytest_sessionfinish() -> None:
    """Report to tests/emulator which kernels ran, and with which block sizes."""
    if IS_EMULATED:
        from ..emulator.library import emulator

        sizes = {name: sorted(found) for name, found in emulator().started().items()}
        Path(os.environ["ANYACCEL_TEST_EMULATED"]).write_text(json.dumps(sizes))
