"""What turns a builder's name into a loaded op.

Method names are deepspeed's, so that code which drives its builders drives these. A builder of this project declares a name
and sources in a few lines; see ``op_builder/cpu``.
"""

from __future__ import annotations

import abc
import logging
import threading
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from . import environment
from .engine.build import Recipe, ensure_built, find_built
from .engine.cache import open_cache
from .engine.errors import OpError, OpLoadError
from .engine.fingerprint import host_isa
from .engine.ninja_file import SharedLibrary
from .engine.toolchains import choose_cxx

if TYPE_CHECKING:
    from .engine.cache import Entry
    from .engine.toolchains import CxxCompiler

__all__ = ["CPUOpBuilder", "OpBuilder"]

CSRC = Path(__file__).resolve().parents[1] / "csrc"
"""The C++ sources, beside this package in a checkout and inside it in a wheel."""

STABLE_ABI = (2, 10)
"""The oldest torch that built ops run on; one binary serves it and every later one."""

_TARGET = (STABLE_ABI[0] << 56) | (STABLE_ABI[1] << 48)
_logger = logging.getLogger(__name__)
_loading = threading.RLock()
_loaded: dict[str, Any] = {}  # a process keeps the first build: a second one would define the op again


class OpBuilder(abc.ABC):
    """Builds and loads one op.

    Attributes:
        NAME: the op's name, as in ``anyaccel report``.
        SOURCES: its source files, relative to ``csrc``.
    """

    NAME: str
    SOURCES: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The op's name."""
        return self.NAME

    def absolute_name(self) -> str:
        """Return the name under which a prebuilt op is found."""
        return f"anyaccel._C.{self.NAME}"

    def sources(self) -> list[str]:
        """Return the source files, relative to ``csrc`` or absolute."""
        return list(self.SOURCES)

    def include_paths(self) -> list[str]:
        """Return the project's include directories, relative to ``csrc`` or absolute."""
        return ["includes", "stable"]

    def cxx_args(self) -> list[str]:
        """Return the compiler's flags."""
        return []

    def extra_ldflags(self) -> list[str]:
        """Return the linker's flags."""
        return []

    def is_compatible(self, verbose: bool = False) -> bool:
        """Return whether :meth:`load` can succeed here.

        Args:
            verbose: log the reason when it cannot.
        """
        reason = self.incompatibility()
        if reason and verbose:
            _logger.warning("the op '%s' cannot be loaded: %s", self.NAME, reason)
        return not reason

    def incompatibility(self) -> str:
        """Return why :meth:`load` cannot succeed here; empty when it can. Builds nothing."""
        try:
            self.is_built()
        except OpError as error:
            return str(error)
        return _too_old_torch()

    def is_built(self) -> bool:
        """Return whether a finished build is in the cache."""
        return find_built(self.recipe, open_cache(environment.cache_dir())) is not None

    def build(self) -> Entry:
        """Build the op where it is not in the cache, and return its entry.

        Raises:
            ToolchainError: when no compiler is found.
            BuildError: when the compiler fails.
        """
        return ensure_built(self.recipe, open_cache(environment.cache_dir()), environment.build_jobs())

    def load(self, verbose: bool = False) -> Any:
        """Build the op where needed, load it, and return its functions.

        Args:
            verbose: accepted for deepspeed's sake; the log tells the same at its levels.

        Returns:
            An object with the op's functions; the same one on every call in a process.

        Raises:
            OpLoadError: when torch is too old, or the finished binary cannot be loaded.
            ToolchainError: when no compiler is found.
            BuildError: when the compiler fails.
        """
        return self.jit_load(verbose)

    def jit_load(self, verbose: bool = False) -> Any:
        """Build the op on this machine where needed, and load it; as :meth:`load`, but never a prebuilt one."""
        too_old = _too_old_torch()
        if too_old:
            msg = f"loading the op '{self.NAME}' failed: {too_old}. Fix: upgrade torch."
            raise OpLoadError(msg)
        with _loading:
            if self.NAME not in _loaded:
                self._load_library(self.build().binary)
                _loaded[self.NAME] = self.functions()
            return _loaded[self.NAME]

    def _load_library(self, binary: Path) -> None:
        import torch

        try:
            torch.ops.load_library(str(binary))
        except OSError as error:
            msg = (
                f"loading the op '{self.NAME}' failed: got {error}; expected {binary} to load. Fix: delete its folder."
            )
            raise OpLoadError(msg) from error

    @abc.abstractmethod
    def functions(self) -> Any:
        """Return the object whose attributes are the op's functions; called once its library is loaded."""

    @property
    @abc.abstractmethod
    def recipe(self) -> Recipe:
        """Everything that decides the binary."""


def _too_old_torch() -> str:
    import torch

    if Version(torch.__version__).release[:2] >= STABLE_ABI:
        return ""
    return f"got torch {torch.__version__}; expected {'.'.join(map(str, STABLE_ABI))} or newer"


class CPUOpBuilder(OpBuilder):
    """Builds C++ for the CPU it runs on, against torch's stable ABI."""

    def cxx_args(self) -> list[str]:
        """Return flags for the fastest code that keeps IEEE results: no trap and no errno, hence vector square roots."""
        return ["-O3", "-std=c++20", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-Wall", "-Wextra"]

    @cached_property
    def recipe(self) -> Recipe:
        import torch

        compiler = self._compiler()
        torch_root = Path(torch.__file__).parent
        include_dirs = tuple(CSRC / path for path in self.include_paths())
        library = SharedLibrary(
            compiler=compiler.command,
            sources=tuple(CSRC / path for path in self.sources()),
            compile_flags=(*self.cxx_args(), "-fPIC", "-fvisibility=hidden", f"-DTORCH_TARGET_VERSION={_TARGET:#018x}"),
            link_flags=("-Wl,-z,defs", "-ltorch_cpu", *self.extra_ldflags()),
            compile_paths=(*(f"-I{folder}" for folder in include_dirs), f"-isystem{torch_root / 'include'}"),
            link_paths=(f"-L{torch_root / 'lib'}",),
            name=f"{self.NAME}.so",
        )
        facts = {"compiler_version": compiler.version, "target": host_isa(), "abi": f"torch {STABLE_ABI}"}
        return Recipe(self.NAME, library, include_dirs, facts)

    def _compiler(self) -> CxxCompiler:
        cache = open_cache(environment.cache_dir())
        return choose_cxx(environment.cxx(), environment.search_path(), cache.root)
