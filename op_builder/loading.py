"""From a finished binary to functions, once a process."""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import importlib.util
import inspect
import logging
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .engine.errors import OpLoadError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .engine.trace import Trace

__all__ = ["folder_of", "importable", "load_python_module", "load_torch_library", "once"]


@dataclass
class _Kept:
    """What a process keeps of an op: the first build, as a second one would define the same torch ops again."""

    functions: Any = None
    binary: Path | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)


_kept: dict[tuple[str, str], _Kept] = {}
_libraries: dict[str, tuple[str, Path]] = {}
"""By an op's name, the builder that loaded its torch library, and the file."""
_looking = threading.Lock()


@contextlib.contextmanager
def once(builder: type, name: str) -> Iterator[_Kept]:
    """Hold an op's lock in this process, and yield what is kept of it; other ops load meanwhile.

    A class that is defined again, as in a notebook's cell, is the builder that it was.
    """
    with _looking:
        kept = _kept.setdefault((_full_name(builder), name), _Kept())
    with kept.lock:
        yield kept


def _renew_locks() -> None:
    """Free a forked child of locks whose holders, threads of its parent, it does not have."""
    global _looking
    _looking = threading.Lock()
    for kept in _kept.values():
        kept.lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_locks)


def require_own_library(op: str, builder: type) -> None:
    """Check that no other builder has loaded a torch library for an op of this name: defining torch ops twice is fatal.

    Raises:
        OpLoadError: naming the other builder.
    """
    other, binary = _libraries.get(op, (_full_name(builder), None))
    if other != _full_name(builder):
        msg = (
            f"loading the op '{op}' failed: got a second builder, {_full_name(builder)}; expected one in a process, and "
            f"{other} has loaded {binary}. Fix: give each a NAME of its own."
        )
        raise OpLoadError(msg)


def load_torch_library(op: str, builder: type, binary: Path) -> None:
    """Load a library that registers torch ops.

    Raises:
        OpLoadError: when it cannot be loaded, or another builder has loaded one for an op of this name.
    """
    import torch

    with _looking:
        require_own_library(op, builder)
        if op in _libraries:
            return
        try:
            torch.ops.load_library(str(binary))
        except OSError as error:
            raise _refusal(op, binary, error) from error
        _libraries[op] = _full_name(builder), binary


def _full_name(builder: type) -> str:
    return f"{builder.__module__}.{builder.__qualname__}"


def load_python_module(name: str, binary: Path) -> Any:
    """Load a Python extension module.

    Raises:
        OpLoadError: when it cannot be loaded.
    """
    import torch  # noqa: F401  # whose libraries the module needs

    loader = importlib.machinery.ExtensionFileLoader(name, str(binary))
    spec = importlib.util.spec_from_file_location(name, binary, loader=loader)
    assert spec is not None  # noqa: S101  # it has a loader
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        raise _refusal(name, binary, error) from error
    return module


def importable(name: str, trace: Trace) -> Any:
    """Return a module that was built ahead of time and installed, or None; the trace says why not."""
    try:
        if "." not in name or importlib.util.find_spec(name) is None:
            trace.reject("prebuilt", f"no module {name} is installed")
            return None
        module = importlib.import_module(name)
    except Exception as error:  # noqa: BLE001  # a package of somebody else's may raise anything
        trace.reject("prebuilt", f"{name}: {type(error).__name__}: {error}", logging.WARNING)
        return None
    trace.accept("prebuilt", f"the installed module {name}")
    return module


def folder_of(builder: type) -> Path:
    """Return the folder of the file that defines a builder's class; the working directory for one typed in."""
    try:
        return Path(inspect.getfile(builder)).resolve().parent
    except (OSError, TypeError):
        return Path.cwd()


def _refusal(op: str, binary: Path, error: Exception) -> OpLoadError:
    msg = f"loading the op '{op}' failed: got {error}; expected {binary} to load. Fix: delete its folder."
    return OpLoadError(msg)
