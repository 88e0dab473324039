"""Loads each finished binary once per process, and returns its functions."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.machinery
import importlib.util
import inspect
import logging
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .engine.errors import OpLoadError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .engine.trace import Trace

__all__ = [
    "Loaded",
    "folder_of",
    "functions_of",
    "importable",
    "keep",
    "library_of",
    "load_c_library",
    "load_python_module",
    "load_torch_library",
    "once",
]


class Loaded:
    """A binary that this process has loaded and cannot unload.

    Attributes:
        op: the op's name.
        owner: the class of the builder that loaded it; a class that is defined again, as in a notebook cell, counts as the same.
        binary: the file.
        namespaces: the torch op namespaces that the binary claims.
        is_prebuilt: whether it was built ahead of time.
        functions: the binary's functions; None until its builder has made them.
        asked: the sources and flags that its builder asked for.
        on_device: the functions, by the kind of device whose kernels are registered.
    """

    def __init__(
        self,
        op: str,
        owner: type,
        binary: Path,
        namespaces: Sequence[str] = (),
        is_prebuilt: bool = False,
        functions: Any = None,
        asked: Any = None,
    ) -> None:
        self.op = op
        self.owner = owner
        self.binary = binary
        self.namespaces = namespaces
        self.is_prebuilt = is_prebuilt
        self.functions = functions
        self.asked = asked
        self.on_device: dict[str, Any] = {}


_loaded: dict[Path, Loaded] = {}
"""The binaries that this process has loaded; the latest of an op comes last."""
_locks: dict[tuple[str, str], threading.RLock] = {}
_looking = threading.RLock()


@contextlib.contextmanager
def once(builder: type, name: str) -> Iterator[Loaded | None]:
    """Hold an op's lock in this process, and yield the binary that its builder loaded last; other ops can load meanwhile."""
    owner = _full_name(builder)
    with _looking:
        lock = _locks.setdefault((owner, name), threading.RLock())
    with lock:
        yield next((one for one in _of_op(name) if _full_name(one.owner) == owner and one.functions is not None), None)


def keep(loaded: Loaded) -> Any:
    """Record a loaded binary as the latest of its op, and return its functions: the ones from the first load."""
    with _looking:
        known = _loaded.pop(loaded.binary, loaded)
        known.functions = loaded.functions if known.functions is None else known.functions
        known.owner, known.is_prebuilt, known.asked = loaded.owner, loaded.is_prebuilt, loaded.asked
        _loaded[loaded.binary] = known
    return known.functions


def functions_of(binary: Path) -> Any:
    """Return the functions of a binary that this process has loaded, or None."""
    return _loaded[binary].functions if binary in _loaded else None


def _of_op(name: str) -> list[Loaded]:
    """Return the loaded binaries of an op, latest first."""
    return [one for one in reversed([*_loaded.values()]) if one.op == name]


def _renew_locks() -> None:
    """Replace the locks in a forked child: their holders, threads of the parent, do not exist there."""
    global _looking
    _looking = threading.RLock()
    _locks.clear()


os.register_at_fork(after_in_child=_renew_locks)


def require_own_library(op: str, builder: type) -> None:
    """Check that no other builder has loaded a torch library for this op: defining torch ops twice aborts the process.

    Raises:
        OpLoadError: naming the other builder.
    """
    other = next((one for one in _of_op(op) if _full_name(one.owner) != _full_name(builder)), None)
    if other is not None:
        msg = (
            f"loading the op '{op}' failed: a process loads an op from one builder only. {_full_name(builder)} is a second; "
            f"{_full_name(other.owner)} has loaded {other.binary}. Fix: give each builder its own NAME."
        )
        raise OpLoadError(msg)


def require_same_build(op: str, loaded: Path, found: Path | None) -> None:
    """Check that a redefined builder gives the build that the process has loaded.

    Raises:
        OpLoadError: when its sources, flags or compiler have changed.
    """
    if found != loaded:
        msg = (
            f"loading the op '{op}' failed: its sources or flags differ from those of {loaded}, which this process has "
            f"loaded and torch cannot unload. Fix: restart the process, or give the builder another NAME."
        )
        raise OpLoadError(msg)


def require_unclaimed(op: str, namespaces: Sequence[str]) -> None:
    """Check that nothing in this process has defined a namespace: torch ends the process at the second definition.

    Raises:
        OpLoadError: naming the namespace, and the builder if one has defined it.
    """
    for namespace in namespaces:
        claims = (one for one in [*_loaded.values()] if namespace in one.namespaces)
        if (claimed := next(claims, None)) is not None or _is_claimed(namespace):
            owner = "this process" if claimed is None else _full_name(claimed.owner)
            msg = (
                f"loading the op '{op}' failed: {owner} has already defined the namespace '{namespace}'. Fix: use another "
                f"namespace; if the ops in it have different names, STABLE_TORCH_LIBRARY_FRAGMENT adds to it."
            )
            raise OpLoadError(msg)


