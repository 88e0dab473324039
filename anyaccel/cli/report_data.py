"""Gathers the content of ``anyaccel report`` as plain data."""

from __future__ import annotations

import contextlib
import os
import platform
import sys
from dataclasses import asdict, dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any

from ..accelerator import environment as accelerator_environment
from ..accelerator import host
from ..accelerator.detection import kernel_kind
from ..accelerator.real_accelerator import candidates, get_accelerator
from ..op_builder import BUILDERS, builder_class
from ..op_builder.deepspeed.plain import PlainBuilder
from ..op_builder.engine import environment as op_environment
from ..op_builder.engine.cache import open_cache
from ..op_builder.engine.fingerprint import cpu_flags
from ..op_builder.engine.toolchains.survey import survey
from ..op_builder.engine.trace import Trace
from ..op_builder.kernel_loader import loader_class, loader_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ..accelerator.abstract_accelerator import DeepSpeedAccelerator
    from ..op_builder.kernel_loader import KernelLoader

_X86_FLAGS = ("sse4_2", "avx", "avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512_bf16", "avx512_fp16", "amx_bf16")
_ARM_FLAGS = ("asimd", "sve", "sve2", "bf16")
_ISA_FLAGS = _X86_FLAGS + _ARM_FLAGS

__all__ = ["DeviceChoice", "Kernel", "OpState", "Report", "Toolchain", "Way", "gather", "ways"]


@dataclass(frozen=True)
class DeviceChoice:
    """A possible accelerator: its name, where it comes from, and why it was chosen or rejected."""

    name: str
    source: str
    chosen: bool
    reason: str


@dataclass(frozen=True)
class Toolchain:
    """A tool that was searched for, its toolchain, and if it was rejected, the fix."""

    toolchain: str
    name: str
    accepted: bool
    detail: str
    fix: str


@dataclass(frozen=True)
class OpState:
    """An op: ``built``, ``buildable``, ``no build needed``, or ``not buildable`` with the reason."""

    name: str
    builder: str
    state: str
    detail: str


@dataclass(frozen=True)
class Kernel:
    """An implementation that a kernel loader can choose: whether it is chosen, and why."""

    loader: str
    name: str
    chosen: bool
    reason: str


@dataclass(frozen=True)
class Way:
    """A way that data takes between ranks, ``memory`` or ``gloo``, the reason, and the pairs of ranks that it serves."""

    way: str
    reason: str
    pairs: list[tuple[int, int]]


@dataclass(frozen=True)
class Report:
    """The whole report, in the order of display; memory is in bytes."""

    versions: dict[str, str]
    devices: list[DeviceChoice]
    memory: dict[str, int]
    cpu: dict[str, Any]
    communication_backends: dict[str, bool]
    toolchains: list[Toolchain]
    cache_dir: str
    ops: list[OpState]
    kernels: list[Kernel]
    ranks: list[Way]

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return asdict(self)


def ways() -> list[Way] | None:
    """Return how the ranks that torchrun has started reach each other over shm; None on every rank but the first.

    A program that torchrun has not started has no ranks.

    Raises:
        OpError: when the backend cannot be built.
    """
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_torchelastic_launched()):
        return []
    from ..distributed import paths

    with _stdout_is_stderr():
        dist.init_process_group("shm")
        try:
            found: dict[tuple[str, str], list[tuple[int, int]]] = {}
            for path in paths():
                found.setdefault((path.way, path.reason), []).append(path.ranks)
            return None if dist.get_rank() else [Way(way, reason, pairs) for (way, reason), pairs in found.items()]
        finally:
            dist.destroy_process_group()


@contextlib.contextmanager
def _stdout_is_stderr() -> Iterator[None]:
    """Send what C++ prints to stderr: gloo of torch 2.10 says on stdout, before our JSON, how many ranks are connected."""
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)


def gather(ranks: Sequence[Way] = ()) -> Report:
    """Examine this machine without building anything or creating a device context.

    Args:
        ranks: what :func:`ways` found.
    """
    accelerator = get_accelerator()
    cache = open_cache(op_environment.cache_dir())
    toolchains = [
        Toolchain(probe.toolchain, probe.name, probe.tool is not None, probe.detail, probe.fix)
        for probe in survey(cache.root)
    ]
    return Report(
        versions=_versions(),
        devices=_devices(accelerator),
        memory=_memory(accelerator),
        cpu=_cpu(),
        communication_backends=_communication_backends(),
        toolchains=toolchains,
        cache_dir=str(cache.root),
        ops=[_op(name, kernel_kind(accelerator.device_name())) for name in BUILDERS],
        kernels=[kernel for loader in map(loader_class, loader_names()) for kernel in _kernels(loader)],
        ranks=list(ranks),
    )


