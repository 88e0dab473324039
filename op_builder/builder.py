"""The base class of op builders: a subclass declares an op, and the base builds and loads it.

Method names are deepspeed's, so code that uses deepspeed's builders works with these, and deepspeed builders build here.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from . import loading, torch_libraries
from .engine import environment
from .engine.cache import open_cache
from .engine.directory import is_trusted_like
from .engine.errors import OpError, OpLoadError, ToolchainError
from .engine.fingerprint import cpu_flags
from .engine.native import NativeRecipe
from .engine.native_facts import deciding_variables
from .engine.targets import NATIVE, host_cpu_targets, is_device_target, is_of_platform_here, wheel_platform
from .engine.toolchains.cxx import choose_cxx, zig_for
from .engine.trace import Trace
from .namespaces import claimed_namespaces

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from .engine.build import Recipe
    from .engine.cache import Cache
    from .engine.entry import Entry
    from .engine.native import Compiler
    from .engine.targets import Platform
    from .engine.toolchains.cxx import CxxCompiler

__all__ = ["CPU_FLAGS", "CPUOpBuilder", "OpBuilder"]

_logger = logging.getLogger(__name__)


CPU_FLAGS = ("-O3", "-std=c++20", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-Wall", "-Wextra")
"""For the fastest code with IEEE results: without traps and errno, square roots can be vectorised."""


def _asked_for_later(name: str) -> Callable[..., Any]:
    """Return a function of ``deepspeed/versions.py`` that imports the module when called."""

    def call(*arguments: Any) -> Any:
        from .deepspeed import versions

        return getattr(versions, name)(*arguments)

    call.__name__ = name
    call.__doc__ = f"See ``{name}`` of ``op_builder/deepspeed/versions.py``."
    return call


class OpBuilder:
    """Builds and loads the op that a subclass declares with a name, sources and flags.

    Args:
        name: the op's name; ``NAME`` by default.

    Attributes:
        NAME: the op's name, as in ``anyaccel report``.
        BUILD_VAR: the variable that selects the op for an ahead-of-time build; ``DS_BUILD_<NAME>`` by default.
        SOURCES: its source files; relative paths are searched for in the folder of the builder's file, then up to two folders up.
        STABLE_ABI: True when the sources register torch ops and include only ``torch/csrc/stable`` and
            ``torch/headeronly`` of torch: one binary then serves every Python and torch. Otherwise sources are a Python module
            (``PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)``) and may include ``torch/extension.h``.
    """

    NAME: str = ""
    BUILD_VAR: str = ""
    SOURCES: tuple[str, ...] = ()
    STABLE_ABI: ClassVar[bool] = False

    def __init__(self, name: str | None = None) -> None:
        self.name = name or self.NAME
        if not (self.name.isascii() and self.name.isidentifier()):
            msg = (
                f"making a {type(self).__name__} failed: got the name {self.name!r}; expected a valid C++ name of "
                f"ASCII letters, digits and underscores. Fix: set NAME, or pass name."
            )
            raise OpError(msg)

    def build_var(self) -> str:
        """Return the environment variable that selects the op for an ahead-of-time build."""
        return self.BUILD_VAR or f"DS_BUILD_{(self.NAME or self.name).upper()}"

    def absolute_name(self) -> str:
        """Return the name of the module in which a prebuilt op is installed."""
        return self.name

    def sources(self) -> list[str]:
        """Return the source files."""
        return self.strip_empty_entries(self.SOURCES)

    def include_paths(self) -> list[str]:
        """Return the op's own include directories, absolute or relative to the builder's file."""
        return []

    def cxx_args(self) -> list[str]:
        """Return the C++ compiler's flags."""
        return ["-O3", "-std=c++20"]

    def nvcc_args(self) -> list[str]:
        """Return nvcc's flags."""
        return []

    def extra_ldflags(self) -> list[str]:
        """Return the linker's flags."""
        return []

    def libraries_args(self) -> list[str]:
        """Return the libraries to link, without ``lib``."""
        return []

    def source_root(self) -> Path:
        """Return the directory that relative paths start from."""
        return loading.folder_of(type(self))

    def source_files(self) -> list[Path]:
        """Return the source files as absolute paths.

        Raises:
            OpError: when a source does not exist.
        """
        return [self._located(str(path), "source") for path in self.strip_empty_entries(self.sources())]

    def include_dirs(self) -> list[Path]:
        """Return the op's own include directories that exist, as absolute paths; log a warning for each missing one."""
        found = []
        for path in self.strip_empty_entries(self.include_paths()):
            try:
                found.append(self._located(str(path), "include directory"))
            except OpError as error:  # compilers ignore a missing directory, and deepspeed declares some
                self.warning(f"{error} The directory is left out.")
        return found

    def _located(self, path: str, what: str) -> Path:
        root = str(self.source_root())
        above = os.path.dirname(root)
        places = [os.path.join(folder, path) for folder in (root, above, os.path.dirname(above), os.curdir)]
        is_there = os.path.isfile if what == "source" else os.path.isdir
        for place in places:
            if is_there(place) and (place == places[0] or is_trusted_like(place, root)):
                return self._without_newline(Path(os.path.abspath(place)))  # keep links: resolved where that matters
        tried = ", ".join(dict.fromkeys(map(os.path.abspath, places)))
        method = "sources()" if what == "source" else "include_paths()"
        is_absolute = os.path.isabs(path)
        expected = f"a {'file' if what == 'source' else 'directory'} there" if is_absolute else f"one of {tried}"
        fix = f"correct the path that {method} returns" if is_absolute else f"return an absolute path from {method}"
        msg = f"finding a {what} of the op '{self.name}' failed: got {path!r}; expected {expected}. Fix: {fix}."
        raise OpError(msg)

    def _without_newline(self, path: Path) -> Path:
        if "\n" not in str(path):
            return path
        msg = (
            f"building the op '{self.name}' failed: got the path {str(path)!r}, with a newline; expected one that a compiler can "
            f"list. Fix: rename that folder or file."
        )
        raise OpError(msg)

    # Loading

    _recipe: NativeRecipe | None = None

    def is_compatible(self, verbose: bool = False) -> bool:
        """Return whether :meth:`load` can succeed here.

        Args:
            verbose: log the reason when it cannot be loaded.
        """
        reason = self.incompatibility()
        if reason and verbose:
            _logger.warning("the op '%s' cannot be loaded: %s", self.name, reason)
        return not reason

    def incompatibility(self) -> str:
        """Return why :meth:`load` cannot succeed here; empty when it can. Builds nothing."""
        try:
            self.require_torch()
            if not self.is_built():
                environment.build_jobs()
                environment.build_timeout()
        except (OpError, OSError) as error:
            return str(error)
        return ""

    def require_torch(self) -> None:
        """Check that this torch can run the op.

        Raises:
            OpLoadError: when it cannot, or the process has loaded other torch ops of this name.
        """
        too_old = torch_libraries.too_old_for_stable_abi() if self.STABLE_ABI else ""
        if too_old:
            msg = f"loading the op '{self.name}' failed: {too_old}. Fix: pip install --upgrade torch."
            raise OpLoadError(msg)
        if self.STABLE_ABI:
            loading.require_own_library(self.name, type(self))

    def prebuilt(self, trace: Trace) -> Any:
        """Return a prebuilt op that serves here, a module or a library to load, or None; the trace records why not."""
        return loading.importable(self.absolute_name(), trace) if not self.STABLE_ABI else None

    def is_built(self) -> bool:
        """Return whether :meth:`load` finds a finished build, prebuilt or in the cache."""
        return self.prebuilt(Trace(f"the op '{self.name}'")) is not None or self.find_built() is not None

    def find_built(self) -> Entry | None:
        """Return the build in the cache that :meth:`load` would use, or None; starts no compiler.

        Raises:
            ToolchainError: when there is no build and no compiler.
        """
        cache = open_cache(environment.cache_dir())
        try:
            found = cache.find(self.name, self.recipe.fingerprint(), self.recipe.places())
            return found or self._find_portable(cache)
        except ToolchainError:
            entry = self._find_portable(cache)
            for target in (NATIVE, *self.levels()) if entry is None else ():
                known = self.recipe_for(target, any_compiler=True)
                entry = entry or cache.find_key(
                    self.name, known.key(), known.places(), known.facts.get("environment", {})
                )
            if entry is None:
                raise
            return entry

    def levels(self) -> list[str]:
        """Return the CPU levels, best first, for which a build serves this machine, wherever it was made."""
        return host_cpu_targets() if self.STABLE_ABI else []

    def _find_portable(self, cache: Cache) -> Entry | None:
        """Return a build made ahead of time, perhaps on another machine, for a CPU level that this machine has."""
        recipes = [self.recipe_for(target, any_compiler=True) for target in self.levels()]
        for recipe in recipes:
            names = dict.fromkeys((recipe.fingerprint(), recipe.key()))  # built with the same variables, or with none
            found = next((entry for name in names if (entry := cache.find(self.name, name, recipe.places()))), None)
            if found is not None:
                return found
        every = [one for one in cache.entries() if one.op == self.name]  # a platform's is part of their names
        served = [one for one in every if is_of_platform_here(one.facts.get("command", ()))]
        for recipe in recipes:
            given = deciding_variables(recipe.facts)  # built with the same variables, or with none
            same = [
                one for one in served
                if one.facts.get("key") == recipe.key() and deciding_variables(one.facts) in ({}, given)
            ]  # fmt: skip
            fitting = (one for one in same if not one.inputs.changed(recipe.places(), may_be_gone=True))
            if (entry := next(filter(cache.is_intact, fitting), None)) is not None:
                return entry
        return None

    def build(self, target: str = NATIVE) -> Entry:
        """Build the op unless the cache has it.

        Args:
            target: the CPU to build for, such as ``x86-64-v3``; this machine's by default.

        Returns:
            The entry in the cache, with the path of the library.

        Raises:
            ToolchainError: when no compiler is found.
            BuildError: when the compiler fails.
        """
        from .engine.build import ensure_built

        recipe = self.recipe if target == NATIVE else self.recipe_for(target)
        return ensure_built(recipe, open_cache(environment.cache_dir()), environment.build_jobs())

    def load(self, verbose: bool = False) -> Any:
        """Load the op, prebuilt or built if needed, and return its functions.

        Args:
            verbose: ignored: use log levels instead.

        Returns:
            An object with the op's functions; the same object on every call in a process.

        Raises:
            OpLoadError: when torch is too old, or loading the binary fails, or the process has already loaded another
                build of the op, which cannot be unloaded.
            ToolchainError: when no compiler is found.
            BuildError: when the compiler fails.
        """
        self.require_torch()
        with loading.once(type(self), self.name) as loaded:
            if loaded is not None and loaded.is_prebuilt:
                return loaded.functions
            found = self.prebuilt(Trace(f"the op '{self.name}'")) if loaded is None else None
            if found is None:
                return self.jit_load(verbose)
            functions = self.load_binary(found) if isinstance(found, Path) else found
            binary = found if isinstance(found, Path) else Path(found.__file__)
            return loading.keep(loading.Loaded(self.name, type(self), binary, (), True, functions))

    def jit_load(self, verbose: bool = True) -> Any:
        """Build the op on this machine if needed, and load it, like :meth:`load` but ignoring prebuilt ops.

        Args:
            verbose: has no effect; deepspeed's method has it.

        Returns:
            The op's functions, as :meth:`load` returns them.

        Raises:
            OpError: like :meth:`load`.
        """
        self.require_torch()
        with loading.once(type(self), self.name) as loaded:
            if loaded is not None and self.STABLE_ABI:  # a second build would define the same torch ops again
                is_other = loaded.owner is not type(self) or loaded.asked != self._asked()
                if is_other and not loaded.is_prebuilt:
                    loading.require_same_build(self.name, loaded.binary, self._found_binary())
                return loaded.functions
            binary = (
                self._found_binary() or self.build().binary
            )  # edited sources give another file, and so another module
            if loaded is not None and loaded.binary == binary:
                return loaded.functions
            if loaded is not None and not loaded.is_prebuilt and self.namespaces():
                loading.require_same_build(self.name, loaded.binary, self._found_binary())
            functions = loading.functions_of(binary)
            if functions is None:
                binary, functions = self._loaded_from(binary)
            claimed = () if self.STABLE_ABI else self.namespaces()  # those of a library are kept with it
            kept = loading.Loaded(self.name, type(self), binary, claimed, functions=functions, asked=self._asked())
            return loading.keep(kept)

    def _loaded_from(self, binary: Path) -> tuple[Path, Any]:
        """Load a binary, and return it and its functions; build it again if somebody has cleared the cache meanwhile."""
        try:
            return binary, self.load_binary(binary)
        except OpLoadError:
            if binary.exists():
                raise
        binary = self.build().binary
        return binary, self.load_binary(binary)

    def _asked(self) -> tuple[Any, ...]:
        """Return what this builder asks for; another builder of its class may ask for something else."""
        files = (self.sources(), self.include_paths())
        has_cuda = any(
            os.fspath(source).endswith(".cu") for source in self.sources()
        )  # else nothing else asks for nvcc's flags
        nvcc_args = self.nvcc_args() if has_cuda else []
        flags = (self.cxx_args(), nvcc_args, self.extra_ldflags(), self.libraries_args())
        return (*map(self.strip_empty_entries, (*files, *flags)), self.source_root())

    def load_binary(self, binary: Path) -> Any:
        """Load a finished build, and return its functions."""
        if self.STABLE_ABI:
            return self._load_library(binary)
        loading.require_unclaimed(self.name, self.namespaces())
        return loading.load_python_module(self.name, binary)

    def _load_library(self, binary: Path) -> Any:
        loading.load_torch_library(self.name, type(self), binary, self.namespaces())
        return self.functions()

    def _found_binary(self) -> Path | None:
        found = self.find_built()
        return None if found is None else found.binary

    def namespaces(self) -> list[str]:
        """Return the torch op namespaces that only these sources may define."""
        flags = [*self.strip_empty_entries(self.cxx_args()), f"-DTORCH_EXTENSION_NAME={self.name}"]
        return claimed_namespaces(self.source_files(), self.include_dirs(), flags)

    def functions(self) -> Any:
        """Return the object whose attributes are the op's functions; called after its library is loaded.

        Raises:
            OpLoadError: when the library registers no functions under the op's name.
        """
        return loading.torch_functions(self.name)

    def builder(self) -> Any:
        """Return a setuptools extension, to build the op ahead of time in your own package.

        Returns:
            A ``CppExtension``, or a ``CUDAExtension`` or ``SyclExtension`` for those devices.
        """
        from torch.utils.cpp_extension import CppExtension

        return CppExtension(**self.extension_arguments())

    def extension_arguments(self) -> dict[str, Any]:
        """Return the arguments that are common to the setuptools extensions of all devices."""
        flags = self.strip_empty_entries(self.cxx_args())
        if self.STABLE_ABI:  # otherwise torch's BuildExtension defines its own
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
        """The recipe that decides the binary for this machine."""
        if (
            self._recipe is None
        ):  # before Python 3.12, functools.cached_property has a lock that a forked child never gets
            self._recipe = self.recipe_for(NATIVE)
        return self._recipe

    def recipe_for(self, target: str, *, any_compiler: bool = False) -> NativeRecipe:
        """Return the recipe that decides the binary for a target.

        Args:
            target: a CPU, such as ``x86-64-v3``.
            any_compiler: do not search for a compiler; the recipe then only names its result.
        """
        platform = None if target == NATIVE or any_compiler else wheel_platform()
        root = open_cache(environment.cache_dir()).root
        known = torch_libraries.unknown_compiler(environment.cxx()) if any_compiler else None
        cxx = known or (self.cxx() if platform is None else self.cxx_for(platform))
        compilers = self.compilers(cxx)
        if target != NATIVE:
            folders = [*(source.parent for source in self.source_files()), self.source_root()]  # the last one wins
            compilers = {suffix: torch_libraries.retargeted(one, target, folders) for suffix, one in compilers.items()}
        link_paths = (
            self.link_paths() if platform is None or platform.is_here else (torch_libraries.stand_in(platform, root),)
        )
        if target != NATIVE or cxx.is_zig:  # with its C++ library's symbols, a library from ziglang is 8 MB
            link_paths = (*link_paths, "-s")
        if cxx.is_zig and not self._has_sanitizers(cxx):
            link_paths = (*link_paths, torch_libraries.WITHOUT_UBSAN)
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
            link_paths=link_paths,
            include_dirs=next(iter(compilers.values())).include_dirs,
            facts=torch_libraries.facts(self.STABLE_ABI, target),
            output="op.so",
            is_portable=target != NATIVE,
            note=torch_libraries.note(root) if cxx.is_zig else "",
        )

    def _has_sanitizers(self, cxx: CxxCompiler) -> bool:
        words = self.strip_empty_entries([*cxx.command, *self.extra_ldflags(), *self.cxx_args()])
        return any(word.startswith("-fsanitize") for word in words)

    def recipes(self, target: str) -> list[Recipe]:
        """Return the builds to make ahead of time for a target; empty when the op has no code for it.

        Raises:
            ToolchainError: when the tool for a build is missing.
        """
        return [] if is_device_target(target) else [self.recipe_for(target)]

    def cxx(self) -> CxxCompiler:
        """Return the C++ compiler.

        Raises:
            ToolchainError: when no compiler is found, or the op is a Python module and Python's headers are missing.
        """
        missing = "" if self.STABLE_ABI else torch_libraries.missing_python_headers()
        if missing:
            msg = f"building the op '{self.name}' failed: {missing}. Fix: apt-get install python3-dev"
            raise ToolchainError(msg)
        memory = open_cache(environment.cache_dir()).root
        return choose_cxx(environment.cxx(), environment.search_path(), memory, for_torch_headers=not self.STABLE_ABI)

    def cxx_for(self, platform: Platform) -> CxxCompiler:
        """Return the C++ compiler for wheels of a platform: ziglang, which includes the C library of every platform.

        Raises:
            ToolchainError: when ziglang is not installed, or the op uses torch's C++ API.
        """
        if not self.STABLE_ABI:
            msg = (
                f"building the op '{self.name}' for {platform.triple} failed: torch's C++ API needs the C++ library that torch "
                f"was built with, and ziglang has its own. Fix: unset ANYACCEL_PLATFORM, or use the stable ABI."
            )
            raise ToolchainError(msg)
        return zig_for(platform.triple, open_cache(environment.cache_dir()).root)

    def compilers(self, cxx: CxxCompiler) -> dict[str, Compiler]:
        """Return the compiler for each kind of source.

        Args:
            cxx: the C++ compiler.
        """
        flags = (
            *torch_libraries.with_standard(self.strip_empty_entries(self.cxx_args())),
            "-fPIC",
            *torch_libraries.macros(self.STABLE_ABI, self.name),
        )
        if self.STABLE_ABI:
            flags = (*flags, "-fvisibility=hidden")
        compiler = torch_libraries.cxx_compiler(cxx, flags, self.include_dirs(), self.STABLE_ABI)
        as_cpp = compiler._replace(flags=(*compiler.flags, "-xc++"))  # for ziglang, .c is C
        return {**dict.fromkeys((".cpp", ".cc", ".cxx"), compiler), ".c": as_cpp}

    def link_libraries(self) -> tuple[str, ...]:
        """Return the flags for torch's libraries."""
        return torch_libraries.link_flags(self.STABLE_ABI)

    def link_paths(self) -> tuple[str, ...]:
        """Return the flags with the paths of torch's libraries."""
        return torch_libraries.link_paths()

    # Helpers that deepspeed offers to authors of builders

    def warning(self, msg: str) -> None:
        """Log a warning.

        Args:
            msg: the text, without the op's name.
        """
        _logger.warning("the op '%s': %s", self.name, msg)

    def strip_empty_entries(self, args: Iterable[str]) -> list[str]:
        """Return the arguments that are not empty.

        Raises:
            OpError: when ``args`` is not a list of texts, such as a single string, whose letters would be arguments.
        """
        is_list = not isinstance(args, str | set | frozenset) and hasattr(args, "__iter__")  # a set has no order
        given = [arg for arg in args if arg] if is_list else []
        wrong = next((arg for arg in given if not isinstance(arg, (str, os.PathLike))), None) if is_list else args
        if not is_list or wrong is not None:
            msg = (
                f"reading the arguments of the op '{self.name}' failed: got {wrong!r}; expected a list of texts. "
                f"Fix: return a list, such as {[wrong] if isinstance(wrong, str) else ['-O2']}."
            )
            raise OpError(msg)
        texts = [os.fspath(arg) for arg in given]
        if unusable := [text for text in texts if not _can_be_argument(text)]:
            msg = (
                f"reading the arguments of the op '{self.name}' failed: got {unusable[0]!r}; expected texts in UTF-8 without "
                f"null characters. Fix: remove that character."
            )
            raise OpError(msg)
        return texts

    def command_exists(self, cmd: str | Sequence[str]) -> bool:
        """Return whether one of the commands is in ``PATH``.

        Args:
            cmd: a name, or several.
        """
        import shutil

        names = [cmd] if isinstance(cmd, str) else cmd
        return any(shutil.which(name, path=environment.search_path()) for name in names)

    def cpu_arch(self) -> str:
        """Return the compiler's flag for this machine's CPU."""
        return "-march=native"

    def simd_width(self) -> str:
        """Return the macro that selects the vector width in deepspeed's CPU sources."""
        if "avx512f" in cpu_flags():
            return "-D__AVX512__"
        return "-D__AVX256__" if "avx2" in cpu_flags() else "-D__SCALAR__"

    def version_dependent_macros(self) -> list[str]:
        """Return the macros that tell sources the version of torch; all of them hold for every supported torch."""
        return ["-DVERSION_GE_1_1", "-DVERSION_GE_1_3", "-DVERSION_GE_1_5"]

    @staticmethod
    def is_rocm_pytorch() -> bool:
        """Return whether torch is built for ROCm."""
        import torch

        return torch.version.hip is not None

    @staticmethod
    def is_sycl_enabled() -> bool:
        """Return whether torch is built for XPU."""
        import torch

        return getattr(torch.version, "xpu", None) is not None

    validate_torch_version = staticmethod(_asked_for_later("validate_torch_version"))
    validate_torch_op_version = staticmethod(_asked_for_later("validate_torch_op_version"))
    installed_rocm_version = staticmethod(_asked_for_later("installed_rocm_version"))
    get_rocm_gpu_arch = staticmethod(_asked_for_later("get_rocm_gpu_arch"))
    get_rocm_wavefront_size = staticmethod(_asked_for_later("get_rocm_wavefront_size"))

    def deepspeed_src_path(self, code_path: str) -> str:
        """Return the absolute path of a source or an include directory.

        Args:
            code_path: a path as :meth:`sources` or :meth:`include_paths` return it.

        Raises:
            OpError: when nothing is there.
        """
        what = ("source", "include directory")
        first, other = what if os.path.splitext(code_path)[1] else what[::-1]
        try:
            return str(self._located(code_path, first))
        except OpError:
            with contextlib.suppress(OpError):  # ``lib-1.2`` is a folder, ``LICENSE`` a file
                return str(self._located(code_path, other))
            raise

    def hipify_extension(self) -> None:
        """Do nothing: deepspeed's method translates CUDA sources for ROCm, which builders here do not do."""

    def sycl_extension(self) -> None:
        """Do nothing, like deepspeed's method."""

    def has_function(
        self, funcname: str, libraries: Sequence[str], library_dirs: Sequence[str] | None = None, verbose: bool = False
    ) -> bool:
        """Return whether a C function can be linked.

        Args:
            funcname: the function.
            libraries: the libraries to search, without ``lib``.
            library_dirs: their directories, in addition to the compiler's own.
            verbose: log the linker's message when linking fails.
        """
        from subprocess import SubprocessError

        from .engine.scratch import in_scratch_folder
        from .engine.toolchains.probe import run_quietly

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


def _can_be_argument(text: str) -> bool:
    """Return whether a program can get a text as an argument."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        return False


def _seen_from_here(source: Path) -> str:
    """Return a source path for setuptools: relative to the directory of ``setup.py`` if it lies below it."""
    here = Path.cwd().resolve()
    return source.relative_to(here).as_posix() if source.is_relative_to(here) else str(source)


class CPUOpBuilder(OpBuilder):
    """Builds C++ for this machine's CPU.

    Args:
        name: the op's name; ``NAME`` by default.

    Example:
        >>> class HalveBuilder(CPUOpBuilder):
        ...     NAME = "halve"
        ...     STABLE_ABI = True
        ...
        ...     def sources(self):
        ...         return ["halve.cpp"]  # next to this file
    """

    def cxx_args(self) -> list[str]:
        """Return flags for the fastest code with IEEE results: without traps and errno, square roots can be vectorised."""
        return [*CPU_FLAGS]
