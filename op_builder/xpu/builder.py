"""The builder for ops with SYCL sources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..builder import OpBuilder
from ..engine import environment
from ..engine.cache import open_cache
from ..engine.errors import OpLoadError
from ..engine.toolchains.sycl import choose_icpx

if TYPE_CHECKING:
    from ..engine.toolchains.cxx import CxxCompiler

__all__ = ["SYCLOpBuilder"]


class SYCLOpBuilder(OpBuilder):
    """Builds ``.cpp`` sources with SYCL kernels that include torch's headers, with icpx, for torch's XPU device.

    Args:
        name: the op's name; ``NAME`` by default.
    """

    def cxx_args(self) -> list[str]:
        """Return icpx's flags."""
        return ["-O3", "-std=c++20", "-fsycl"]

    def extra_ldflags(self) -> list[str]:
        """Return the linker's flags."""
        return ["-fsycl"]

    def require_torch(self) -> None:
        super().require_torch()
        import torch

        if not self.is_sycl_enabled():
            msg = (
                f"loading the op '{self.name}' failed: torch {torch.__version__} was built without XPU. "
                f"Fix: install an XPU build of torch (pip install torch, with the index of its XPU builds)."
            )
            raise OpLoadError(msg)

    def cxx(self) -> CxxCompiler:
        memory = open_cache(environment.cache_dir()).root
        return choose_icpx(environment.search_path(), memory)

    def link_libraries(self) -> tuple[str, ...]:
        return (*super().link_libraries(), "-lc10_xpu", "-ltorch_xpu")

    def builder(self) -> Any:
        """Return a ``SyclExtension``."""
        from torch.utils.cpp_extension import SyclExtension

        self.require_torch()
        arguments = self.extension_arguments()
        arguments["extra_compile_args"]["sycl"] = arguments["extra_compile_args"]["cxx"]
        return SyclExtension(**arguments)