def _versions() -> dict[str, str]:
    import torch

    found = {
        "anyaccel": metadata.version("anyaccel"),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "platform": f"{sys.platform} {platform.machine()}",
        "cuda (torch built with)": torch.version.cuda or "",
        "rocm (torch built with)": torch.version.hip or "",
        "xpu (torch built with)": getattr(torch.version, "xpu", None) or "",
        "nvidia driver": _nvidia_driver(),
    }
    return {name: version for name, version in found.items() if version}


def _nvidia_driver() -> str:
    from pathlib import Path

    try:
        return Path("/sys/module/nvidia/version").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _devices(accelerator: DeepSpeedAccelerator) -> list[DeviceChoice]:
    requested = accelerator_environment.requested_accelerator()
    devices: list[DeviceChoice] = []
    for candidate in candidates():
        is_open = candidate.is_available and not any(device.chosen for device in devices)
        chosen = is_open and _is_alike(candidate.make(), accelerator)
        reason = candidate.rejection or "available, but an earlier one was chosen"
        if chosen:
            reason = f"DS_ACCELERATOR={requested}" if requested else "the first that is available"
        devices.append(DeviceChoice(candidate.name, candidate.source, chosen, reason))
    if not any(device.chosen for device in devices):
        devices.insert(0, DeviceChoice(accelerator.device_name(), "set_accelerator", True, "set by the program"))
    return devices


def _is_alike(made: DeepSpeedAccelerator, accelerator: DeepSpeedAccelerator) -> bool:
    """Compare classes as well as names: a plug-in's accelerator may serve a device that torch knows, such as the CPU."""
    return type(made) is type(accelerator) and made.device_name() == accelerator.device_name()


def _memory(accelerator: Any) -> dict[str, int]:
    memory = {"host total": host.total_memory_bytes(), "host available": host.available_memory_bytes()}
    if accelerator.device_name() == "cpu" or not accelerator.supports("mem_get_info"):
        return memory
    for index in range(accelerator.device_count()):
        free_bytes, total_bytes = accelerator.mem_get_info(index)
        memory[f"{accelerator.device_name(index)} total"] = total_bytes
        memory[f"{accelerator.device_name(index)} available"] = free_bytes
    return memory


def _cpu() -> dict[str, Any]:
    processor = host.processor()
    return {
        "name": processor.name,
        "architecture": platform.machine(),
        "cores": processor.multi_processor_count,
        "numa_nodes": host.numa_node_count(),
        "isa": [flag for flag in _ISA_FLAGS if flag in cpu_flags()],
    }


def _communication_backends() -> dict[str, bool]:
    import torch.distributed as dist

    if not dist.is_available():
        return {}
    return {
        "gloo": dist.is_gloo_available(),
        "nccl": dist.is_nccl_available(),  # anyaccel: ignore[comm-backend]
        "xccl": getattr(dist, "is_xccl_available", lambda: False)(),
        "mpi": dist.is_mpi_available(),
        "ucc": dist.is_ucc_available(),
    }


def _op(class_name: str, device: str) -> OpState:
    found = builder_class(class_name, device)
    if found is None:
        return OpState("", class_name, "not buildable", f"no implementation for '{device}'")
    builder = found()
    reason = builder.incompatibility()
    if reason:
        return OpState(builder.name, class_name, "not buildable", reason)
    if isinstance(builder, PlainBuilder):
        return OpState(builder.name, class_name, "no build needed", "")
    return OpState(builder.name, class_name, "built" if builder.is_built() else "buildable", "")


def _kernels(loader: type[KernelLoader]) -> list[Kernel]:
    name = loader.__name__.removesuffix("Loader")
    trace = Trace(loader.__name__)
    usable = loader().usable(trace)
    found = [Kernel(name, one.name, one is usable[0], f"priority {one.priority}") for one in usable]
    rejected = [Kernel(name, decision.candidate, False, decision.reason) for decision in trace.decisions]
    found += sorted(rejected, key=lambda one: one.reason)
    return found or [Kernel(name, "", False, "no implementation yet")]