def load_torch_library(op: str, builder: type, binary: Path, namespaces: Sequence[str]) -> None:
    """Load a library that registers torch ops.

    Args:
        op: the op's name.
        builder: the class of the op's builder.
        binary: the library.
        namespaces: the namespaces that it defines; if anything else in the process defined them, torch would abort.

    Raises:
        OpLoadError: when it cannot be loaded, or one of its namespaces is already defined.
    """
    import torch

    with _looking:
        require_own_library(op, builder)
        for known in _of_op(op):
            require_same_build(op, known.binary, binary)
            return
        require_unclaimed(op, namespaces)
        try:
            torch.ops.load_library(str(binary))
        except OSError as error:
            raise _refusal(op, binary, error) from error
        keep(Loaded(op, builder, binary, namespaces))


def library_of(op: str) -> Loaded:
    """Return the torch library that the process has loaded for an op."""
    return _of_op(op)[0]


def torch_functions(op: str) -> Any:
    """Return the torch ops of a namespace.

    Raises:
        OpLoadError: when the namespace is empty.
    """
    import torch

    if not _is_defined(op):
        msg = (
            f"loading the op '{op}' failed: its library registers no torch ops in the namespace '{op}'. "
            f"Fix: register them with STABLE_TORCH_LIBRARY({op}, library), or override functions()."
        )
        raise OpLoadError(msg)
    return getattr(torch.ops, op)


def _is_defined(namespace: str) -> bool:
    import torch

    return any(name.startswith(f"{namespace}::") for name in torch._C._dispatch_get_all_op_names())


def _is_claimed(namespace: str) -> bool:
    """Return whether a library owns a namespace, also one without ops, by becoming its owner for a moment."""
    import torch

    if _is_defined(namespace):
        return True
    try:
        torch._C._dispatch_library("DEF", namespace, "")
    except RuntimeError:
        return True
    return False


def _full_name(builder: type) -> str:
    return f"{builder.__module__}.{builder.__qualname__}"


def load_python_module(name: str, binary: Path) -> Any:
    """Load a Python extension module.

    Raises:
        OpLoadError: when it cannot be loaded.
    """
    import torch  # noqa: F401  # the module needs torch's libraries

    full_name = f"anyaccel_{binary.parent.name}_{binary.stem}.{name}"  # pybind11 allows one module per name and process
    loader = importlib.machinery.ExtensionFileLoader(full_name, str(binary))
    spec = importlib.util.spec_from_file_location(full_name, binary, loader=loader)
    assert spec is not None  # noqa: S101  # it has a loader
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except Exception as error:  # the module's own code runs, and may raise anything
        raise _refusal(name, binary, error) from error
    return module


def importable(name: str, trace: Trace) -> Any:
    """Return an installed prebuilt module, or None; the trace records why not."""
    try:
        spec = importlib.util.find_spec(name) if "." in name else None
        if spec is None or spec.origin is None:  # a folder without __init__.py has no origin: it may hold sources
            trace.reject("prebuilt", f"no module {name} is installed")
            return None
        module = importlib.import_module(name)
    except BaseException as error:  # a third party's package may raise anything, also SystemExit
        if isinstance(error, (KeyboardInterrupt, GeneratorExit)):
            raise
        trace.reject("prebuilt", f"{name}: {type(error).__name__}: {error}", logging.WARNING)
        return None
    trace.accept("prebuilt", f"the installed module {name}")
    return module


def folder_of(builder: type) -> Path:
    """Return the folder of the file that defines a builder's class; the working directory for an interactive session."""
    try:
        return Path(inspect.getfile(builder)).resolve().parent
    except (OSError, TypeError):
        return Path.cwd()


def load_c_library(op: str, binary: Path) -> ctypes.CDLL:
    """Load a library whose functions are called through ctypes.

    Raises:
        OpLoadError: when it cannot be loaded.
    """
    try:
        return ctypes.CDLL(str(binary))
    except OSError as error:
        raise _refusal(op, binary, error) from error


def _is_mounted_noexec(binary: Path) -> bool:
    try:
        return bool(os.statvfs(binary).f_flag & os.ST_NOEXEC)
    except OSError:
        return False


def _refusal(op: str, binary: Path, error: Exception) -> OpLoadError:
    text = f"{error}{f' ({error.__cause__})' if error.__cause__ else ''}"
    fix = "correct the code that runs when the library is loaded"
    if _is_mounted_noexec(binary) and isinstance(error, (OSError, ImportError)):
        msg = (
            f"loading the op '{op}' failed: {text}. {binary.parent} is on a file system that is mounted noexec, "
            f"from which libraries cannot be loaded. Fix: set ANYACCEL_CACHE_DIR to a directory on another file system."
        )
        return OpLoadError(msg)
    if "undefined symbol" in text:
        fix = "add the source that defines it to sources(), or its library to libraries_args(); c++filt shows its C++ name"
    elif "module export function" in text:
        fix = "add PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) to a source, or set STABLE_ABI = True if it registers torch ops"
    msg = f"loading the op '{op}' failed: {binary} cannot be loaded: {text}. Fix: {fix}."
    return OpLoadError(msg)
