"""The builder for ops with CUDA sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import torch_libraries
from ..builder import OpBuilder
from ..engine import environment
from ..engine.cache import open_cache
from ..engine.errors import OpLoadError, ToolchainError
from ..engine.native import Compiler
from ..engine.toolchains.nvcc import choose_nvcc
from .architectures import architecture_flags

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..engine.toolchains.cxx import CxxCompiler
    from ..engine.toolchains.nvcc import CudaToolkit

__all__ = ["CUDAOpBuilder"]

_TORCHS = (  # like torch's own extension builder: its headers define these operators themselves
    "-D__CUDA_NO_HALF_OPERATORS__",
    "-D__CUDA_NO_HALF_CONVERSIONS__",
    "-D__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "-D__CUDA_NO_HALF2_OPERATORS__",
    "--expt-relaxed-constexpr",
)


class CUDAOpBuilder(OpBuilder):
    """Builds ``.cpp`` and ``.cu`` sources that include torch's headers, with nvcc, for torch's CUDA device.

    Args:
        name: the op's name; ``NAME`` by default.
    """

    def nvcc_args(self) -> list[str]:
        """Return nvcc's flags."""
        return ["-O3", "-std=c++20", *self.compute_capability_args()]

    def compute_capability_args(self, cross_compile_archs: None = None) -> list[str]:
        """Return nvcc's flags for the architectures in ``TORCH_CUDA_ARCH_LIST``, otherwise for this machine's GPU.

        Args:
            cross_compile_archs: has no effect; deepspeed's method has it.
        """
        return architecture_flags(self.filter_ccs)

    def filter_ccs(self, ccs: Sequence[str]) -> list[list[str]]:
        """Return the architectures to build for, among the requested ones: all of them, unless a subclass drops some.

        Args:
            ccs: the architectures in torch's notation: ``8.0``, ``12.0+PTX``.

        Returns:
            Each architecture, split at its point.
        """
        return [cc.split(".") for cc in ccs]

    def cuda_capability_major(self) -> int | None:
        """Return the first GPU's major compute capability; None before CUDA is used, as the query would initialise it."""
        import torch

        cuda = torch.get_device_module("cuda")
        if not cuda.is_initialized() or cuda._is_in_bad_fork():
            return None
        major: int = cuda.get_device_properties(0).major
        return major

    def require_torch(self) -> None:
        super().require_torch()
        import torch

        if torch.version.cuda is None:
            msg = (
                f"loading the op '{self.name}' failed: torch {torch.__version__} was built without CUDA. "
                f"Fix: install a CUDA build of torch (pip install torch, with the index of its CUDA builds)."
            )
            raise OpLoadError(msg)

    def toolkit(self) -> CudaToolkit:
        """Return the CUDA toolkit.

        Raises:
            ToolchainError: when none is found, or its major version differs from torch's.
        """
        import torch

        memory = open_cache(environment.cache_dir()).root
        toolkit = choose_nvcc(environment.cuda_home(), environment.search_path(), memory, self.cxx().program)
        torchs = torch.version.cuda
        if torchs is not None and int(torchs.split(".")[0]) != toolkit.release[0]:
            msg = (
                f"choosing nvcc failed: got {toolkit.version} at {toolkit.nvcc}; expected {torchs.split('.')[0]}.x, which "
                f"torch {torch.__version__} is built with. Fix: set CUDA_HOME to a toolkit of CUDA {torchs}."
            )
            raise ToolchainError(msg)
        return toolkit

    def compilers(self, cxx: CxxCompiler) -> dict[str, Compiler]:
        compilers = super().compilers(cxx)
        if not any(source.suffix == ".cu" for source in self.source_files()):
            return compilers
        toolkit = self.toolkit()
        host = compilers[".cpp"]
        host = host._replace(system_include_dirs=(*host.system_include_dirs, *toolkit.include_dirs))
        flags = (
            *_TORCHS,
            *torch_libraries.with_standard(self.strip_empty_entries(self.nvcc_args())),
            "-Xcompiler",
            "-fPIC",
            *torch_libraries.macros(self.STABLE_ABI, self.name),
        )
        nvcc = Compiler(
            (str(toolkit.nvcc),),
            f"nvcc {toolkit.version}, {cxx.version}",
            flags,
            host.include_dirs,
            host.system_include_dirs,
            other=("--compiler-bindir", cxx.program),
            identity=toolkit.identity,
        )
        return {**dict.fromkeys(compilers, host), ".cu": nvcc}

    def link_libraries(self) -> tuple[str, ...]:
        import torch

        major = (torch.version.cuda or "13").split(".")[0]
        return (*super().link_libraries(), "-lc10_cuda", "-ltorch_cuda", f"-l:libcudart.so.{major}")

    def link_paths(self) -> tuple[str, ...]:
        return (*super().link_paths(), *(f"-L{folder}" for folder in self.toolkit().library_dirs))

    def builder(self) -> Any:
        """Return a ``CUDAExtension``.

        Raises:
            ToolchainError: when torch's extension builder finds no toolkit: it reads only ``CUDA_HOME``.
        """
        from torch.utils import cpp_extension

        self.require_torch()
        if cpp_extension.CUDA_HOME is None:
            home = self.toolkit().nvcc.parents[1]
            msg = (
                f"making the CUDAExtension of '{self.name}' failed: CUDA_HOME is not set. "
                f"Fix: CUDA_HOME={home} pip install ..."
            )
            raise ToolchainError(msg)
        arguments = self.extension_arguments()
        arguments["extra_compile_args"]["nvcc"] = self.strip_empty_entries(self.nvcc_args())
        return cpp_extension.CUDAExtension(**arguments)
