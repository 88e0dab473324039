"""Colossal-AI's base classes of implementations, by its names of attributes and methods, on this project's builders.

Both generations of its names serve: ``is_available`` and ``is_hardware_available``, ``assert_compatible`` and
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
        name: by which a user may ask for it.
        support_aot: whether it can be built ahead of time.
        support_jit: whether it can be built on the machine that uses it.
        priority: the highest among those that serve is chosen.
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
        """Whether it can be built on the machine that uses it."""
        return self._support_jit

    def is_available(self) -> bool:
        """Return whether this machine has the hardware that it is for."""
        self._require("is_hardware_available", "is_available")
        return self.is_hardware_available()

    def is_hardware_available(self) -> bool:
        """Return what ``is_available`` returns, of which it is the older name."""
        self._require("is_available", "is_hardware_available")
        return self.is_available()

    def assert_compatible(self) -> None:
        """Check everything else that it needs."""
        self._require("assert_hardware_compatible", "assert_compatible")
        self.assert_hardware_compatible()

    def assert_hardware_compatible(self) -> None:
        """Check what ``assert_compatible`` checks, of which it is the older name."""
        self._require("assert_compatible", "assert_hardware_compatible")
        self.assert_compatible()

    def assert_build_compatible(self) -> None:
        """Check what a build needs; by default what ``assert_compatible`` checks."""
        self.assert_compatible()

    def load(self) -> Any:
        """Return the kernel's functions."""
        raise self._missing("load")

    def _require(self, method: str, called: str) -> None:
        """Check that a method is the class's own, and not the one here, which would call back."""
        if getattr(type(self), method) is getattr(_Extension, method):
            raise self._missing(called)

    def _missing(self, method: str) -> NotImplementedError:
        return NotImplementedError(
            f"{type(self).__name__} has no {method}. Fix: define it, as anyaccel.kernel.base_extension describes"
        )


class _CppExtension(_Extension):
    """An implementation in C++: a class that says ``sources_files``, and where it needs them flags and folders of headers.

    Args:
        name: by which a user may ask for it, and the name of its module.
        priority: the highest among those that serve is chosen.
    """

    def __init__(self, name: str, priority: int = 1) -> None:
        super().__init__(name, support_aot=True, support_jit=True, priority=priority)
        self.cached_op: Any = None
        self.prebuilt_module_path = "anyaccel._C"
        self.prebuilt_import_path = f"{self.prebuilt_module_path}.{name}"
        self.version_dependent_macros = ["-DVERSION_GE_1_1", "-DVERSION_GE_1_3", "-DVERSION_GE_1_5"]

    @abc.abstractmethod
    def sources_files(self) -> Sequence[str]:
        """Return the source files; relative ones are looked for beside the file of the class."""

    def include_dirs(self) -> Sequence[str]:
        """Return the folders of its own headers: ``csrc`` beside the file of the class, where it is."""
        own = self.csrc_abs_path("")
        return [own] if Path(own).is_dir() else []

    def cxx_flags(self) -> Sequence[str]:
        """Return the C++ compiler's flags."""
        return ["-O3"]

    def relative_to_abs_path(self, code_path: str) -> str:
        """Return the absolute path of what is beside the file of the class."""
        return str(Path(inspect.getfile(type(self))).resolve().parent / code_path)

    def csrc_abs_path(self, path: str) -> str:
        """Return the absolute path of a file in ``csrc``, beside the file of the class."""
        return self.relative_to_abs_path(f"csrc/{path}")

    def pybind_abs_path(self, path: str) -> str:
        """Return the absolute path of a file in ``pybind``, beside the file of the class."""
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
        """Return the module that was built ahead of time.

        Raises:
            ModuleNotFoundError: when there is none.
        """
        return __import__(self.prebuilt_import_path, fromlist=["*"])

    def load(self) -> Any:
        """Return the module, prebuilt or built now, once an instance."""
        if self.cached_op is None:
            self.cached_op = self.builder().load()
        return self.cached_op

    def build_aot(self) -> Any:
        """Return the extension to give to setuptools."""
        return self.builder().builder()

    def build_jit(self) -> Any:
        """Build it on this machine where needed, and return the module."""
        return self.builder().jit_load()


class _CudaExtension(_CppExtension):
    """An implementation in CUDA for NVIDIA's GPUs, compiled by nvcc."""

    @abc.abstractmethod
    def nvcc_flags(self) -> Sequence[str]:
        """Return nvcc's flags."""

    def is_available(self) -> bool:
        return has_device("cuda")  # anyaccel: ignore[device-name]

    def builder(self) -> OpBuilder:
        made: OpBuilder = _builder_class(type(self), _CudaBuilder)(self)
        return made


class _TritonExtension(_Extension):
    """An implementation in Triton, which compiles it itself: ``build_jit`` imports it.

    Args:
        name: by which a user may ask for it.
        priority: the highest among those that serve is chosen.
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
    """What a builder asks, answered by an extension."""

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
        ]  # which torch's headers need

    def source_root(self) -> Path:
        return Path(self.extension.relative_to_abs_path(""))


class _Builder(_FromExtension, OpBuilder):
    """Builds what a ``_CppExtension`` describes."""


class _CudaBuilder(_FromExtension, CUDAOpBuilder):
    """Builds what a ``_CudaExtension`` describes."""

    def nvcc_args(self) -> list[str]:
        extension = self.extension
        assert isinstance(extension, _CudaExtension)  # noqa: S101  # made by it
        own = extension.strip_empty_entries(extension.nvcc_flags())
        return ["-std=c++20", *own, *self.compute_capability_args()]


@functools.cache
def _builder_class(extension: type[_CppExtension], kind: type[Any]) -> type[Any]:
    """Return the kind of builder of one class of extensions: what is loaded is known by its builder's class."""
    return type(f"{extension.__name__}Builder", (kind,), {"__module__": extension.__module__})
