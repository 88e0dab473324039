"""What the tests of the kernels share: each runs on every implementation that this machine has, on poisoned memory."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import torch

from anyaccel.op_builder.all_ops import builder_class
from anyaccel.op_builder.engine.toolchains.sycl import probe_dpcpp
from anyaccel.op_builder.kernel_extensions import has_device
from anyaccel.op_builder.op import KERNEL_DEVICES

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True)
class Implementation:
    """An op's functions, and the device whose tensors they take here."""

    name: str
    functions: Any
    device: str


def load(kind: str, builder: str) -> Implementation:
    """Return an op as the CPU, SYCL on the CPU, or a device runs it."""
    if kind == "sycl" and probe_dpcpp().tool is None:
        pytest.skip(f"no DPC++: {probe_dpcpp().detail}")
    found = builder_class(builder, kind)
    assert found is not None, f"the table has no {builder} for {kind}"
    return Implementation(kind, found().load(), "cpu" if kind == "sycl" else kind)


PRESENT = [kind for kind in KERNEL_DEVICES if has_device(kind)]
"""Devices besides the CPU; ``test_devices.py`` skips with the reason where there is none."""


@pytest.fixture(params=["cpu", "sycl", *PRESENT])
def op(request: pytest.FixtureRequest) -> Implementation:
    """The op whose builder the test file names as ``BUILDER``."""
    return load(request.param, request.module.BUILDER)


@pytest.hookimpl(tryfirst=True)  # before the option -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Two of three shapes are slow cases for 16-bit numbers by SYCL: the CPU and CUDA's compiler meet the same structs."""
    for item in items:
        called = getattr(item, "callspec", None)
        if called is None or called.params.get("op") != "sycl" or "shape" not in called.indices:
            continue
        if called.params.get("dtype", torch.float32) != torch.float32 and called.indices["shape"] % 3:
            item.add_marker(pytest.mark.slow)


_M_PERTURB = -6
_FREED = 0x80
"""The byte that glibc writes to freed memory. New memory gets the complement: 3.4e38 as float32 and bfloat16, NaN as float16."""


@pytest.fixture
def poisoned() -> Iterator[None]:
    """Every tensor that is not initialised holds NaN or a huge number, whether torch makes it or an op does."""
    libc = ctypes.CDLL(None)
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    assert libc.mallopt(_M_PERTURB, _FREED) == 1
    for kind in PRESENT:  # what its allocator hands out next
        torch.full((1 << 22,), float("nan"), device=kind)
    yield
    libc.mallopt(_M_PERTURB, 0)
    torch.use_deterministic_algorithms(False)
