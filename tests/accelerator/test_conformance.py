"""Our accelerators fulfil the contract, and the checks find an accelerator that does not."""

from __future__ import annotations

import contextlib
import itertools
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import torch

import anyaccel
from anyaccel.accelerator.errors import UnsupportedError
from anyaccel.testing import AcceleratorContract, Outcome, run_checks
from anyaccel.testing.checks import CHECKS
from anyaccel.testing.outcome import run_check

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable


class TestCPU(AcceleratorContract):
    @pytest.fixture
    def accelerator(self) -> anyaccel.DeepSpeedAccelerator:
        return anyaccel.CPU_Accelerator()


class TestCPUAsOneOfFour(AcceleratorContract):
    """The second of four ranks that a launcher started."""

    @pytest.fixture
    def accelerator(self, monkeypatch: pytest.MonkeyPatch) -> anyaccel.DeepSpeedAccelerator:
        monkeypatch.setenv("LOCAL_RANK", "1")
        monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
        return anyaccel.CPU_Accelerator()


@pytest.mark.parametrize("mode", ["default device", "default dtype"])
def test_a_default_of_torch_changes_no_check(mode: str) -> None:
    before = torch.get_default_dtype()
    try:
        if mode == "default dtype":
            torch.set_default_dtype(torch.bfloat16)
        with torch.device("meta") if mode == "default device" else contextlib.nullcontext():
            results = run_checks(anyaccel.CPU_Accelerator())
    finally:
        torch.set_default_dtype(before)
    assert not [result for result in results if result.outcome is Outcome.WRONG]


@pytest.mark.parametrize("accelerator_class", [anyaccel.CUDA_Accelerator, anyaccel.XPU_Accelerator])
def test_gpus_keep_the_contract(accelerator_class: type[anyaccel.CUDA_Accelerator | anyaccel.XPU_Accelerator]) -> None:
    accelerator = accelerator_class()
    if not accelerator.is_available():
        pytest.skip(f"this machine has no {accelerator.device_name()} device")
    assert not [result for result in run_checks(accelerator) if result.outcome is Outcome.WRONG]


def test_a_typed_tensor_is_checked_without_printing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        torch.Tensor, "__format__", lambda self, _: pytest.fail("which takes more of the device's kernels")
    )
    assert run_check(anyaccel.CPU_Accelerator(), "HalfTensor").outcome is Outcome.OK


def test_there_is_a_check_for_every_member() -> None:
    public = {name for name in vars(anyaccel.DeepSpeedAccelerator) if not name.startswith("_")}
    assert public | {"_name"} == set(CHECKS)


def test_only_what_a_cpu_cannot_do_is_unsupported() -> None:
    outcomes = {result.member: result.outcome for result in run_checks(anyaccel.CPU_Accelerator())}
    assert {member for member, outcome in outcomes.items() if outcome is Outcome.UNSUPPORTED} == {
        "communication_backend_version",
        "get_device_capability",
        "create_graph",
        "capture_to_graph",
        "replay_graph",
        "graph_pool_handle",
        "make_graphed_callables",
        "MemPool",
        "use_mem_pool",
        "memory_snapshot",
        "get_per_process_memory_fraction",
        "set_per_process_memory_fraction",
    }


class WithoutKernels(anyaccel.CPU_Accelerator):
    """Says that memory figures work, and raises what torch raises where a device has no kernel."""

    def memory_allocated(self, device_index: int | None = None) -> int:
        msg = "Could not run 'aten::empty.memory_format' with arguments from the 'cpu' backend. " + "A backend. " * 200
        raise NotImplementedError(msg)


class WithoutStreamClass(anyaccel.CPU_Accelerator):
    def supports(self, member: str) -> bool:
        return member != "Stream" and super().supports(member)

    @property
    def Stream(self) -> type[torch.Stream]:
        raise UnsupportedError("Stream", "cpu", "streams")


def test_a_member_whose_check_needs_another_one_is_not_wrong() -> None:
    result = run_check(WithoutStreamClass(), "set_stream")
    assert result.outcome is Outcome.UNSUPPORTED
    assert result.why.startswith("not checked, as the check needs Stream: Stream failed")


