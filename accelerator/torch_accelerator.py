"""The implementation shared by every device that has a module ``torch.<name>``.

``TorchAccelerator("mps")`` or any PrivateUse1 name works for a device without a file of its own here; so does ``("mtia")``,
whose memory statistics keep their own form. Each
member names the functions of ``torch.<name>`` that it calls. If neither that module nor ``torch.accelerator`` has one, the
member raises ``UnsupportedError``, and ``supports`` returns False. All of this is decided once, when the instance is made,
so that a call costs as much as the torch call.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
from typing import TYPE_CHECKING, Any, TypeVar

from . import host_ranges
from .abstract_accelerator import DeepSpeedAccelerator
from .detection import kernel_kind
from .errors import SelectionError, UnsupportedError
from .generic_module import completed
from .mps import MpsModule

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, MutableMapping, Sequence
    from contextlib import AbstractContextManager
    from types import ModuleType

    import torch

    from .typed_tensor import TypedTensor

__all__ = ["TorchAccelerator", "calls"]

_Member = TypeVar("_Member", bound="Callable[..., Any]")


def calls(*functions: str, bind: bool = False) -> Callable[[_Member], _Member]:
    """Declare which functions of ``torch.<name>`` a member calls.

    Args:
        *functions: their names.
        bind: the first function has the same parameters as the member; instances use it directly in place of the member.
    """

    def declare(member: _Member) -> _Member:
        member.__torch_calls__ = functions  # type: ignore[attr-defined]
        member.__torch_bind__ = bind  # type: ignore[attr-defined]
        return member

    return declare


def _made_again(accelerator_class: type[TorchAccelerator], name: str) -> TorchAccelerator:
    """Make a copy without the class's constructor, whose arguments are unknown; its own attributes are copied."""
    made = accelerator_class.__new__(accelerator_class)
    TorchAccelerator.__init__(made, name)
    return made


NEEDED = {
    "get_rng_state_all": ("get_rng_state",), "set_rng_state_all": ("set_rng_state",),
    "seed": ("manual_seed",), "seed_all": ("manual_seed_all",), "manual_seed_all": ("manual_seed",),
    "memory_summary": ("memory_stats",), "memory_cached": ("memory_reserved",),
    "max_memory_cached": ("max_memory_reserved",), "reset_max_memory_allocated": ("reset_peak_memory_stats",),
    "reset_max_memory_cached": ("reset_peak_memory_stats",), "available_memory": ("mem_get_info",),
    "total_memory": ("get_device_properties",), "current_device_name": ("current_device",),
    "device_guard": ("set_device", "current_device"),
}  # fmt: skip
"""Members with a default that calls other members, which a subclass may have."""

OWN = {"memory_summary": "memory_summary", "manual_seed_all": "manual_seed_all", "device_guard": "device"}
"""Functions of ``torch.<name>`` that serve such a member in their place."""


def _is_overridden(accelerator_class: type[TorchAccelerator], member: str) -> bool:
    """Return whether a subclass has its own member in place of the default."""
    return getattr(accelerator_class, member) is not getattr(TorchAccelerator, member, None)


