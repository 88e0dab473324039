"""Colossal-AI's base classes for implementations, with its attribute and method names, on top of this project's builders.

Both generations of its names work: ``is_available`` and ``is_hardware_available``, ``assert_compatible`` and
``assert_hardware_compatible``. Source: Colossal-AI's ``extensions``.
"""

from __future__ import annotations

import abc
import functools
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..builder import OpBuilder
from ..cuda.builder import CUDAOpBuilder
from ..engine.errors import OpLoadError
from ..kernel_extensions import KernelExtension, has_device, require_package

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["_CppExtension", "_CudaExtension", "_Extension", "_TritonExtension"]


class _Extension(KernelExtension):
    """An implementation whose ``__init__`` sets ``_name``, ``_support_aot``, ``_support_jit`` and ``priority``.

    Args:
        name: the name to request it by.
        support_aot: whether it can be built ahead of time.
        support_jit: whether it can be built at run time on the machine that uses it.
        priority: the highest available priority is chosen.
    """

    _support_aot: bool = True
    _support_jit: bool = True

    def __init__(self, name: str, support_aot: bool, support_jit: bool, priority: int = 1) -> None:
        self._name = name
        self._support_aot = support_aot
        self._support_jit = support_jit
        self.priority = priority

    @property
    def name(self) -> str:  # type: ignore[override]  # theirs is set in __init__, as _name
        """The name that ``__init__`` set."""
        return self._name

    @property
    def support_aot(self) -> bool:  # type: ignore[override]
        """Whether it can be built ahead of time."""
        return self._support_aot

    @property
    def support_jit(self) -> bool:  # type: ignore[override]
        """Whether it can be built at run time on the machine that uses it."""
        return self._support_jit

    def is_available(self) -> bool:
        """Return whether this machine has the hardware that it needs."""
        self._require("is_hardware_available", "is_available")
        return self.is_hardware_available()

    def is_hardware_available(self) -> bool:
        """Return ``is_available()``; the older name."""
        self._require("is_available", "is_hardware_available")
        return self.is_available()

    def assert_compatible(self) -> None:
        """Check its other requirements."""
        self._require("assert_hardware_compatible", "assert_compatible")
        self.assert_hardware_compatible()

    def assert_hardware_compatible(self) -> None:
        """Call ``assert_compatible``; the older name."""
        self._require("assert_compatible", "assert_hardware_compatible")
        self.assert_compatible()

    def assert_build_compatible(self) -> None:
        """Check the requirements of a build; by default those of ``assert_compatible``."""
        self.assert_compatible()

    def load(self) -> Any:
        """Return the kernel's functions."""
        raise self._missing("load")

    def _require(self, method: str, called: str) -> None:
        """Check that a class overrides a method: the method here would call itself again."""
        if getattr(type(self), method) is getattr(_Extension, method):
            raise self._missing(called)

    def _missing(self, method: str) -> NotImplementedError:
        return NotImplementedError(
            f"{type(self).__name__} does not define {method}. Fix: define it; see anyaccel.kernel.base_extension"
        )


