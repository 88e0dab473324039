"""The variants of a kernel: what Hugging Face's kernels calls them, and what is built for each."""

from __future__ import annotations

import hashlib
import platform
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from ..ahead_of_time import Order
from ..all_ops import builder_class
from ..cuda.compatibility import release_of
from ..cuda.runtime import CudaRuntimeBuilder
from ..engine.errors import OpError
from ..engine.targets import CPU_TARGETS, SPIRV, is_cuda_target, is_hip_target, require_target, wheel_platform
from ..engine.toolchains.nvrtc import choose_nvrtc
from ..engine.toolchains.sycl import choose_dpcpp
from ..hip.runtime import HipRuntimeBuilder
from ..torch_libraries import OLDEST_TORCH
from ..xpu.runtime import XpuRuntimeBuilder
from .files import copied_files, made_files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..op import Op

__all__ = ["Variant", "variants_of"]

_RUNTIMES = {
    "cuda": CudaRuntimeBuilder,
    "rocm": HipRuntimeBuilder,
    "xpu": XpuRuntimeBuilder,
}  # anyaccel: ignore[device-name]


class Variant(NamedTuple):
    """A variant of a kernel.

    Attributes:
        op: the op.
        backend: the backend's name in the metadata: ``"cpu"``, ``"cuda"``, ``"rocm"`` or ``"xpu"``.
        name: the name of its folder, such as ``"torch-stable-abi210-cpu-x86_64-linux"``.
        namespace: the namespace of its torch ops, which is also the name of its Python module.
        levels: the builds of the op's library, one per CPU level, best first.
        code: the builds of its GPU code, one per GPU target.
        runtime: the build of the library that starts this code; None for the CPU.
    """

    op: Op
    backend: str
    name: str
    namespace: str
    levels: tuple[Order, ...]
    code: tuple[Order, ...] = ()
    runtime: Order | None = None

    def orders(self) -> tuple[Order, ...]:
        """Return all builds that it needs."""
        return (*self.levels, *self.code, *([self.runtime] if self.runtime else []))

    def kernel_name(self) -> str:
        """Return the kernel's name, which is also the name of its folder."""
        return f"anyaccel-{self.op.name.replace('_', '-')}"


def variants_of(op: Op, targets: Sequence[str], rocm: Sequence[str] = ()) -> list[Variant]:
    """Return the variants of an op that contain builds for these targets.

    Args:
        op: the op.
        targets: CPU levels, such as ``x86-64-v3``, for a variant for the CPU; GPUs, for a variant for each vendor's.
            Each variant has the op's library for these CPU levels, or for all of them if there is none.
        rocm: the releases of ROCm, such as ``7.1``, whose torch builds may load AMD's variant: one variant per release.

    Raises:
        OpError: when a target does not exist, is for this machine only, is for AMD's GPUs and no release of ROCm is given, or is
            for Intel's GPUs and ``ANYACCEL_PLATFORM`` for another platform.
        ToolchainError: when the tool for a build is missing.
    """
    if not op.functions:
        msg = (
            f"building a kernel for the Hub failed: the op '{op.name}' has no functions for torch tensors. "
            f"Fix: name another op, or use --all for all that have."
        )
        raise OpError(msg)
    every = list(CPU_TARGETS[_machine()])
    named = list(dict.fromkeys(map(require_target, targets)))
    cuda, hip = [*filter(is_cuda_target, named)], [*filter(is_hip_target, named)]
    cpu = sorted((target for target in named if target in every), key=every.index)
    xpu = [SPIRV] if SPIRV in named else []
    other = [target for target in named if target not in (*cuda, *hip, *xpu, *cpu)]
    if other or not named:
        msg = (
            f"building a kernel for the Hub failed: got the targets {', '.join(named)}; expected CPU levels and GPUs, "
            f"and nothing for this machine only. Fix: use --target with {', '.join(every)}, or a GPU."
        )
        raise OpError(msg)
    if rocm and not hip:
        msg = (
            f"building a kernel for the Hub failed: got {', '.join(rocm)} as releases of ROCm, and the targets "
            f"{', '.join(named)}; expected one of AMD's GPUs, too. Fix: add --target gfx942, or leave out --rocm."
        )
        raise OpError(msg)
    found = [_variant(op, "cpu", "cpu", cpu, [])] if cpu else []
    if cuda and op.kernels:
        found.append(_variant(op, "cuda", _cuda_release(), cpu or every, cuda))  # anyaccel: ignore[device-name]
    if hip and op.kernels:
        found += [_variant(op, "rocm", f"rocm{release}", cpu or every, hip) for release in _rocm_releases(rocm)]
    if xpu and op.kernels:
        found.append(_variant(op, "xpu", _xpu_release(), cpu or every, xpu))
    return found


def _variant(op: Op, backend: str, release: str, levels: Sequence[str], gpus: Sequence[str]) -> Variant:
    builder: Any = builder_class(op.builder, "cpu")
    code = tuple(Order(op.name, target, recipe) for target in gpus for recipe in builder().recipes(target))
    files = sorted((copied_files(op, backend) | made_files(op)).items())
    inputs = [release, *(builder().recipe_for(level).fingerprint() for level in levels)]
    inputs += [order.recipe.fingerprint() for order in code] + [f"{name}\n{text}" for name, text in files]
    runtime = None
    if code:
        library = _RUNTIMES[backend]
        runtime = Order(library.NAME, levels[-1], library().recipe_for(levels[-1]))
        inputs.append(runtime.recipe.fingerprint())
    namespace = f"_{op.name}_{hashlib.sha256(chr(0).join(inputs).encode()).hexdigest()[:12]}"
    own = builder(namespace=namespace)
    libraries = tuple(Order(op.name, level, own.recipe_for(level)) for level in levels)
    abi = "".join(map(str, OLDEST_TORCH))
    name = f"torch-stable-abi{abi}-{release}-{_machine()}-linux"
    return Variant(op, backend, name, namespace, libraries, code, runtime)


def _cuda_release() -> str:
    """Return the oldest release of CUDA of NVRTC's generation, as Hugging Face's kernels writes it.

    A driver accepts machine code of its own generation, and kernels accepts a variant for an older release of torch's generation.
    """
    return f"cu{release_of(choose_nvrtc().version)[0]}0"


def _xpu_release() -> str:
    """Return the release of DPC++ as Hugging Face's kernels writes it: ``xpu20262`` for ``2026.2.0``."""
    if wheel_platform() is not None:
        msg = (
            "building a kernel for the Hub failed: got ANYACCEL_PLATFORM and Intel's GPUs; the library that starts their kernels "
            "uses this machine's C++ library. Fix: unset ANYACCEL_PLATFORM, or leave out --target spir64."
        )
        raise OpError(msg)
    return "xpu" + "".join(choose_dpcpp().version.split(".")[:2])


def _rocm_releases(rocm: Sequence[str]) -> list[str]:
    """Return the releases as Hugging Face's kernels writes them: ``71`` for ``7.1``."""
    wrong = [release for release in rocm if not re.fullmatch(r"\d+\.\d+", release)]
    if wrong or not rocm:
        msg = (
            f"building a kernel for the Hub failed: got {', '.join(wrong) or 'none'} as releases of ROCm; expected one or more "
            f"such as 7.1, as kernels loads a variant for torch's own release only. Fix: use --rocm 7.1."
        )
        raise OpError(msg)
    return [release.replace(".", "") for release in dict.fromkeys(rocm)]


def _machine() -> str:
    chosen = wheel_platform()
    return chosen.machine if chosen else platform.machine()
