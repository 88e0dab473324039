"""CUDA and XPU without the hardware: the functions that each member calls exist in this torch and take those arguments.

``create_autospec`` wraps the real ``torch.cuda`` and ``torch.xpu``: a call with wrong arguments raises TypeError, and a name
that they do not have raises AttributeError.
"""

from __future__ import annotations

import copy
import functools
import inspect
import re
import sys
import types
from typing import Any
from unittest import mock

import pytest
import torch

import anyaccel

UUID = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "set_rng_state": (torch.zeros(1, dtype=torch.uint8), 1),
    "manual_seed": (1,),
    "manual_seed_all": (1,),
    "stream": (None,),
    "set_stream": (None,),
    "record_stream": (torch.ones(1), None),
    "range_push": ("message",),
    "lazy_call": (print,),
    "capture_to_graph": (mock.Mock(),),
    "replay_graph": (mock.Mock(),),
    "register_host_memory": (4096, 4096),
    "unregister_host_memory": (4096,),
    "on_accelerator": (torch.ones(1),),
    "supports": ("create_graph",),
    "create_op_builder": ("NoSuchBuilder",),
    "get_op_builder": ("NoSuchBuilder",),
    "set_visible_devices_envs": ({}, [UUID]),
    "set_compile_backend": ("inductor",),
    "tensor_type": (torch.int8,),
    "is_pinned": (torch.ones(1),),
    "unpin_memory": (torch.ones(1),),
    "set_rng_state_all": ([torch.zeros(1, dtype=torch.uint8)],),
    "set_per_process_memory_fraction": (0.5, 1),
    "use_mem_pool": (mock.Mock(), 1),
    "can_device_access_peer": (0, 1),
    "make_graphed_callables": (torch.nn.Linear(1, 1), (torch.ones(1),)),
}
NEEDS_THE_DEVICE = {"pin_memory", "pin_empty", "pin_empty_like", "is_pinned", "grad_scaler", "autocast"}
"""These use tensors and torch.amp, not the device's module; the conformance suite runs them."""

LATER_ON_XPU = {
    "MemPool", "capture_to_graph", "create_graph", "graph_pool_handle", "make_graphed_callables", "memory_snapshot",
    "replay_graph", "use_mem_pool", "utilization",
}  # fmt: skip
"""torch.xpu of torch 2.10 cannot serve these; that of 2.13 can."""

RESULTS = {
    "is_available": True,
    "device_count": 2,
    "current_device": 1,
    "mem_get_info": (1, 2),
    "memory_stats": {},
    "utilization": 3,
    "get_per_process_memory_fraction": 0.5,
    "get_arch_list": [],
    "get_device_capability": (9, 0),
    "get_device_properties": mock.Mock(total_memory=2),
}


def _is_before(minor: int) -> bool:
    return tuple(map(int, torch.__version__.split(".")[:2])) < (2, minor)


@functools.cache
def _specified(name: str) -> Any:
    return mock.create_autospec(getattr(torch, name))


def _accelerator(name: str) -> Any:
    module = _specified(name)
    module.reset_mock()
    for function, result in RESULTS.items():
        if hasattr(module, function):  # torch 2.10 has not all of them
            getattr(module, function).return_value = result
    module.default_generators = (torch.Generator(), torch.Generator())
    leaf: Any = {"cuda": anyaccel.CUDA_Accelerator, "xpu": anyaccel.XPU_Accelerator}[name]

    class Specified(leaf):  # type: ignore[misc]
        def _load_module(self, name: str) -> Any:
            return module

    return Specified()


def _members() -> list[str]:
    contract = vars(anyaccel.DeepSpeedAccelerator)
    return sorted(name for name, member in contract.items() if not name.startswith("_") and callable(member))