def test_a_property_may_be_unsupported() -> None:
    assert run_check(WithoutStreamClass(), "Stream").outcome is Outcome.UNSUPPORTED


def test_a_member_that_is_said_to_work_and_raises_is_wrong() -> None:
    result = run_check(WithoutKernels(), "memory_allocated")
    assert result.outcome is Outcome.WRONG
    assert result.why.startswith("supports('memory_allocated') is True, but it raises: Could not run 'aten::empty")


FALLING = itertools.count(1 << 40, -(64 << 20))
GROWING = itertools.count(0, 256 << 20)


def _in_microseconds(accelerator: anyaccel.DeepSpeedAccelerator, **options: Any) -> Any:
    class Event(anyaccel.CPU_Accelerator().Event):  # type: ignore[misc]
        def elapsed_time(self, end: Any) -> float:
            return float(super().elapsed_time(end) * 1000)

    return Event(**options)


LIES = {
    "memory_stats": lambda *_: {"allocated_bytes.all.current": 0, "allocated_bytes.all.peak": 0},
    "device": lambda _, index=None: torch.device("cpu", 5 if index is None else index + 7),
    "total_memory": lambda *_: 12,
    "max_memory_allocated": lambda *_: next(FALLING),
    "is_fp64_supported": lambda *_: "yes",
    "current_stream": lambda *_: 0,
    "get_device_capability": lambda *_: True,
    "can_device_access_peer": lambda *_: 0,
    "communication_backend_version": lambda *_: "zz",
    "max_memory_cached": lambda *_: 1 << 50,
    "get_rng_state_all": lambda self: [self.get_rng_state()] * 7,
    "op_builder_dir": lambda *_: "no_such_package.of_builders",
    "pin_empty_like": lambda self, tensor, dtype=torch.int8, **_: self.pin_empty(tensor.shape, dtype=dtype),
    "pin_memory": lambda self, tensor, *_, **__: tensor.double(),
    "is_pinned": lambda *_: True,
    "default_stream": lambda self, *_: self.Stream(),
    "get_device_properties": lambda *_: SimpleNamespace(name="", total_memory=-1),
    "device_guard": lambda self, index: contextlib.nullcontext(self.set_device(index)),
    "memory_allocated": lambda *_: next(GROWING),
    "available_memory": lambda self, *_: self.total_memory(),
    "Event": _in_microseconds,
}


@pytest.mark.parametrize("member", LIES)
def test_a_member_with_a_wrong_answer_is_found(member: str) -> None:
    lying = type("Lying", (anyaccel.CPU_Accelerator,), {member: LIES[member]})
    assert run_check(lying(), member).outcome is Outcome.WRONG


class TooModest(anyaccel.CPU_Accelerator):
    def supports(self, member: str) -> bool:
        return member != "utilization" and super().supports(member)


def test_a_member_that_is_said_not_to_work_and_works_is_wrong() -> None:
    result = run_check(TooModest(), "utilization")
    assert result.outcome is Outcome.WRONG
    assert result.why == "supports('utilization') is False, but it works"


def test_checks_find_what_is_wrong_in_deepspeeds_cpu_accelerator(
    run_python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    code = """
import json, os, warnings
warnings.simplefilter("ignore")
os.environ["LOCAL_RANK"] = "1"
from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator
from anyaccel.testing import run_checks
print("wrong:" + json.dumps([r.member for r in run_checks(CPU_Accelerator()) if r.outcome.value == "wrong"]))
"""
    finished = run_python(code)
    wrong = set(json.loads(finished.stdout.split("wrong:")[1]))
    assert {
        "current_device",  # the string '1'
        "set_rng_state",  # passes an index to a function that takes none
        "Stream",
        "Event",
        "current_stream",
        "stream",  # None, or a context of None
        "create_graph",  # None, and replaying it does nothing
        "device",  # None
        "reset_max_memory_allocated",
        "create_op_builder",  # a builder for a name that does not exist
    } <= wrong
    has_fp16 = torch.ops.mkldnn._is_mkldnn_fp16_supported()  # with AVX512-FP16, for example
    assert ("is_fp16_supported" in wrong) == (not has_fp16)  # None in place of False