class _CppExtension(_Extension):
    """An implementation in C++: a subclass gives ``sources_files``, and if needed flags and include directories.

    Args:
        name: the name to request it by, and the name of its module.
        priority: the highest available priority is chosen.
    """

    def __init__(self, name: str, priority: int = 1) -> None:
        super().__init__(name, support_aot=True, support_jit=True, priority=priority)
        self.cached_op: Any = None
        self.prebuilt_module_path = "anyaccel._C"
        self.prebuilt_import_path = f"{self.prebuilt_module_path}.{name}"
        self.version_dependent_macros = ["-DVERSION_GE_1_1", "-DVERSION_GE_1_3", "-DVERSION_GE_1_5"]

    @abc.abstractmethod
    def sources_files(self) -> Sequence[str]:
        """Return the source files; relative paths start from the folder of the class's file."""

    def include_dirs(self) -> Sequence[str]:
        """Return the include directories: by default ``csrc`` in the folder of the class's file, if it exists."""
        own = self.csrc_abs_path("")
        return [own] if Path(own).is_dir() else []

    def cxx_flags(self) -> Sequence[str]:
        """Return the C++ compiler's flags."""
        return ["-O3"]

    def relative_to_abs_path(self, code_path: str) -> str:
        """Return an absolute path; relative paths start from the folder of the class's file."""
        return str(Path(inspect.getfile(type(self))).resolve().parent / code_path)

    def csrc_abs_path(self, path: str) -> str:
        """Return the absolute path of a file in ``csrc``, in the folder of the class's file."""
        return self.relative_to_abs_path(f"csrc/{path}")

    def pybind_abs_path(self, path: str) -> str:
        """Return the absolute path of a file in ``pybind``, in the folder of the class's file."""
        return self.relative_to_abs_path(f"pybind/{path}")

    def strip_empty_entries(self, args: Sequence[str]) -> list[str]:
        """Return the entries that are not empty."""
        return [entry for entry in args if entry]

    def builder(self) -> OpBuilder:
        """Return the builder that compiles it."""
        made: OpBuilder = _builder_class(type(self), _Builder)(self)
        return made

    def assert_compatible(self) -> None:
        """Check that it can be built here."""
        reason = self.builder().incompatibility()
        if reason:
            raise OpLoadError(reason)

    def import_op(self) -> Any:
        """Return the prebuilt module.

        Raises:
            ModuleNotFoundError: when it is not installed.
        """
        return __import__(self.prebuilt_import_path, fromlist=["*"])

    def load(self) -> Any:
        """Return the module, prebuilt or built now, once per instance."""
        if self.cached_op is None:
            self.cached_op = self.builder().load()
        return self.cached_op

    def build_aot(self) -> Any:
        """Return the setuptools extension that builds it."""
        return self.builder().builder()

    def build_jit(self) -> Any:
        """Build it on this machine if needed, and return the module."""
        return self.builder().jit_load()


class _CudaExtension(_CppExtension):
    """An implementation in CUDA for NVIDIA GPUs, compiled by nvcc."""

    @abc.abstractmethod
    def nvcc_flags(self) -> Sequence[str]:
        """Return nvcc's flags."""

    def is_available(self) -> bool:
        return has_device("cuda")  # anyaccel: ignore[device-name]

    def builder(self) -> OpBuilder:
        made: OpBuilder = _builder_class(type(self), _CudaBuilder)(self)
        return made


class _TritonExtension(_Extension):
    """An implementation in Triton, which compiles it; ``build_jit`` imports it.

    Args:
        name: the name to request it by.
        priority: the highest available priority is chosen.
    """

    def __init__(self, name: str, priority: int = 1) -> None:
        super().__init__(name, support_aot=False, support_jit=True, priority=priority)

    def is_available(self) -> bool:
        return has_device("cuda")  # anyaccel: ignore[device-name]

    def assert_compatible(self) -> None:
        require_package(self.name, "triton", "triton")

    def load(self) -> Any:
        return self.build_jit()


class _FromExtension:
    """Gives a builder the data of an extension."""

    def __init__(self, extension: _CppExtension) -> None:
        self.extension = extension
        super().__init__(extension.name)  # type: ignore[call-arg]  # the builder's

    def absolute_name(self) -> str:
        return self.extension.prebuilt_import_path

    def sources(self) -> list[str]:
        return self.extension.strip_empty_entries(self.extension.sources_files())

    def include_paths(self) -> list[str]:
        return self.extension.strip_empty_entries(self.extension.include_dirs())

    def cxx_args(self) -> list[str]:
        return [
            "-std=c++20",
            *self.extension.strip_empty_entries(self.extension.cxx_flags()),
        ]  # torch's headers need it

    def source_root(self) -> Path:
        return Path(self.extension.relative_to_abs_path(""))


class _Builder(_FromExtension, OpBuilder):
    """Builds the sources of a ``_CppExtension``."""


class _CudaBuilder(_FromExtension, CUDAOpBuilder):
    """Builds the sources of a ``_CudaExtension``."""

    def nvcc_args(self) -> list[str]:
        extension = self.extension
        assert isinstance(extension, _CudaExtension)  # noqa: S101  # only a _CudaExtension creates this builder
        own = extension.strip_empty_entries(extension.nvcc_flags())
        return ["-std=c++20", *own, *self.compute_capability_args()]


@functools.cache
def _builder_class(extension: type[_CppExtension], kind: type[Any]) -> type[Any]:
    """Return the builder class for one extension class: loaded binaries are identified by their builder's class."""
    return type(f"{extension.__name__}Builder", (kind,), {"__module__": extension.__module__})