@pytest.mark.parametrize("member", sorted(set(_members()) - NEEDS_THE_DEVICE))
@pytest.mark.parametrize("name", ["cuda", "xpu"])
def test_what_a_member_calls_exists_and_takes_its_arguments(
    name: str, member: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("pynvml", "pyzes"):  # which utilization needs
        monkeypatch.setitem(sys.modules, package, mock.Mock())
    monkeypatch.setattr(torch._C, "_nccl_version", lambda: 0, raising=False)
    accelerator = _accelerator(name)
    if (name, member) == ("xpu", "communication_backend_version"):
        assert not accelerator.supports(member)  # torch has no such function for xccl
        return
    if name == "xpu" and member in LATER_ON_XPU and _is_before(13) and not accelerator.supports(member):
        with pytest.raises(NotImplementedError, match=r"torch\.xpu"):
            getattr(accelerator, member)()
        return
    assert accelerator.supports(member), f"torch.{name} of torch {torch.__version__} lacks what {member} calls"
    function = getattr(accelerator, member)
    arguments = ARGUMENTS.get(member)
    if arguments is None:
        takes_index = "device_index" in inspect.signature(getattr(type(accelerator), member)).parameters
        arguments = (1,) if takes_index else ()
    function(*arguments)


@pytest.mark.parametrize("name", ["cuda", "xpu"])
def test_classes_exist(name: str) -> None:
    module = getattr(torch, name)
    accelerator = _accelerator(name)
    assert accelerator.supports("Stream")
    assert accelerator.supports("Event")
    assert isinstance(module.Stream, type)
    assert isinstance(module.Event, type)


@pytest.mark.parametrize("name", ["cuda", "xpu"])
def test_an_index_reaches_torch(name: str) -> None:
    accelerator = _accelerator(name)
    accelerator.synchronize(device_index=1)
    accelerator.memory_allocated(1)
    accelerator.get_rng_state(1)
    _specified(name).synchronize.assert_called_once_with(1)
    _specified(name).memory_allocated.assert_called_once_with(1)
    _specified(name).get_rng_state.assert_called_once_with(1)


@pytest.mark.parametrize("name", ["cuda", "xpu"])
def test_a_device_is_initialized_when_torch_says_so(name: str) -> None:
    accelerator = _accelerator(name)
    for answer in (False, True):
        _specified(name).is_initialized.return_value = answer
        assert accelerator.is_initialized() is answer


def test_a_device_without_such_a_state_is_initialized() -> None:
    assert not hasattr(torch.mps, "is_initialized")
    assert anyaccel.TorchAccelerator("mps").is_initialized() is True


@pytest.mark.parametrize("name", ["cuda", "xpu"])
def test_calls_without_arguments_are_torchs_own_functions(name: str) -> None:
    real: Any = {"cuda": anyaccel.CUDA_Accelerator, "xpu": anyaccel.XPU_Accelerator}[name]()
    module = getattr(torch, name)
    assert real.current_device is module.current_device
    assert real.device_count is module.device_count


def test_free_memory_needs_no_visible_device_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Deepspeed maps the index through int(CUDA_VISIBLE_DEVICES), which fails for a UUID."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", UUID)
    assert _accelerator("cuda").available_memory(0) == 1


def test_xpu_has_no_function_that_deepspeed_calls_in_vain() -> None:
    for name in ("reset_max_memory_allocated", "reset_max_memory_reserved"):
        assert not hasattr(torch.xpu, name)
    accelerator = _accelerator("xpu")
    accelerator.reset_max_memory_allocated(0)
    accelerator.reset_max_memory_cached(0)
    assert _specified("xpu").reset_peak_memory_stats.call_count == 2


@pytest.mark.skipif(not hasattr(torch.xpu, "XPUGraph"), reason="this torch.xpu has no graphs")
def test_xpu_graphs_are_torchs() -> None:
    _accelerator("xpu").create_graph()
    _specified("xpu").XPUGraph.assert_called_once_with()