class TorchAccelerator(DeepSpeedAccelerator):
    """Any device that has a module ``torch.<name>``.

    Args:
        name: the device's type, as in ``torch.device(name)``.

    Raises:
        SelectionError: when this torch has no module for the device.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name
        self._module: Any = self._load_module(name)
        self._missing: dict[str, str] = {}
        self._settled: set[str] = set()
        for member, function in inspect.getmembers(type(self), lambda value: hasattr(value, "__torch_calls__")):
            self._settle(member, function)

    def __reduce__(self) -> tuple[Any, ...]:
        made = {"_module", "_missing", "_settled", *self._settled}  # made again there
        kept = {key: value for key, value in vars(self).items() if key not in made}
        return _made_again, (type(self), self._name), kept

    # How the device behaves

    def is_synchronized_device(self) -> bool:
        return False

    def use_host_timers(self) -> bool:
        return self.is_synchronized_device()

    def resolves_data_dependency(self) -> bool:
        return self.is_synchronized_device()

    def handles_memory_backpressure(self) -> bool:
        return self.is_synchronized_device()

    # Names

    def device_name(self, device_index: int | str | torch.device | None = None) -> str:
        if device_index is None:
            return self._name
        text = f"{device_index}"
        return text if text[:1].isalpha() else f"{self._name}:{text}"  # a device's name begins with a letter

    def device(self, device_index: int | None = None) -> torch.device:
        import torch

        return torch.device(self.device_name(device_index))

    def random(self) -> ModuleType:
        import torch

        return torch.random

    # Data types

    def is_fp16_supported(self) -> bool:
        return True

    def supported_dtypes(self) -> list[torch.dtype]:
        import torch

        dtypes = [torch.float32]
        if self.is_fp16_supported():
            dtypes.append(torch.float16)
        if self.is_bf16_supported():
            dtypes.append(torch.bfloat16)
        return dtypes

    # Ranges

    def range_push(self, msg: str, domain: str | None = None, category: str | None = None) -> Any:
        host_ranges.push(msg)

    def range_pop(self, domain: str | None = None) -> Any:
        host_ranges.pop()

    def is_triton_supported(self) -> bool:
        return False

    # Typed tensors

    @property
    def BFloat16Tensor(self) -> Any:
        return self._typed("bfloat16")

    @property
    def ByteTensor(self) -> Any:
        return self._typed("uint8")

    @property
    def DoubleTensor(self) -> Any:
        return self._typed("float64")

    @property
    def FloatTensor(self) -> Any:
        return self._typed("float32")

    @property
    def HalfTensor(self) -> Any:
        return self._typed("float16")

    @property
    def IntTensor(self) -> Any:
        return self._typed("int32")

    @property
    def LongTensor(self) -> Any:
        return self._typed("int64")

    def _typed(self, dtype: str) -> TypedTensor:
        import torch

        return self.tensor_type(getattr(torch, dtype))

    def on_accelerator(self, tensor: torch.Tensor) -> bool:
        placed = tensor if hasattr(tensor, "device") else tensor.data  # a PackedSequence keeps its tensor there
        device = placed.device
        return (device.type if hasattr(device, "type") else str(device).partition(":")[0]) == self._name

    # Ops

    def op_builder_dir(self) -> str:
        own = f"anyaccel.op_builder.{kernel_kind(self._name)}"
        return own if importlib.util.find_spec(own) is not None else "anyaccel.op_builder"

    def create_op_builder(self, class_name: str) -> Any:
        builder = self.get_op_builder(class_name)
        return None if builder is None else builder()

    def get_op_builder(self, class_name: str) -> Any:
        from ..op_builder import find_builder

        return find_builder(class_name, kernel_kind(self._name))

    def build_extension(self) -> Any:
        from torch.utils.cpp_extension import BuildExtension

        return BuildExtension

    # Launching

    def export_envs(self) -> list[str]:
        return []

    def visible_devices_envs(self) -> list[str]:
        """Return ``CUDA_VISIBLE_DEVICES``, as deepspeed does: its launcher uses the first entry on any device."""
        return ["CUDA_VISIBLE_DEVICES"]

    def set_visible_devices_envs(
        self, current_env: MutableMapping[str, str], local_accelerator_ids: Sequence[int | str]
    ) -> None:
        for variable in self.visible_devices_envs():
            current_env[variable] = ",".join(map(str, local_accelerator_ids))

    # torch.compile

    def get_compile_backend(self) -> str:
        return self._compile_backend

    def set_compile_backend(self, backend: str) -> None:
        import torch._dynamo

        backends = torch._dynamo.list_backends(exclude_tags=())
        if backend not in backends:
            msg = (
                f"set_compile_backend failed: got {backend!r}; expected one of {backends}. "
                f"Fix: pass one of these, or import the package that registers {backend!r}."
            )
            raise ValueError(msg)
        self._compile_backend = backend

    # The functions of torch.<name>

    def _load_module(self, name: str) -> Any:
        import torch

        if not isinstance(name, str) or ":" in name:
            msg = (
                f"making the accelerator {name!r} failed: got no type of a device; expected one such as 'cuda', without an "
                f"index. Fix: choose the device with set_device()."
            )
            raise SelectionError(msg)
        if name == "cpu":
            msg = "making the accelerator 'cpu' failed: torch.cpu names its device by text. Fix: CPU_Accelerator()."
            raise SelectionError(msg)
        try:
            module: ModuleType = torch.get_device_module(name)
        except RuntimeError as error:
            msg = (
                f"making the accelerator '{name}' failed: got torch {torch.__version__} without torch.{name}; expected "
                f"a device that torch has a module for. Fix: install or import the package that registers '{name}'."
            )
            raise SelectionError(msg) from error
        return MpsModule(module) if name == "mps" else completed(module, name)

    def _settle(self, member: str, function: Any) -> None:
        for called in (one.format(self._name.upper()) for one in function.__torch_calls__):
            if not hasattr(self._module, called):
                self._missing[member] = called
                self._settled.add(member)
                setattr(self, member, self._refusal(member))
                return
        if function.__torch_bind__:
            self._settled.add(member)
            setattr(self, member, getattr(self._module, function.__torch_calls__[0]))

    def _refusal(self, member: str) -> Callable[..., Any]:
        def refuse(*args: Any, **options: Any) -> Any:
            raise self._unsupported(member)

        return refuse

    def _unsupported(self, member: str) -> UnsupportedError:
        return UnsupportedError(member, self._name, f"torch.{self._name}.{self._missing.get(member, member)}")

    def supports(self, member: str) -> bool:
        if member in self._missing or not super().supports(member):
            return False
        if _is_overridden(type(self), member):
            return True
        if member in ("Stream", "Event"):
            return hasattr(self._module, member)
        if member == "communication_backend_name":
            return self._communication_backend() is not None
        return hasattr(self._module, OWN.get(member, "")) or all(map(self.supports, NEEDED.get(member, ())))

    # Devices

    @calls("set_device")
    def set_device(self, device_index: int | str | torch.device) -> None:
        self._module.set_device(device_index)

    @contextlib.contextmanager
    def device_guard(self, device_index: int | str | torch.device | None) -> Iterator[None]:
        guard: Callable[[Any], AbstractContextManager[Any]] = getattr(self._module, "device", super().device_guard)
        if device_index is None or device_index == -1:  # a vendor's module may not know them
            guard = super().device_guard
        with guard(device_index):
            yield

    @calls("current_device", bind=True)
    def current_device(self) -> int:
        return int(self._module.current_device())

    def current_device_name(self) -> str:
        return f"{self._name}:{self.current_device()}"

    @calls("device_count", bind=True)
    def device_count(self) -> int:
        return int(self._module.device_count())

    @calls("synchronize")
    def synchronize(self, device_index: int | None = None) -> None:
        if device_index is None:  # torch.compile can trace only the call without an argument, and MPS takes none
            self._module.synchronize()
        else:
            self._module.synchronize(device_index)

    # Random numbers

    @calls("set_rng_state")
    def set_rng_state(self, new_state: torch.Tensor, device_index: int | None = None) -> None:
        given = () if device_index is None else (self._number_or_name(device_index),)
        self._module.set_rng_state(new_state, *given)

    @calls("get_rng_state")
    def get_rng_state(self, device_index: int | None = None) -> torch.Tensor:
        given = () if device_index is None else (self._number_or_name(device_index),)
        state: torch.Tensor = self._module.get_rng_state(*given)
        return state

    def _number_or_name(self, device_index: int | str | torch.device) -> int | str:
        return device_index if isinstance(device_index, int) else self.device_name(device_index)

    @calls("manual_seed", bind=True)
    def manual_seed(self, seed: int) -> Any:
        return self._module.manual_seed(seed)

    def manual_seed_all(self, seed: int) -> Any:
        one = self.manual_seed  # all that torch.mps has, for its one device
        return getattr(self._module, "manual_seed_all", one)(seed)

    @calls("initial_seed", bind=True)
    def initial_seed(self) -> int:
        return int(self._module.initial_seed())

    @calls("init", "default_generators")
    def default_generator(self, device_index: int) -> torch.Generator:
        self._module.init()  # the generators exist only once the device is initialised
        generator: torch.Generator = self._module.default_generators[device_index]
        return generator

    # Streams and events

    @property
    def Stream(self) -> Any:
        return self._class("Stream")

    @property
    def Event(self) -> Any:
        return self._class("Event")

    def _class(self, name: str) -> Any:
        if not hasattr(self._module, name):
            raise self._unsupported(name)
        return getattr(self._module, name)

    @calls("stream", bind=True)
    def stream(self, stream: Any) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self._module.stream(stream)
        return context

    @calls("current_stream")
    def current_stream(self, device_index: int | None = None) -> Any:
        return self._module.current_stream() if device_index is None else self._module.current_stream(device_index)

    @calls("default_stream")
    def default_stream(self, device_index: int | None = None) -> Any:
        return self._module.default_stream(device_index)

    @calls("set_stream", bind=True)
    def set_stream(self, stream: Any) -> None:
        self._module.set_stream(stream)

    # Memory

    @calls("empty_cache", bind=True)
    def empty_cache(self) -> None:
        self._module.empty_cache()

    @calls("memory_allocated")
    def memory_allocated(self, device_index: int | None = None) -> int:
        return int(self._module.memory_allocated(device_index))

    @calls("max_memory_allocated")
    def max_memory_allocated(self, device_index: int | None = None) -> int:
        return int(self._module.max_memory_allocated(device_index))

    def reset_max_memory_allocated(self, device_index: int | None = None) -> None:
        self.reset_peak_memory_stats(device_index)

    def memory_cached(self, device_index: int | None = None) -> int:
        return self.memory_reserved(device_index)

    def max_memory_cached(self, device_index: int | None = None) -> int:
        return self.max_memory_reserved(device_index)

    def reset_max_memory_cached(self, device_index: int | None = None) -> None:
        self.reset_peak_memory_stats(device_index)

    @calls("memory_stats")
    def memory_stats(self, device_index: int | None = None) -> dict[str, Any]:
        return dict(self._module.memory_stats(device_index))

    @calls("reset_peak_memory_stats")
    def reset_peak_memory_stats(self, device_index: int | None = None) -> None:
        self._module.reset_peak_memory_stats(device_index)

    @calls("memory_reserved")
    def memory_reserved(self, device_index: int | None = None) -> int:
        return int(self._module.memory_reserved(device_index))

    @calls("max_memory_reserved")
    def max_memory_reserved(self, device_index: int | None = None) -> int:
        return int(self._module.max_memory_reserved(device_index))

    def total_memory(self, device_index: int | None = None) -> int:
        properties = self.get_device_properties(device_index)
        own = properties["total_memory"] if isinstance(properties, dict) else properties.total_memory  # of torch.mtia
        return int(own)

    def available_memory(self, device_index: int | None = None) -> int:
        return self.mem_get_info(device_index)[0]

    @calls("mem_get_info")
    def mem_get_info(self, device_index: int | None = None) -> tuple[int, int]:
        free_bytes, total_bytes = self._module.mem_get_info(device_index)
        return int(free_bytes), int(total_bytes)

    def memory_summary(self, device_index: int | None = None, abbreviated: bool = False) -> str:
        own = getattr(self._module, "memory_summary", None)
        if own is None:
            return super().memory_summary(device_index, abbreviated)
        return str(own(device_index, abbreviated))

    @calls("memory_snapshot")
    def memory_snapshot(self) -> Any:
        return self._module.memory_snapshot()

    @calls("reset_accumulated_memory_stats")
    def reset_accumulated_memory_stats(self, device_index: int | None = None) -> None:
        self._module.reset_accumulated_memory_stats(device_index)

    @calls("get_per_process_memory_fraction")
    def get_per_process_memory_fraction(self, device_index: int | None = None) -> float:
        return float(self._module.get_per_process_memory_fraction(device_index))

    @calls("set_per_process_memory_fraction")
    def set_per_process_memory_fraction(self, fraction: float, device_index: int | None = None) -> None:
        self._module.set_per_process_memory_fraction(fraction, device_index)

    @calls("MemPool")
    def MemPool(self, *arguments: Any, **options: Any) -> Any:
        return self._module.MemPool(*arguments, **options)

    @calls("use_mem_pool")
    def use_mem_pool(self, pool: Any, device_index: int | None = None) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self._module.use_mem_pool(pool, device_index)
        return context

    @calls("utilization")
    def utilization(self, device_index: int | None = None) -> int:
        return int(self._module.utilization(device_index))

    @calls("can_device_access_peer")
    def can_device_access_peer(self, device_index: int, peer_index: int) -> bool:
        return bool(self._module.can_device_access_peer(device_index, peer_index))

    @calls("get_arch_list")
    def get_arch_list(self) -> list[str]:
        return list(self._module.get_arch_list())

    @calls("get_device_properties")
    def get_device_properties(self, device_index: int | None = None) -> Any:
        return self._module.get_device_properties(device_index)

    @calls("get_device_capability")
    def get_device_capability(self, device_index: int | None = None) -> Any:
        return self._module.get_device_capability(device_index)

    # Data types

    def is_bf16_supported(self) -> bool:
        asked = getattr(self._module, "is_bf16_supported", None)
        return True if asked is None else bool(asked())

    def is_fp64_supported(self) -> bool:
        asked = getattr(self._module, "is_fp64_supported", None)
        return super().is_fp64_supported() if asked is None else bool(asked())

    # Miscellaneous

    @calls("is_available", bind=True)
    def is_available(self) -> bool:
        return bool(self._module.is_available())

    def is_initialized(self) -> bool:
        asked = getattr(self._module, "is_initialized", None)
        return True if asked is None else bool(asked())

    def lazy_call(self, callback: Callable[[], Any]) -> Any:
        later = getattr(self._module, "_lazy_call", None)
        return callback() if later is None else later(callback)

    def communication_backend_name(self) -> str:
        backend = self._communication_backend()
        if backend is None:
            member = "communication_backend_name"
            raise UnsupportedError(member, self._name, "torch.distributed backend registered")
        return backend

    def _communication_backend(self) -> str | None:
        import torch.distributed

        registered = torch.distributed.Backend.default_device_backend_map if torch.distributed.is_available() else {}
        return self._communication_backend_name or registered.get(self._name)

    # Graphs

    def is_current_stream_capturing(self) -> bool:
        asked = getattr(self._module, "is_current_stream_capturing", None)
        return False if asked is None else bool(asked())

    @calls("graph", "{}Graph")
    def create_graph(self) -> Any:
        return getattr(self._module, f"{self._name.upper()}Graph")()

    @calls("graph")
    def capture_to_graph(self, graph: Any, pool: Any = None, stream: Any = None) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = self._module.graph(graph, pool, stream)
        return context

    @calls("graph")
    def replay_graph(self, graph: Any) -> None:
        graph.replay()

    @calls("graph_pool_handle")
    def graph_pool_handle(self) -> Any:
        return self._module.graph_pool_handle()

    @calls("make_graphed_callables")
    def make_graphed_callables(self, callables: Any, sample_args: Any, **options: Any) -> Any:
        return self._module.make_graphed_callables(callables, sample_args, **options)
