"""From a finished binary to functions, once a process."""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import importlib.util
import inspect
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


_kept: dict[tuple[type, str], _Kept] = {}
_looking = threading.Lock()


@contextlib.contextmanager
def once(builder: type, name: str) -> Iterator[_Kept]:
    """Hold an op's lock in this process, and yield what is kept of it; other ops load meanwhile."""
    with _looking:
        kept = _kept.setdefault((builder, name), _Kept())
    with kept.lock:
        yield kept


def _renew_locks() -> None:
    """Free a forked child of locks whose holders, threads of its parent, it does not have."""
    global _looking
    _looking = threading.Lock()
    for kept in _kept.values():
        kept.lock = threading.RLock()


os.register_at_fork(after_in_child=_renew_locks)


def load_torch_library(op: str, binary: Path) -> None:
    """Load a library that registers torch ops.

    Raises:
        OpLoadError: when it cannot be loaded.
    """
    import torch

    try:
        torch.ops.load_library(str(binary))
    except OSError as error:
        raise _refusal(op, binary, error) from error


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
    except ImportError as error:
        trace.reject("prebuilt", f"{name}: {error}")
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