@pytest.mark.parametrize(
    ("capability", "deprecated", "supported"),
    [((5, 2), "1", False), ((6, 1), "0", False), ((6, 1), "1", True), ((7, 0), "0", True), ((10, 0), "0", True)],
)
def test_fp16_on_cuda(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], deprecated: str, supported: bool
) -> None:
    monkeypatch.setenv("DS_ALLOW_DEPRECATED_FP16", deprecated)
    accelerator = _accelerator("cuda")
    _specified("cuda").get_device_capability.return_value = capability
    assert accelerator.is_fp16_supported() is supported


def test_the_cpu_has_a_class_of_its_own() -> None:
    with pytest.raises(ValueError, match=r"Fix: CPU_Accelerator\(\)"):
        anyaccel.TorchAccelerator("cpu")


def test_generic_accelerator_serves_what_its_module_has() -> None:
    mtia = anyaccel.TorchAccelerator("mtia")
    assert mtia.device_name(1) == mtia.device_name("1") == "mtia:1"
    assert mtia.device_name(torch.device("mtia:1")) == mtia.device_name("mtia:1") == "mtia:1"
    assert mtia.device_name(torch.device("cpu")) == "cpu"
    assert not mtia.is_available()
    assert not mtia.supports("memory_reserved")
    with pytest.raises(NotImplementedError, match=r"'mtia', which has no torch.mtia.memory_reserved"):
        mtia.memory_reserved()
    with mock.patch("torch.mps.manual_seed") as seed:
        mps = anyaccel.TorchAccelerator("mps")
    assert mps.device_count() == 0
    assert mps.communication_backend_name() == "gloo"
    assert mps.supports("manual_seed_all")
    assert mps.supports("seed_all")  # of its one device: there is no torch.mps.manual_seed_all
    mps.manual_seed_all(3)
    seed.assert_called_once_with(3)
    assert not mps.supports("create_graph")
    with pytest.raises(NotImplementedError, match=r"torch.mps.graph"):
        mps.create_graph()


def test_a_count_that_torch_would_ask_the_module_for_is_not_taken_from_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    module = types.ModuleType("torch.mtia")
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("mtia"))
    monkeypatch.setattr(torch, "get_device_module", lambda _device: module)
    mtia = anyaccel.TorchAccelerator("mtia")
    assert mtia.supports("current_device")
    assert not mtia.supports("device_count")
    with pytest.raises(NotImplementedError, match=r"'mtia', which has no torch.mtia.device_count"):
        mtia.device_count()


@pytest.mark.parametrize(
    ("member", "needed"),
    [
        ("get_rng_state_all", "get_rng_state"),
        ("set_rng_state_all", "set_rng_state"),
        ("seed", "manual_seed"),
        ("seed_all", "manual_seed"),
        ("memory_summary", "memory_stats"),
    ],
)
def test_a_member_that_calls_another_one_is_supported_with_it(
    monkeypatch: pytest.MonkeyPatch, member: str, needed: str
) -> None:
    module = types.ModuleType("torch.mtia")
    monkeypatch.setattr(torch, "get_device_module", lambda _device: module)
    assert not anyaccel.TorchAccelerator("mtia").supports(member)
    setattr(module, needed, mock.Mock())
    assert anyaccel.TorchAccelerator("mtia").supports(member)

    class Own(anyaccel.TorchAccelerator):
        pass

    setattr(Own, member, lambda self: "a vendor's own")
    delattr(module, needed)
    assert Own("mtia").supports(member)


def test_a_device_unknown_to_torch_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'nonsense' failed: got torch .* without torch.nonsense"):
        anyaccel.TorchAccelerator("nonsense")


@pytest.mark.parametrize("name", ["cuda:0", None])
def test_a_device_is_named_by_its_type(name: Any) -> None:
    with pytest.raises(ValueError, match=r"got no type of a device; expected one such as 'cuda', without an index"):
        anyaccel.TorchAccelerator(name)


