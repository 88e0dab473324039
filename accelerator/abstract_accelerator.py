"""The contract: the interface of every accelerator.

Names, parameters and meaning are those of ``DeepSpeedAccelerator`` in deepspeed 0.19.8. The section at the end has
members that ports need and that class lacks, each with a default, so that older accelerators keep working. If a device
lacks a feature, the member raises ``UnsupportedError`` (a ``NotImplementedError``); ``supports(member)`` says so in
advance. An implementation overrides every abstract member; ``TorchAccelerator`` does so for any device that has a module
``torch.<name>``.
"""

from __future__ import annotations

import abc
import contextlib
import secrets
from typing import TYPE_CHECKING, Any

from .errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, MutableMapping, Sequence
    from contextlib import AbstractContextManager
    from types import ModuleType

    import torch

    from .typed_tensor import TypedTensor

__all__ = ["DeepSpeedAccelerator"]


class DeepSpeedAccelerator(abc.ABC):
    """One kind of accelerator in this machine, with everything that a program calls on it.

    A ``device_index`` that is None means the current device; sizes are in bytes.
    """

    supports_nvtx_domain: bool = False
    """Whether ``range_push`` and ``range_pop`` use their ``domain``."""

    def __init__(self) -> None:
        self._name: str = ""
        self._communication_backend_name: str | None = None
        self._compile_backend: str = "inductor"

    # How the device behaves

    @abc.abstractmethod
    def is_synchronized_device(self) -> bool:
        """Return whether a call returns only after its work has finished."""

    @abc.abstractmethod
    def use_host_timers(self) -> bool:
        """Return whether the host's clock measures the device's work correctly."""

    @abc.abstractmethod
    def resolves_data_dependency(self) -> bool:
        """Return whether the device orders dependent work itself, without streams and events."""

    @abc.abstractmethod
    def handles_memory_backpressure(self) -> bool:
        """Return whether the device blocks by itself when queued work would exceed its memory."""

    # Devices

    @abc.abstractmethod
    def device_name(self, device_index: int | str | torch.device | None = None) -> str:
        """Return the device name that torch uses.

        Args:
            device_index: the device's index, as a number or as text; None gives the name of the kind. Our accelerators
                also accept a device, like :meth:`set_device`, and return its own name.

        Returns:
            ``"cuda"`` or ``"cuda:1"``; on CPU ``"cpu"``, also for an index and for CUDA's devices.
        """

    @abc.abstractmethod
    def device(self, device_index: int | None = None) -> torch.device:
        """Return the ``torch.device`` with an index, or without one if none is given."""

    @abc.abstractmethod
    def set_device(self, device_index: int | str | torch.device) -> None:
        """Make a device current; our accelerators accept a device as well as its index, like torch's modules."""

    @abc.abstractmethod
    def current_device(self) -> int:
        """Return the index of the current device, always an int."""

    @abc.abstractmethod
    def current_device_name(self) -> str:
        """Return the name of the current device, with its index if the kind has indices."""

    @abc.abstractmethod
    def device_count(self) -> int:
        """Return how many devices this process can use."""

    @abc.abstractmethod
    def synchronize(self, device_index: int | None = None) -> None:
        """Wait until all work queued on a device is done."""

    # Random numbers

    @abc.abstractmethod
    def random(self) -> ModuleType:
        """Return the module ``torch.random``."""

    @abc.abstractmethod
    def set_rng_state(self, new_state: torch.Tensor, device_index: int | None = None) -> None:
        """Set a device's generator to ``new_state``, a uint8 CPU tensor from :meth:`get_rng_state`."""

    @abc.abstractmethod
    def get_rng_state(self, device_index: int | None = None) -> torch.Tensor:
        """Return the state of a device's generator as a uint8 CPU tensor."""

    @abc.abstractmethod
    def manual_seed(self, seed: int) -> Any:
        """Seed the current device's generator with the integer ``seed``."""

    @abc.abstractmethod
    def manual_seed_all(self, seed: int) -> Any:
        """Seed the generators of all devices with the integer ``seed``."""

    @abc.abstractmethod
    def initial_seed(self) -> int:
        """Return the seed that was last set on the current device's generator."""

    @abc.abstractmethod
    def default_generator(self, device_index: int) -> torch.Generator:
        """Return a device's default generator."""

    # Streams and events

    @property
    @abc.abstractmethod
    def Stream(self) -> Any:
        """The device's stream class."""

    @abc.abstractmethod
    def stream(self, stream: Any) -> AbstractContextManager[Any]:
        """Return a context manager inside which ``stream`` is current; None changes nothing."""

    @abc.abstractmethod
    def current_stream(self, device_index: int | None = None) -> Any:
        """Return a device's current stream."""

    @abc.abstractmethod
    def default_stream(self, device_index: int | None = None) -> Any:
        """Return a device's default stream."""

    @property
    @abc.abstractmethod
    def Event(self) -> Any:
        """The device's event class; ``Event(enable_timing=True)`` measures time in milliseconds."""

    # Memory

    @abc.abstractmethod
    def empty_cache(self) -> None:
        """Return cached, unused memory to the device."""

    @abc.abstractmethod
    def memory_allocated(self, device_index: int | None = None) -> int:
        """Return the bytes occupied by tensors; on the CPU, by this process."""

    @abc.abstractmethod
    def max_memory_allocated(self, device_index: int | None = None) -> int:
        """Return the peak of :meth:`memory_allocated` since the last reset, in bytes."""

    @abc.abstractmethod
    def reset_max_memory_allocated(self, device_index: int | None = None) -> None:
        """Start a new measurement of :meth:`max_memory_allocated`."""

    @abc.abstractmethod
    def memory_cached(self, device_index: int | None = None) -> int:
        """Return the value of :meth:`memory_reserved`, under its older name."""

    @abc.abstractmethod
    def max_memory_cached(self, device_index: int | None = None) -> int:
        """Return the value of :meth:`max_memory_reserved`, under its older name."""

    @abc.abstractmethod
    def reset_max_memory_cached(self, device_index: int | None = None) -> None:
        """Start a new measurement of :meth:`max_memory_cached`."""

    @abc.abstractmethod
    def memory_stats(self, device_index: int | None = None) -> dict[str, Any]:
        """Return the allocator's statistics, with at least ``allocated_bytes.all.current`` and ``.peak``."""

    @abc.abstractmethod
    def reset_peak_memory_stats(self, device_index: int | None = None) -> None:
        """Start a new measurement of every peak in :meth:`memory_stats`."""

    @abc.abstractmethod
    def memory_reserved(self, device_index: int | None = None) -> int:
        """Return the bytes that the caching allocator holds."""

    @abc.abstractmethod
    def max_memory_reserved(self, device_index: int | None = None) -> int:
        """Return the peak of :meth:`memory_reserved` since the last reset, in bytes."""

    @abc.abstractmethod
    def total_memory(self, device_index: int | None = None) -> int:
        """Return the device's memory in bytes; on the CPU, the memory that this process may use."""

    @abc.abstractmethod
    def available_memory(self, device_index: int | None = None) -> int:
        """Return the bytes of memory that are free."""

    # Data types

    @abc.abstractmethod
    def is_bf16_supported(self) -> bool:
        """Return whether the device computes in bfloat16."""

    @abc.abstractmethod
    def is_fp16_supported(self) -> bool:
        """Return whether the device computes in float16."""

    def is_fp64_supported(self) -> bool:
        """Return whether the device computes in float64; most devices do."""
        return True

    @abc.abstractmethod
    def supported_dtypes(self) -> list[torch.dtype]:
        """Return the dtypes to train in: float32, and the half precisions that the device supports."""

    # Miscellaneous

    @abc.abstractmethod
    def is_available(self) -> bool:
        """Return whether the device can be used now."""

    @abc.abstractmethod
    def range_push(self, msg: str, domain: str | None = None, category: str | None = None) -> Any:
        """Open a range in the device's profiler, which shows it until :meth:`range_pop`.

        Args:
            msg: the range's name.
            domain: groups ranges if ``supports_nvtx_domain`` is True; ignored otherwise.
            category: the same within a domain.
        """

    @abc.abstractmethod
    def range_pop(self, domain: str | None = None) -> Any:
        """Close the range that this thread opened last, in ``domain`` if the device has domains."""

    @abc.abstractmethod
    def lazy_call(self, callback: Callable[[], Any]) -> Any:
        """Run a callback once the device is initialised: now, or later when that happens."""

    @abc.abstractmethod
    def communication_backend_name(self) -> str:
        """Return the backend name for ``torch.distributed.init_process_group``."""

    def communication_backend_version(self) -> Any:
        """Return the version of the communication library.

        Raises:
            UnsupportedError: when the device's library does not report its version.
        """
        member = "communication_backend_version"
        raise UnsupportedError(member, self._name, "communication library that reports its version")

    @abc.abstractmethod
    def is_triton_supported(self) -> bool:
        """Return whether Triton kernels run on the device."""

    def prefer_triton_grouped_mm(self) -> bool:
        """Return whether a Triton grouped matrix product is faster here than ``torch._grouped_mm``."""
        return False

    # Graphs

    def is_current_stream_capturing(self) -> bool:
        """Return whether the current stream is being captured into a graph."""
        return False

    @abc.abstractmethod
    def create_graph(self) -> Any:
        """Return a new, empty graph."""

    @abc.abstractmethod
    def capture_to_graph(self, graph: Any, pool: Any = None, stream: Any = None) -> AbstractContextManager[Any]:
        """Return a context manager that captures the work inside it.

        Args:
            graph: from :meth:`create_graph`.
            pool: the memory pool to capture with; None creates one.
            stream: the stream to capture on; None uses a side stream.
        """

    @abc.abstractmethod
    def replay_graph(self, graph: Any) -> None:
        """Run a captured graph again."""

    # Typed tensors

    @property
    @abc.abstractmethod
    def BFloat16Tensor(self) -> Any:
        """The bfloat16 tensor type on this device; called like ``torch.BFloat16Tensor``."""

    @property
    @abc.abstractmethod
    def ByteTensor(self) -> Any:
        """The uint8 tensor type on this device; called like ``torch.ByteTensor``."""

    @property
    @abc.abstractmethod
    def DoubleTensor(self) -> Any:
        """The float64 tensor type on this device; called like ``torch.DoubleTensor``."""

    @property
    @abc.abstractmethod
    def FloatTensor(self) -> Any:
        """The float32 tensor type on this device; called like ``torch.FloatTensor``."""

    @property
    @abc.abstractmethod
    def HalfTensor(self) -> Any:
        """The float16 tensor type on this device; called like ``torch.HalfTensor``."""

    @property
    @abc.abstractmethod
    def IntTensor(self) -> Any:
        """The int32 tensor type on this device; called like ``torch.IntTensor``."""

    @property
    @abc.abstractmethod
    def LongTensor(self) -> Any:
        """The int64 tensor type on this device; called like ``torch.LongTensor``."""

    # Page-locked host memory. A device that pins in a different way overrides the three hooks.

    _torch_pins_host_memory = True
    """Whether the hooks lock pages; deepspeed reads this to count locked memory."""

    def _torch_pin_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.pin_memory()  # anyaccel: ignore[pinning]

    def _torch_empty_pinned(self, tensor: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
        return tensor.new_empty(shape, pin_memory=True)

    def _torch_is_pinned(self, tensor: torch.Tensor) -> bool:
        return tensor.is_pinned()

    def pin_memory(self, tensor: torch.Tensor, make_copy: bool = True, match_shape: bool = True) -> torch.Tensor:
        """Return a page-locked tensor, from which copies to the device are fast and asynchronous.

        Args:
            tensor: a CPU tensor.
            make_copy: copy the values; otherwise ``tensor`` is a template and the result is uninitialised.
            match_shape: without a copy, use the tensor's shape; otherwise one dimension with as many elements.

        Returns:
            The pinned tensor. On the CPU nothing needs pinning, and a copy is ``tensor`` itself.
        """
        if make_copy:
            return self._torch_pin_memory(tensor)
        shape = tuple(tensor.shape) if match_shape else (tensor.numel(),)
        return self._torch_empty_pinned(tensor, shape)

    def pin_empty(self, *size: Any, dtype: torch.dtype, device: torch.device | str = "cpu") -> torch.Tensor:
        """Return an uninitialised page-locked tensor.

        Args:
            *size: the sizes, or one sequence of them.
            dtype: the element type.
            device: must be the CPU.

        Raises:
            ValueError: when ``device`` is not the CPU.
        """
        import torch

        _require_host(device)
        shape = tuple(size[0]) if len(size) == 1 and isinstance(size[0], tuple | list) else size
        return self._torch_empty_pinned(torch.empty(0, dtype=dtype, device="cpu"), shape)

    def pin_empty_like(
        self, tensor: torch.Tensor, device: torch.device | str = "cpu", dtype: torch.dtype | None = None
    ) -> torch.Tensor:
        """Return an uninitialised page-locked tensor with the shape of another, and its dtype if none is given.

        Raises:
            ValueError: when ``device`` is not the CPU.
        """
        return self.pin_empty(tuple(tensor.shape), dtype=dtype or tensor.dtype, device=device)

    def is_pinned(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor is in page-locked memory."""
        return self._torch_is_pinned(tensor)

    def unpin_memory(self, tensor: torch.Tensor) -> None:
        """Release a pinned tensor's page lock early; torch's own pinned memory is released with the tensor."""
        return None

    def register_host_memory(self, address: int, num_bytes: int) -> bool:
        """Page-lock host memory that was allocated elsewhere.

        Args:
            address: its start address.
            num_bytes: its size in bytes.

        Returns:
            Whether the device's runtime registered it; False if this kind of device needs no registration.
        """
        return False

    def unregister_host_memory(self, address: int) -> None:
        """Undo :meth:`register_host_memory` for the memory that starts at ``address``."""
        return None

    def pin_memory_alignment(self) -> int:
        """Return the alignment in bytes that :meth:`register_host_memory` requires; 1 means none."""
        return 1

    @abc.abstractmethod
    def on_accelerator(self, tensor: torch.Tensor) -> bool:
        """Return whether a tensor is on a device of this kind."""

    # Ops

    @abc.abstractmethod
    def op_builder_dir(self) -> str:
        """Return the name of the package with this device's op builders."""

    @abc.abstractmethod
    def create_op_builder(self, class_name: str) -> Any:
        """Return a new builder for this device, or None when the device has no builder of that name.

        Args:
            class_name: the builder's name, such as ``"CPUAdamBuilder"``.
        """

    @abc.abstractmethod
    def get_op_builder(self, class_name: str) -> Any:
        """Return the class of the builder ``class_name``, such as ``"RMSNormBuilder"``, or None when the device has none."""

    @abc.abstractmethod
    def build_extension(self) -> Any:
        """Return the setuptools command class that builds this device's extensions."""

    # Launching

    @abc.abstractmethod
    def export_envs(self) -> list[str]:
        """Return prefixes of the environment variables that a launcher passes to every host."""

    @abc.abstractmethod
    def visible_devices_envs(self) -> list[str]:
        """Return the environment variables that limit which devices a process sees."""

    @abc.abstractmethod
    def set_visible_devices_envs(
        self, current_env: MutableMapping[str, str], local_accelerator_ids: Sequence[int | str]
    ) -> None:
        """Limit the devices that a process started with ``current_env`` sees.

        Args:
            current_env: the environment to change.
            local_accelerator_ids: indices, or UUIDs such as ``"GPU-8932f937-…"`` if the device has them.
        """

    # torch.compile

    @abc.abstractmethod
    def get_compile_backend(self) -> str:
        """Return the name of the ``torch.compile`` backend to use."""

    @abc.abstractmethod
    def set_compile_backend(self, backend: str) -> None:
        """Choose the ``torch.compile`` backend.

        Raises:
            ValueError: when torch has no such backend.
        """

    # Members that deepspeed's contract lacks. Each has a default, so that older accelerators keep working.

    def supports(self, member: str) -> bool:
        """Return whether a member of this contract works on the device instead of raising ``UnsupportedError``.

        Args:
            member: the member's name, such as ``"create_graph"``.

        Raises:
            AttributeError: when the contract has no such member.
        """
        own = vars(self).get(member) or getattr(type(self), member)  # later members are set on an adopted object itself
        return member not in _WITHOUT_DEFAULT or getattr(own, "__func__", own) is not vars(DeepSpeedAccelerator)[member]

    def is_initialized(self) -> bool:
        """Return whether this process has used the device; a CPU is always ready. ``synchronize()`` would initialize it first."""
        return True

    def get_device_properties(self, device_index: int | None = None) -> Any:
        """Return a device's properties: an object with at least ``name`` and ``total_memory``."""
        member = "get_device_properties"
        raise UnsupportedError(member, self._name, "device properties")

    def get_device_capability(self, device_index: int | None = None) -> Any:
        """Return a device's capability: ``(major, minor)`` on CUDA, torch's own format elsewhere."""
        member = "get_device_capability"
        raise UnsupportedError(member, self._name, "device capability")

    def mem_get_info(self, device_index: int | None = None) -> tuple[int, int]:
        """Return the free and the total memory of a device, in bytes."""
        return self.available_memory(device_index), self.total_memory(device_index)

    def get_rng_state_all(self) -> list[torch.Tensor]:
        """Return the states of all devices' generators, in the order of their indices."""
        return [self.get_rng_state(index) for index in range(self.device_count())]

    def set_rng_state_all(self, new_states: Sequence[torch.Tensor]) -> None:
        """Set the generators of the first devices to ``new_states`` from :meth:`get_rng_state_all`, one state for each."""
        for index, state in enumerate(new_states):
            self.set_rng_state(state, index)

    def seed(self) -> int:
        """Seed the current device with a random number. Returns that number."""
        number = secrets.randbits(63)
        self.manual_seed(number)
        return number

    def seed_all(self) -> int:
        """Seed every device with one random number. Returns that number."""
        number = secrets.randbits(63)
        self.manual_seed_all(number)
        return number

    def memory_summary(self, device_index: int | None = None, abbreviated: bool = False) -> str:
        """Return a text that shows the memory in use.

        Args:
            device_index: the device.
            abbreviated: leave out rarely needed figures.
        """
        stats = {name: value for name, value in self.memory_stats(device_index).items() if isinstance(value, int)}
        shown = {name: value for name, value in stats.items() if ".all." in name} if abbreviated else stats
        return "\n".join(
            [f"{self.device_name(device_index)}:", *(f"  {name}: {value}" for name, value in shown.items())]
        )

    def memory_snapshot(self) -> Any:
        """Return the state of the allocator, segment by segment, in torch's format."""
        member = "memory_snapshot"
        raise UnsupportedError(member, self._name, "snapshot of its allocator")

    def reset_accumulated_memory_stats(self, device_index: int | None = None) -> None:
        """Reset the accumulated counters of :meth:`memory_stats` to 0."""
        member = "reset_accumulated_memory_stats"
        raise UnsupportedError(member, self._name, "counters to reset")

    def get_per_process_memory_fraction(self, device_index: int | None = None) -> float:
        """Return the fraction of a device's memory, 0 to 1, that this process may use."""
        member = "get_per_process_memory_fraction"
        raise UnsupportedError(member, self._name, "limit for this process's memory")

    def set_per_process_memory_fraction(self, fraction: float, device_index: int | None = None) -> None:
        """Limit this process to a fraction of a device's memory.

        Args:
            fraction: 0 to 1.
            device_index: the device.
        """
        member = "set_per_process_memory_fraction"
        raise UnsupportedError(member, self._name, "limit for this process's memory")

    def MemPool(self, *arguments: Any, **options: Any) -> Any:
        """Return a new memory pool for :meth:`use_mem_pool`; takes the arguments of torch's class."""
        member = "MemPool"
        raise UnsupportedError(member, self._name, "memory pools")

    def use_mem_pool(self, pool: Any, device_index: int | None = None) -> AbstractContextManager[Any]:
        """Return a context manager inside which memory is allocated from a pool.

        Args:
            pool: from :meth:`MemPool`.
            device_index: the device.
        """
        member = "use_mem_pool"
        raise UnsupportedError(member, self._name, "memory pools")

    def utilization(self, device_index: int | None = None) -> int:
        """Return the percentage of the recent time in which the device was busy."""
        member = "utilization"
        raise UnsupportedError(member, self._name, "utilization figure")

    def can_device_access_peer(self, device_index: int, peer_index: int) -> bool:
        """Return whether one device can read the memory of another, ``peer_index``, without a copy through the host."""
        member = "can_device_access_peer"
        raise UnsupportedError(member, self._name, "peer access query")

    def get_arch_list(self) -> list[str]:
        """Return the architectures that this torch has code for, with torch's names."""
        member = "get_arch_list"
        raise UnsupportedError(member, self._name, "list of architectures")

    def graph_pool_handle(self) -> Any:
        """Return a handle of a memory pool that graphs can share: ``capture_to_graph(graph, pool=...)``."""
        member = "graph_pool_handle"
        raise UnsupportedError(member, self._name, "graphs")

    def make_graphed_callables(self, callables: Any, sample_args: Any, **options: Any) -> Any:
        """Return functions or modules that replay their forward and backward passes as graphs.

        Args:
            callables: a function or module, or a tuple of them.
            sample_args: a tuple of tensors to call it with, or one such tuple for each callable.
            **options: as of torch's function.
        """
        member = "make_graphed_callables"
        raise UnsupportedError(member, self._name, "graphs")

    def set_stream(self, stream: Any) -> None:
        """Make a stream current until the next call."""
        member = "set_stream"
        raise UnsupportedError(member, self._name, "way to set the current stream")

    def record_stream(self, tensor: torch.Tensor, stream: Any) -> None:
        """Keep a tensor's memory until a stream has finished its queued work, even if the tensor is freed earlier.

        Args:
            tensor: any tensor; for one on the host nothing is kept, because its work is finished when the call returns.
                An object of another class, such as a batch, gets a call of its own ``record_stream``.
            stream: a stream other than the one that made the tensor. If it is not torch's, its device
                works like the host.
        """
        import torch

        if not isinstance(tensor, torch.Tensor) or (tensor.device.type != "cpu" and isinstance(stream, torch.Stream)):
            tensor.record_stream(stream)  # anyaccel: ignore[streams]

    @contextlib.contextmanager
    def device_guard(self, device_index: int | str | torch.device | None) -> Iterator[None]:
        """Make a device current inside a ``with`` block, and the previous one again after it.

        Args:
            device_index: an index, or a device of this accelerator's. None and -1, the index of a tensor on the host, change
                nothing, as in ``torch.cuda.device``.
        """
        if device_index is None or device_index == -1:
            yield
            return
        previous = self.current_device()
        self.set_device(device_index)
        try:
            yield
        finally:
            self.set_device(previous)

    def autocast(
        self, dtype: torch.dtype | None = None, enabled: bool = True, cache_enabled: bool | None = None
    ) -> torch.autocast:
        """Return ``torch.autocast`` for this device.

        Args:
            dtype: the lower precision; None means torch's default for the device.
            enabled: False turns it off.
            cache_enabled: whether casts of weights are cached; None means torch's default.
        """
        import torch

        return torch.autocast(self.device_name(), dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)

    # torch 2.10's torch.amp does not export the name for type checkers
    def grad_scaler(self, **options: Any) -> torch.amp.grad_scaler.GradScaler:
        """Return a gradient scaler for this device; takes the options of ``torch.amp.GradScaler``."""
        import torch

        return torch.amp.grad_scaler.GradScaler(self.device_name(), **options)

    def tensor_type(self, dtype: torch.dtype) -> TypedTensor:
        """Return the tensor type for any dtype on this device, like :attr:`FloatTensor` for float32."""
        from .typed_tensor import TypedTensor

        return TypedTensor(dtype, self.device_name())


# Members whose default implementation raises UnsupportedError.
_WITHOUT_DEFAULT = frozenset(
    [
        "MemPool", "can_device_access_peer", "communication_backend_version", "get_arch_list", "get_device_capability",
        "get_device_properties", "get_per_process_memory_fraction", "graph_pool_handle", "make_graphed_callables",
        "memory_snapshot", "reset_accumulated_memory_stats", "set_per_process_memory_fraction", "set_stream",
        "use_mem_pool", "utilization",
    ]
)  # fmt: skip


def _require_host(device: torch.device | str) -> None:
    import torch

    try:
        is_host = torch.device(device).type == "cpu"
    except RuntimeError:  # it names no device
        is_host = False
    if not is_host:
        msg = f"pin_empty failed: got device={device!r}; expected the CPU, as only host memory is pinned. Fix: leave device out."
        raise ValueError(msg)
