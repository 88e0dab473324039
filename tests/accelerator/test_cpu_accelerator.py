"""Where deepspeed's CPU accelerator is wrong, ours is right."""

from __future__ import annotations

import copy
import pickle
import threading
import time
from typing import Any
from unittest import mock

import psutil
import pytest
import torch

import anyaccel


@pytest.fixture
def cpu() -> anyaccel.CPU_Accelerator:
    return anyaccel.CPU_Accelerator()


def test_a_context_of_no_stream_keeps_what_is_set_inside() -> None:
    accelerator = anyaccel.CPU_Accelerator()
    before, inner = accelerator.current_stream(), accelerator.Stream()
    with accelerator.stream(None):
        accelerator.set_stream(inner)
    assert accelerator.current_stream() is inner
    accelerator.set_stream(before)


def test_an_event_takes_the_options_of_other_devices_events() -> None:
    assert anyaccel.CPU_Accelerator().Event(enable_timing=True, external=True).query()


@pytest.mark.parametrize("wrong", [None, 1.5])
def test_what_is_no_device_cannot_be_current(wrong: Any) -> None:
    with pytest.raises(TypeError):
        anyaccel.CPU_Accelerator().set_device(wrong)


def test_current_device_is_the_local_rank_as_an_int(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "3")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    cpu = anyaccel.CPU_Accelerator()
    assert (cpu.current_device(), cpu.device_count()) == (3, 4)
    assert type(cpu.current_device()) is int


def test_device_count_without_a_launcher_is_that_of_numa_nodes(cpu: anyaccel.CPU_Accelerator) -> None:
    assert cpu.device_count() >= 1
    assert cpu.current_device() == 0


def test_a_local_rank_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCAL_RANK", "first")
    with pytest.raises(ValueError, match="LOCAL_RANK='first'") as raised:
        anyaccel.CPU_Accelerator()
    assert isinstance(raised.value, anyaccel.AnyaccelError)


@pytest.mark.parametrize(("given", "current"), [(2, 2), (-1, 1), ("cpu:0", 0), ("cpu", 1), (torch.device("cpu"), 1)])
def test_set_device_takes_a_device_too(cpu: anyaccel.CPU_Accelerator, given: object, current: int) -> None:
    cpu.set_device(1)
    cpu.set_device(given)  # type: ignore[arg-type]
    assert cpu.current_device() == current


@pytest.mark.parametrize("given", [None, 1, "1", "cuda:1", torch.device("cpu")])
def test_every_device_is_the_cpu(cpu: anyaccel.CPU_Accelerator, given: object) -> None:
    assert cpu.device_name(given) == "cpu"  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [None, -1, torch.device("cpu")])
def test_a_guard_for_where_a_tensor_of_the_host_is_changes_nothing(
    cpu: anyaccel.CPU_Accelerator, given: object
) -> None:
    cpu.set_device(1)
    with cpu.device_guard(given):  # type: ignore[arg-type]
        assert cpu.current_device() == 1
    assert cpu.current_device() == 1


def test_a_packed_sequence_is_where_its_data_is(cpu: anyaccel.CPU_Accelerator) -> None:
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
    assert cpu.on_accelerator(packed)  # type: ignore[arg-type]


def test_record_stream_of_a_tensor_on_the_host_does_nothing(cpu: anyaccel.CPU_Accelerator) -> None:
    tensor = torch.ones(2)
    cpu.record_stream(tensor, cpu.Stream())
    assert tensor.tolist() == [1.0, 1.0]


def test_record_stream_calls_that_of_another_class(cpu: anyaccel.CPU_Accelerator) -> None:
    batch = mock.Mock()
    cpu.record_stream(batch, "stream")
    batch.record_stream.assert_called_once_with("stream")


def test_rng_state_takes_an_index(cpu: anyaccel.CPU_Accelerator) -> None:
    state = cpu.get_rng_state(0)
    first = torch.rand(3)
    cpu.set_rng_state(state, 0)
    assert torch.equal(torch.rand(3), first)


def test_fp16_support_is_a_bool(cpu: anyaccel.CPU_Accelerator) -> None:
    assert type(cpu.is_fp16_supported()) is bool


def test_memory_allocated_is_this_process(cpu: anyaccel.CPU_Accelerator) -> None:
    assert cpu.memory_allocated() == pytest.approx(psutil.Process().memory_info().rss, rel=0.05)


def test_peak_counts_what_was_freed_between_two_calls(cpu: anyaccel.CPU_Accelerator) -> None:
    """Deepspeed samples: memory allocated and freed between two calls is never in its peak."""
    cpu.reset_peak_memory_stats()
    before = cpu.max_memory_allocated()
    held = torch.ones(64 << 20, dtype=torch.uint8)
    del held
    assert cpu.max_memory_allocated() >= before + (48 << 20)
    cpu.reset_peak_memory_stats()
    assert cpu.max_memory_allocated() < before + (48 << 20)


def test_event_measures_time_in_milliseconds(cpu: anyaccel.CPU_Accelerator) -> None:
    start, end = cpu.Event(enable_timing=True), cpu.Event(enable_timing=True)
    start.record()
    time.sleep(0.02)
    end.record()
    assert 15.0 < start.elapsed_time(end) < 5_000.0