def test_apples_gpu_is_asked_by_its_own_names(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = {
        "current_allocated_memory": 3,
        "driver_allocated_memory": 5,
        "recommended_max_memory": 8,
        "get_name": "M9",
    }
    for name, figure in figures.items():
        monkeypatch.setattr(torch.mps, name, lambda figure=figure: figure, raising=False)
    taken: list[Any] = []
    monkeypatch.setattr(torch.mps, "set_per_process_memory_fraction", taken.append)
    monkeypatch.setattr(torch.mps, "set_rng_state", taken.append)
    mps = anyaccel.TorchAccelerator("mps")
    assert (mps.current_device(), mps.memory_allocated(), mps.memory_allocated(0), mps.memory_reserved()) == (
        0,
        3,
        3,
        5,
    )
    assert (mps.mem_get_info(), mps.total_memory(), mps.available_memory()) == ((3, 8), 8, 3)
    assert mps.get_device_properties().name == "M9"
    mps.set_per_process_memory_fraction(0.5)
    mps.set_rng_state("state", 0)
    assert taken == [0.5, "state"]
    with pytest.raises(NotImplementedError, match=r"torch.mps.memory_stats"):
        mps.memory_stats()
    assert copy.copy(mps).memory_allocated() == 3
    mps.reset_peak_memory_stats()
    mps.reset_max_memory_allocated(0)
    assert (mps.max_memory_allocated(), mps.max_memory_reserved(0), mps.max_memory_cached()) == (5, 5, 5)


@pytest.mark.parametrize("macos", [13, 14, 26])
def test_what_apples_gpu_computes_in(macos: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_macos_or_newer", lambda major, minor: (macos, 0) >= (major, minor))
    mps = anyaccel.TorchAccelerator("mps")
    assert (mps.is_fp64_supported(), mps.is_bf16_supported()) == (False, macos >= 14)
    assert mps.supported_dtypes() == [torch.float32, torch.float16, *([torch.bfloat16] if macos >= 14 else [])]


@pytest.mark.parametrize("has_fp64", [True, False])
def test_an_intel_gpu_is_asked_for_float64(has_fp64: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    found = types.SimpleNamespace(has_fp64=has_fp64)
    monkeypatch.setattr(torch.xpu, "get_device_properties", mock.create_autospec(torch.xpu.get_device_properties))
    torch.xpu.get_device_properties.return_value = found
    assert anyaccel.XPU_Accelerator().is_fp64_supported() is True  # as there is no device
    monkeypatch.setattr(torch.xpu, "is_available", lambda: True)
    assert anyaccel.XPU_Accelerator().is_fp64_supported() is has_fp64


def test_without_an_intel_gpu_the_answers_are_those_of_a_current_one() -> None:
    assert anyaccel.XPU_Accelerator().supported_dtypes() == [torch.float32, torch.float16, torch.bfloat16]


@pytest.mark.parametrize(("name", "package"), [("cuda", "nvidia-ml-py"), ("rocm", "amdsmi"), ("xpu", "pyzes")])
def test_a_figure_needs_a_package_of_its_own(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for missing in ("pynvml", "amdsmi", "pyzes"):
        monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.setattr(torch.version, "hip", "6" if name == "rocm" else None)
    accelerator = anyaccel.XPU_Accelerator() if name == "xpu" else anyaccel.CUDA_Accelerator()
    module = torch.xpu if name == "xpu" else torch.cuda
    monkeypatch.setattr(module, "utilization", mock.Mock(side_effect=ModuleNotFoundError))
    assert not accelerator.supports("utilization")
    with pytest.raises(NotImplementedError, match=package):
        accelerator.utilization()


def test_a_torch_without_nccl_has_no_version_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch._C, "_nccl_version", raising=False)
    accelerator = anyaccel.CUDA_Accelerator()
    assert not accelerator.supports("communication_backend_version")
    with pytest.raises(NotImplementedError, match="NCCL in this torch"):
        accelerator.communication_backend_version()


def test_apples_one_device_can_be_chosen_and_no_other() -> None:
    mps = anyaccel.TorchAccelerator("mps")
    for device in (0, "0", "mps", "mps:0", torch.device("mps"), torch.device("mps", 0)):
        mps.set_device(device)
        with mps.device_guard(device):
            assert mps.current_device() == 0
    for device in (1, -1, "cuda", "mps:1", torch.device("cpu")):
        with pytest.raises(ValueError, match=f"got {device}; expected 0, 'mps' or 'mps:0'"):
            mps.set_device(device)
    for none in (None, -1):
        with mps.device_guard(none):
            pass


@pytest.mark.parametrize(
    ("member", "arguments"),
    {
        "synchronize": (0,),
        "memory_allocated": (0,),
        "memory_reserved": (0,),
        "get_rng_state": (0,),
        "set_rng_state": (torch.zeros(1), 0),
    }.items(),
)
def test_apples_functions_get_no_device_which_they_do_not_take(
    monkeypatch: pytest.MonkeyPatch, member: str, arguments: tuple[Any, ...]
) -> None:
    names = ("synchronize", "get_rng_state", "set_rng_state", "current_allocated_memory", "driver_allocated_memory")
    functions = {name: mock.create_autospec(getattr(torch.mps, name), return_value=1) for name in names}
    for name, function in functions.items():  # with the real signatures
        monkeypatch.setattr(torch.mps, name, function)
    getattr(anyaccel.TorchAccelerator("mps"), member)(*arguments)
    assert sum(function.call_count for function in functions.values()) == 1


_OF_STREAMS = ("Stream", "stream", "set_stream", "current_stream", "default_stream")


def test_apples_gpu_has_torchs_streams_where_torch_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _OF_STREAMS:
        monkeypatch.setattr(torch.mps, name, lambda name=name: name, raising=False)
    mps = anyaccel.TorchAccelerator("mps")
    assert all(map(mps.supports, ("Stream", "current_stream", "default_stream")))
    assert (mps.Stream(), mps.current_stream(), mps.current_stream(0)) == ("Stream", *("current_stream",) * 2)
    assert (mps.default_stream(), mps.default_stream(0)) == ("default_stream",) * 2


def test_apples_one_queue_is_every_stream_where_torch_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in _OF_STREAMS:
        monkeypatch.delattr(torch.mps, name, raising=False)
    real = mock.create_autospec(torch.mps.event.Event)  # with the real signatures
    real.return_value.query.return_value = True
    real.return_value.elapsed_time.return_value = 1.5
    monkeypatch.setattr(torch.mps.event, "Event", real)
    waits = mock.create_autospec(torch.mps.synchronize)
    monkeypatch.setattr(torch.mps, "synchronize", waits)
    mps = anyaccel.TorchAccelerator("mps")
    assert all(map(mps.supports, ("Stream", "Event", "stream", "set_stream", "current_stream", "default_stream")))
    first, side = mps.current_stream(0), mps.Stream(device="mps", priority=-1)
    assert first is mps.default_stream()
    with mps.stream(side), mps.stream(None):
        assert mps.current_stream() is side
    with side as entered:
        assert mps.current_stream() is entered is side
    assert mps.current_stream() is first
    start, end = mps.Event(enable_timing=True, blocking=True), mps.Event(True)
    start.record(side)
    end.record()
    side.wait_event(start)
    side.wait_stream(first)
    first.record_event().synchronize()
    assert (side.query(), end.query(), start.elapsed_time(end)) == (True, True, 1.5)
    side.synchronize()
    waits.assert_called_once_with()
    assert [call.args for call in real.call_args_list] == [(True,), (True,), (False,), (False,)]
    assert real.return_value.wait.call_count == 1
    mps.record_stream(torch.ones(1), side)
    with pytest.raises(ValueError, match="got interprocess=True; expected False"):
        mps.Event(interprocess=True)
    mps.set_stream(side)
    assert mps.current_stream() is side
    mps.set_stream(first)


def test_what_a_device_lacks_of_the_later_members_has_a_body_or_refuses() -> None:
    mtia = anyaccel.TorchAccelerator("mtia")
    for member in ("make_graphed_callables", "MemPool", "use_mem_pool", "graph_pool_handle", "utilization"):
        if not hasattr(torch.mtia, member):
            assert not mtia.supports(member)
    with pytest.raises(NotImplementedError, match=r"'cpu', which has no torch.cpu.MemPool"):
        anyaccel.CPU_Accelerator().MemPool()


def test_utilization_without_nvidias_package_is_unsupported(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_package(device: object) -> int:
        msg = "nvidia-ml-py does not seem to be installed"
        raise ModuleNotFoundError(msg)

    monkeypatch.setattr(torch.cuda, "utilization", without_package)
    monkeypatch.setitem(sys.modules, "pynvml", None)
    cuda = anyaccel.CUDA_Accelerator()
    assert not cuda.supports("utilization")
    with pytest.raises(NotImplementedError, match="without the package nvidia-ml-py"):
        cuda.utilization()


def test_what_a_launcher_sets_has_a_name_on_every_device() -> None:
    """deepspeed's launcher uses the first one."""
    devices = (
        anyaccel.TorchAccelerator("mps"),
        anyaccel.CUDA_Accelerator(),
        anyaccel.XPU_Accelerator(),
        anyaccel.CPU_Accelerator(),
    )
    assert all(each.visible_devices_envs() for each in devices)


@pytest.mark.parametrize(("where", "expected"), [("cuda:0", True), ("cpu", False), (None, False)])
def test_what_is_no_tensor_is_asked_for_its_device(where: str | None, expected: bool) -> None:
    """numpy's arrays say "cpu"."""
    assert anyaccel.CUDA_Accelerator().on_accelerator(types.SimpleNamespace(device=where)) is expected  # type: ignore[arg-type]


def test_pinned_memory_is_the_hosts_whatever_the_default_device() -> None:
    with torch.device("meta"):
        assert anyaccel.CPU_Accelerator().pin_empty(3, dtype=torch.float32).device.type == "cpu"
    with pytest.raises(ValueError, match="got device='nonsense'"):
        anyaccel.CPU_Accelerator().pin_empty(3, dtype=torch.float32, device="nonsense")


def test_a_domains_package_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr("importlib.util.find_spec", looked.append)
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", lambda message: message)
    accelerator = anyaccel.CUDA_Accelerator()
    assert [accelerator.range_push("layer", domain="a domain of this test") for _ in range(3)] == ["layer"] * 3
    assert looked == ["nvtx"]


def test_windows_has_no_nccl(monkeypatch: pytest.MonkeyPatch) -> None:
    assert anyaccel.CUDA_Accelerator().communication_backend_name() == "nccl"
    monkeypatch.setattr(sys, "platform", "win32")
    assert anyaccel.CUDA_Accelerator().communication_backend_name() == "gloo"


GUARDED = {("CUDA_Accelerator", "is_bf16_supported")}
"""What asks ``is_available()`` first."""


@pytest.mark.parametrize("kind", [anyaccel.TorchAccelerator, anyaccel.CUDA_Accelerator, anyaccel.XPU_Accelerator])
def test_what_a_member_takes_from_torchs_module_is_declared(kind: type) -> None:
    """``supports()`` knows by ``@calls`` alone whether a member works."""
    undeclared = {}
    for name, function in vars(kind).items():
        if inspect.isfunction(function) and (kind.__name__, name) not in GUARDED:
            used = set(re.findall(r"self\._module\.(\w+)", inspect.getsource(inspect.unwrap(function))))
            declared = {call.partition(".")[0] for call in getattr(function, "__torch_calls__", ())}
            if used - declared:
                undeclared[name] = used - declared
    assert not undeclared
