"""What deepspeed's builders offer to their subclasses, so that one written for it builds here unchanged."""

from __future__ import annotations

import logging
import shutil
from subprocess import SubprocessError
from typing import TYPE_CHECKING

from . import environment
from .engine.cache import open_cache
from .engine.errors import OpError
from .engine.fingerprint import cpu_flags
from .engine.scratch import in_scratch_folder
from .engine.toolchains.cxx import choose_cxx
from .engine.toolchains.probe import run_quietly

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

__all__ = ["DeepSpeedNames"]

_logger = logging.getLogger(__name__)


class DeepSpeedNames:
    """The helpers by their names in deepspeed 0.19.8."""

    name: str

    def warning(self, msg: str) -> None:
        """Log a warning."""
        _logger.warning("the op '%s': %s", self.name, msg)

    def strip_empty_entries(self, args: Iterable[str]) -> list[str]:
        """Return the arguments that are not empty.

        Raises:
            OpError: when they are no list, such as a lone string, whose letters would be taken for arguments.
        """
        if isinstance(args, str) or not hasattr(args, "__iter__"):
            msg = (
                f"reading what the op '{self.name}' declares failed: got {args!r}; expected a list. Fix: return a list."
            )
            raise OpError(msg)
        return [arg for arg in args if arg]

    def command_exists(self, cmd: str | Sequence[str]) -> bool:
        """Return whether one of the commands is found in ``PATH``."""
        names = [cmd] if isinstance(cmd, str) else cmd
        return any(shutil.which(name, path=environment.search_path()) for name in names)

    def cpu_arch(self) -> str:
        """Return the compiler's flag for this machine's CPU."""
        return "-march=native"

    def simd_width(self) -> str:
        """Return the macro by which deepspeed's CPU sources choose their vectors."""
        if "avx512f" in cpu_flags():
            return "-D__AVX512__"
        return "-D__AVX256__" if "avx2" in cpu_flags() else "-D__SCALAR__"

    def version_dependent_macros(self) -> list[str]:
        """Return the macros by which sources tell versions of torch: every one that is left is newer than all of them."""
        return ["-DVERSION_GE_1_1", "-DVERSION_GE_1_3", "-DVERSION_GE_1_5"]

    def is_rocm_pytorch(self) -> bool:
        """Return whether torch is built for ROCm."""
        import torch

        return torch.version.hip is not None

    def is_sycl_enabled(self) -> bool:
        """Return whether torch is built for XPU."""
        import torch

        return getattr(torch.version, "xpu", None) is not None

    def has_function(
        self, funcname: str, libraries: Sequence[str], library_dirs: Sequence[str] | None = None, verbose: bool = False
    ) -> bool:
        """Return whether a C function can be linked.

        Args:
            funcname: the function.
            libraries: the libraries to look in, without ``lib``.
            library_dirs: where they are, besides the compiler's own places.
            verbose: log what the linker says when it cannot.
        """
        memory = open_cache(environment.cache_dir()).root
        compiler = choose_cxx(environment.cxx(), environment.search_path(), memory)
        flags = [f"-L{folder}" for folder in library_dirs or ()] + [f"-l{library}" for library in libraries]

        def link(folder: Path) -> None:
            source = folder / "trial.cpp"
            source.write_text(f'extern "C" void {funcname}();\nint main() {{ {funcname}(); }}\n', encoding="utf-8")
            run_quietly([*compiler.command, str(source), *flags, "-o", str(folder / "trial")], memory, folder)

        try:
            in_scratch_folder(memory, f"trying to link {funcname}", link)
        except (OSError, SubprocessError) as error:
            if verbose:
                self.warning(f"{funcname} cannot be linked: {error}")
            return False
        return True