def test_event_without_timing_refuses_as_cudas_does(cpu: anyaccel.CPU_Accelerator) -> None:
    with pytest.raises(RuntimeError, match="enable_timing=True"):
        cpu.Event().elapsed_time(cpu.Event())
    with pytest.raises(RuntimeError, match="call record"):
        cpu.Event(enable_timing=True).elapsed_time(cpu.Event(enable_timing=True))


def test_streams_are_usable_as_context_managers(cpu: anyaccel.CPU_Accelerator) -> None:
    stream = cpu.Stream()
    with stream:
        assert cpu.current_stream() is stream
        stream.wait_event(stream.record_event())
    assert cpu.current_stream() is cpu.default_stream()


def test_a_stream_may_be_entered_twice(cpu: anyaccel.CPU_Accelerator) -> None:
    stream = cpu.Stream()
    with stream, stream:
        pass
    assert cpu.current_stream() is cpu.default_stream()


def test_the_current_stream_is_the_threads_own(cpu: anyaccel.CPU_Accelerator) -> None:
    seen = []
    with cpu.stream(cpu.Stream()):
        thread = threading.Thread(target=lambda: seen.append(cpu.current_stream()))
        thread.start()
        thread.join()
    assert seen == [cpu.default_stream()]


def test_graphs_refuse_and_say_what_to_ask(cpu: anyaccel.CPU_Accelerator) -> None:
    assert not cpu.supports("create_graph")
    with pytest.raises(anyaccel.AnyaccelError, match=r"'cpu'.*supports\('create_graph'\)") as raised:
        cpu.create_graph()
    assert isinstance(raised.value, NotImplementedError)
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


def test_ranges_show_in_the_profiler(cpu: anyaccel.CPU_Accelerator) -> None:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as profile:
        cpu.range_push("outer range")
        cpu.range_push("inner range")
        torch.ones(4).sum()
        cpu.range_pop()
        cpu.range_pop()
    assert {"outer range", "inner range"} <= {event.key for event in profile.key_averages()}


def test_range_pop_without_push_does_nothing(cpu: anyaccel.CPU_Accelerator) -> None:
    """As with deepspeed's class, and with NVTX: what shows a program must not end it."""
    cpu.range_pop()

    class Opens(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            cpu.range_push("dropped where it is compiled")
            return x + 1

    torch.compile(Opens(), backend="eager")(torch.ones(1))
    cpu.range_pop()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as profile:
        cpu.range_push("the next range")
        cpu.range_pop()
    assert "the next range" in {event.key for event in profile.key_averages()}


def test_typed_tensors_are_torchs_own(cpu: anyaccel.CPU_Accelerator) -> None:
    assert cpu.FloatTensor is torch.FloatTensor
    assert torch.ones(2).type(cpu.HalfTensor).dtype is torch.float16


class WithArguments(anyaccel.CPU_Accelerator):
    def __init__(self, opt: int) -> None:
        super().__init__()
        self.opt = opt
        self.limits = {"watts": 300.0}


def test_accelerators_copy_and_pickle() -> None:
    cpu = WithArguments(5)
    cpu.set_device(3)
    cpu.set_compile_backend("eager")
    for copied in (copy.deepcopy(cpu), pickle.loads(pickle.dumps(cpu))):
        assert type(copied) is WithArguments
        assert (copied.opt, copied.current_device(), copied.get_compile_backend()) == (5, 3, "eager")
        assert copied.limits == {"watts": 300.0}
        assert copied.device_name() == "cpu"
        assert not copied.supports("create_graph")


def test_set_compile_backend_names_the_choices(cpu: anyaccel.CPU_Accelerator) -> None:
    with pytest.raises(ValueError, match=r"'nonsense'; expected one of .*inductor"):
        cpu.set_compile_backend("nonsense")


def test_the_last_members_of_the_contract_on_the_cpu() -> None:
    cpu = anyaccel.CPU_Accelerator()
    states = cpu.get_rng_state_all()
    assert len(states) == 1
    drawn = torch.rand(3)
    cpu.set_rng_state_all(states)
    assert torch.equal(torch.rand(3), drawn)
    assert cpu.seed() != cpu.seed_all() == torch.initial_seed()
    assert "allocated_bytes.all.peak" in cpu.memory_summary()
    assert cpu.memory_summary(abbreviated=True).startswith("cpu:")
    assert cpu.get_arch_list() == [torch.backends.cpu.get_cpu_capability()]
    assert cpu.can_device_access_peer(0, 1) is True
    assert cpu.is_initialized() is True
    assert 0 <= cpu.utilization() <= 100
    cpu.reset_accumulated_memory_stats()


def test_the_resident_set_by_deepspeeds_names() -> None:
    cpu = anyaccel.CPU_Accelerator()
    before = cpu.get_rss()
    held = torch.ones(16 << 20)
    assert cpu.get_rss() - before > held.nbytes // 2
    del held
    assert cpu.reset_rss() > 0
    assert cpu.max_memory_allocated() < before + (48 << 20)
