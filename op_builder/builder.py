"""What turns a builder's name into a loaded op.

Method names are deepspeed's, so that code which drives its builders drives these, and a builder written for it builds here
unchanged. An op of this project declares a name and sources in a few lines; see ``op_builder/cpu``.
"""

from __future__ import annotations

import abc
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import environment, loading, torch_libraries
from .declaration import OpDeclaration
from .engine.build import ensure_built, find_built
from .engine.cache import open_cache
from .engine.errors import OpError, OpLoadError, ToolchainError
from .engine.native import NativeRecipe
from .engine.toolchains.cxx import choose_cxx
from .engine.trace import Trace
from .targets import NATIVE, host_cpu_targets, is_cuda_target, march

if TYPE_CHECKING:
    from .engine.build import Recipe
    from .engine.cache import Cache
    from .engine.entry import Entry
    from .engine.native import Compiler
    from .engine.toolchains.cxx import CxxCompiler

__all__ = ["OpBuilder"]

_logger = logging.getLogger(__name__)


class OpBuilder(OpDeclaration, abc.ABC):
    """Builds and loads the op that a subclass declares; see :class:`OpDeclaration` for what there is to declare."""

    _recipe: NativeRecipe | None = None

    def is_compatible(self, verbose: bool = False) -> bool:
        """Return whether :meth:`load` can succeed here.

        Args:
            verbose: log the reason when it cannot.
        """
        reason = self.incompatibility()
        if reason and verbose:
            _logger.warning("the op '%s' cannot be loaded: %s", self.name, reason)
        return not reason

    def incompatibility(self) -> str:
        """Return why :meth:`load` cannot succeed here; empty when it can. Builds nothing."""
        try:
            self.require_torch()
            if self.prebuilt(Trace(f"the op '{self.name}'")) is None and self.find_built() is None:
                environment.build_jobs()
                environment.build_timeout()
        except (OpError, OSError) as error:
            return str(error)
        return ""

    def require_torch(self) -> None:
        """Check that this torch can run the op.

        Raises:
            OpLoadError: when it cannot, or has loaded other torch ops of this name.
        """
        too_old = torch_libraries.too_old_for_stable_abi() if self.STABLE_ABI else ""
        if too_old:
            msg = f"loading the op '{self.name}' failed: {too_old}. Fix: upgrade torch."
            raise OpLoadError(msg)
        if self.STABLE_ABI:
            loading.require_own_library(self.name, type(self))

    def prebuilt(self, trace: Trace) -> Any:
        """Return what was built ahead of time and serves here, or None; the trace says why not."""
        return loading.importable(self.absolute_name(), trace) if not self.STABLE_ABI else None

    def is_built(self) -> bool:
        """Return whether a finished build is in the cache."""
        return self.find_built() is not None

    def find_built(self) -> Entry | None:
        """Return the finished build in the cache that :meth:`load` would take, or None; starts no compiler.

        Raises:
            ToolchainError: when there is none and no compiler to make it.
        """
        cache = open_cache(environment.cache_dir())
        try:
            return find_built(self.recipe, cache) or self._find_portable(cache)
        except ToolchainError:
            known = self.recipe_for(NATIVE, any_compiler=True)
            entry = self._find_portable(cache) or cache.find_key(self.name, known.key(), known.places())
            if entry is None:
                raise
            return entry

    def _find_portable(self, cache: Cache) -> Entry | None:
        """Return a build for a CPU level that this machine has, made ahead of time, perhaps on another one."""
        targets = host_cpu_targets() if self.STABLE_ABI else []
        recipes = (self.recipe_for(target, any_compiler=True) for target in targets)
        return next((entry for one in recipes if (entry := cache.find(self.name, one.key(), one.places()))), None)

    def build(self, target: str = NATIVE) -> Entry:
        """Build the op where it is not in the cache, and return its entry.

        Args:
            target: the CPU to build for, such as ``x86-64-v3``.

        Raises:
            ToolchainError: when no compiler is found.
            BuildError: when the compiler fails.
        """
        recipe = self.recipe if target == NATIVE else self.recipe_for(target)
        return ensure_built(recipe, open_cache(environment.cache_dir()), environment.build_jobs())

    def load(self, verbose: bool = False) -> Any:
        """Load the op, prebuilt or built where needed, and return its functions.

        Args:
            verbose: accepted for deepspeed's sake; the log tells the same at its levels.

        Returns:
            An object with the op's functions; the same one on every call in a process.

        Raises:
            OpLoadError: when torch is too old, or the finished binary cannot be loaded, or the process has loaded another
                build of the op, which it cannot let go of.
            ToolchainError: when no compiler is found.
            BuildError: when the compiler fails.
        """
        self.require_torch()
        with loading.once(type(self), self.name) as kept:
            if kept.functions is None:
                found = self.prebuilt(Trace(f"the op '{self.name}'"))
                if found is None:
                    return self.jit_load(verbose)
                kept.owner = type(self)
                kept.functions = self._load_library(found) if self.STABLE_ABI else found
            if kept.binary is None:
                return kept.functions
            return self.jit_load(verbose)

    def jit_load(self, verbose: bool = True) -> Any:
        """Build the op on this machine where needed, and load it; as :meth:`load`, but never a prebuilt one."""
        self.require_torch()
        with loading.once(type(self), self.name) as kept:
            if self.STABLE_ABI and kept.functions is not None:
                if kept.owner is not type(self) and kept.binary is not None:
                    loading.require_same_build(self.name, kept.binary, self.find_built())
                return kept.functions  # a second build would define the same torch ops again
            binary = self._binary()  # edited sources give another file, and so another module
            if kept.binary not in (None, binary) and self.namespaces():
                loading.require_same_build(self.name, kept.binary, self.find_built())
            if kept.binary != binary:
                kept.functions = (
                    self._load_library(binary) if self.STABLE_ABI else loading.load_python_module(self.name, binary)
                )
                kept.owner, kept.binary = type(self), binary
            return kept.functions

    def _load_library(self, binary: Path) -> Any:
        loading.load_torch_library(self.name, type(self), binary, self.namespaces())
        return self.functions()

    def _binary(self) -> Path:
        return (self.find_built() or self.build()).binary

    def namespaces(self) -> list[str]:
        """Return the namespaces of torch ops that the sources claim for themselves alone."""
        return loading.claimed_namespaces(self.source_files())

    def functions(self) -> Any:
        """Return the object whose attributes are the op's functions; called once its library is loaded.

        Raises:
            OpLoadError: when the library registers none under the op's name.
        """
        return loading.torch_functions(self.name)

    def builder(self) -> Any:
        """Return the extension to give to setuptools, to build the op ahead of time in a package of one's own.

        Returns:
            A ``CppExtension``, or for the other devices a ``CUDAExtension`` or ``SyclExtension``.
        """
        from torch.utils.cpp_extension import CppExtension

        return CppExtension(**self.extension_arguments())

    def extension_arguments(self) -> dict[str, Any]:
        """Return the arguments that setuptools' extensions of all devices share."""
        flags = self.strip_empty_entries(self.cxx_args())
        if self.STABLE_ABI:  # for the others, torch's BuildExtension defines its own
            flags += torch_libraries.macros(self.STABLE_ABI, self.name)
        return {
            "name": self.absolute_name(),
            "sources": [_seen_from_here(path) for path in self.source_files()],
            "include_dirs": [str(path) for path in self.include_dirs()],
            "libraries": self.strip_empty_entries(self.libraries_args()),
            "extra_compile_args": {"cxx": flags},
            "extra_link_args": self.strip_empty_entries(self.extra_ldflags()),
        }

    @property
    def recipe(self) -> NativeRecipe:
        """Everything that decides the binary for this machine."""
        if (
            self._recipe is None
        ):  # functools.cached_property has a lock before Python 3.12, which a forked child never gets
            self._recipe = self.recipe_for(NATIVE)
        return self._recipe

    def recipe_for(self, target: str, *, any_compiler: bool = False) -> NativeRecipe:
        """Return everything that decides the binary for a target.

        Args:
            target: a CPU, such as ``x86-64-v3``.
            any_compiler: look for no compiler: the recipe then only names its result.
        """
        cxx = torch_libraries.UNKNOWN_COMPILER if any_compiler else self.cxx()
        compilers = self.compilers(cxx)
        if target != NATIVE:
            compilers = {suffix: torch_libraries.retargeted(one, march(target)) for suffix, one in compilers.items()}
        return NativeRecipe(
            op=self.name,
            sources=tuple(self.source_files()),
            compilers=compilers,
            linker=cxx.command,
            link_flags=(
                *self.link_libraries(),
                *(f"-l{name}" for name in self.strip_empty_entries(self.libraries_args())),
                *self.strip_empty_entries(self.extra_ldflags()),
            ),
            link_paths=self.link_paths(),
            include_dirs=next(iter(compilers.values())).include_dirs,
            facts=torch_libraries.facts(self.STABLE_ABI, target),
            output="op.so",
            is_portable=target != NATIVE,
            note=torch_libraries.note(open_cache(environment.cache_dir()).root) if cxx.is_zig else "",
        )

    def recipes(self, target: str) -> list[Recipe]:
        """Return what there is to build ahead of time for a target; nothing where the op has no code for it.

        Raises:
            ToolchainError: when there is no tool to build it with.
        """
        return [] if is_cuda_target(target) else [self.recipe_for(target)]

    def cxx(self) -> CxxCompiler:
        """Return the C++ compiler.

        Raises:
            ToolchainError: when none is found, or the op is a Python module and Python's headers are missing.
        """
        missing = "" if self.STABLE_ABI else torch_libraries.missing_python_headers()
        if missing:
            msg = f"building the op '{self.name}' failed: got {missing}; expected it. Fix: apt-get install python3-dev"
            raise ToolchainError(msg)
        memory = open_cache(environment.cache_dir()).root
        return choose_cxx(environment.cxx(), environment.search_path(), memory, for_torch_headers=not self.STABLE_ABI)

    def compilers(self, cxx: CxxCompiler) -> dict[str, Compiler]:
        """Return the compiler for each kind of source."""
        flags = (
            *torch_libraries.with_standard(self.strip_empty_entries(self.cxx_args())),
            "-fPIC",
            *torch_libraries.macros(self.STABLE_ABI, self.name),
        )
        if self.STABLE_ABI:
            flags = (*flags, "-fvisibility=hidden")
        compiler = torch_libraries.cxx_compiler(cxx, flags, self.include_dirs(), self.STABLE_ABI)
        return dict.fromkeys((".cpp", ".cc", ".cxx", ".c"), compiler)

    def link_libraries(self) -> tuple[str, ...]:
        """Return the flags for torch's libraries."""
        return torch_libraries.link_flags(self.STABLE_ABI)

    def link_paths(self) -> tuple[str, ...]:
        """Return the flags that say where torch's libraries lie."""
        return torch_libraries.link_paths()


def _seen_from_here(source: Path) -> str:
    """Return a source as setuptools wants it: relative to the directory of ``setup.py``, where it lies below."""
    here = Path.cwd().resolve()
    return source.relative_to(here).as_posix() if source.is_relative_to(here) else str(source)
