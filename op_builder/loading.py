"""From a finished binary to functions, once per process."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.machinery
import importlib.util
import inspect
import logging
import os
import re
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
    """A binary that this process has loaded, which it cannot let go of.

    Attributes:
        op: the op's name.
        owner: the class of the builder that loaded it; a class that is defined again, as in a notebook's cell, is the same.
        binary: the file.
        namespaces: of torch ops, which the binary claims for itself.
        is_prebuilt: whether it was built ahead of time.
        functions: what it gave; None until its builder has made them.
        on_device: the functions by the kind of device whose kernels it has been given.
    """

    def __init__(
        self,
        op: str,
        owner: type,
        binary: Path,
        namespaces: Sequence[str] = (),
        is_prebuilt: bool = False,
        functions: Any = None,
    ) -> None:
        self.op = op
        self.owner = owner
        self.binary = binary
        self.namespaces = namespaces
        self.is_prebuilt = is_prebuilt
        self.functions = functions
        self.on_device: dict[str, Any] = {}


_loaded: dict[Path, Loaded] = {}
"""What this process has loaded, by binary; the latest of an op last."""
_locks: dict[tuple[str, str], threading.RLock] = {}
_CLAIM = r"(?m)^[ \t]*STABLE_TORCH_LIBRARY[ \t]*\([ \t]*(\w+)|^[ \t]*TORCH_LIBRARY[ \t]*\([ \t]*(\w+)"
_looking = threading.RLock()


@contextlib.contextmanager
def once(builder: type, name: str) -> Iterator[Loaded | None]:
    """Hold an op's lock in this process, and yield what its builder has loaded last; other ops load meanwhile."""
    owner = _full_name(builder)
    with _looking:
        lock = _locks.setdefault((owner, name), threading.RLock())
    with lock:
        yield next((one for one in _of_op(name) if _full_name(one.owner) == owner and one.functions is not None), None)


def keep(loaded: Loaded) -> Any:
    """Keep what was loaded, as the latest of its op, and return its functions: those that the binary gave first."""
    with _looking:
        known = _loaded.pop(loaded.binary, loaded)
        known.functions = loaded.functions if known.functions is None else known.functions
        known.owner, known.is_prebuilt = loaded.owner, loaded.is_prebuilt
        _loaded[loaded.binary] = known
    return known.functions


def functions_of(binary: Path) -> Any:
    """Return the functions of a binary that this process has loaded, or None."""
    return _loaded[binary].functions if binary in _loaded else None


def _of_op(name: str) -> list[Loaded]:
    """Return what has been loaded of an op, the latest first."""
    return [one for one in reversed([*_loaded.values()]) if one.op == name]


def _renew_locks() -> None:
    """Free a forked child of locks whose holders, threads of its parent, it does not have."""
    global _looking
    _looking = threading.RLock()
    _locks.clear()


os.register_at_fork(after_in_child=_renew_locks)


def require_own_library(op: str, builder: type) -> None:
    """Check that no other builder has loaded a torch library for an op of this name: defining torch ops twice is fatal.

    Raises:
        OpLoadError: naming the other builder.
    """
    other = next((one for one in _of_op(op) if _full_name(one.owner) != _full_name(builder)), None)
    if other is not None:
        msg = (
            f"loading the op '{op}' failed: got a second builder, {_full_name(builder)}; expected one in a process, and "
            f"{_full_name(other.owner)} has loaded {other.binary}. Fix: give each a NAME of its own."
        )
        raise OpLoadError(msg)


def require_same_build(op: str, loaded: Path, found: Path | None) -> None:
    """Check that a builder that was defined again is for the build that the process has loaded.

    Raises:
        OpLoadError: when its sources, flags or compiler are others.
    """
    if found != loaded:
        msg = (
            f"loading the op '{op}' failed: got other sources or flags than those of {loaded}, which this process has "
            f"loaded; expected the same, as torch keeps its ops. Fix: restart the process, or give it a NAME of its own."
        )
        raise OpLoadError(msg)


def claimed_namespaces(sources: Sequence[Path]) -> list[str]:
    """Return the namespaces that sources define with ``STABLE_TORCH_LIBRARY``, which a process allows once each."""
    texts = (source.read_text(errors="replace", encoding="utf-8") for source in sources)
    return [stable or other for text in texts for stable, other in re.findall(_CLAIM, text)]


def load_torch_library(op: str, builder: type, binary: Path, namespaces: Sequence[str]) -> None:
    """Load a library that registers torch ops.

    Args:
        op: the op's name.
        builder: whose op it is.
        binary: the library.
        namespaces: what it defines, and nothing else in the process may: torch would end the process.

    Raises:
        OpLoadError: when it cannot be loaded, or something else has defined one of its namespaces.
    """
    import torch

    with _looking:
        require_own_library(op, builder)
        for known in _of_op(op):
            require_same_build(op, known.binary, binary)
            return
        for namespace in namespaces:
            claims = (one for one in [*_loaded.values()] if namespace in one.namespaces)
            if (claimed := next(claims, None)) is not None or _is_defined(namespace):
                owner = "this process" if claimed is None else _full_name(claimed.owner)
                msg = (
                    f"loading the op '{op}' failed: got the namespace '{namespace}', which {owner} has defined already; "
                    f"expected one of its own. Fix: STABLE_TORCH_LIBRARY_FRAGMENT, or another name."
                )
                raise OpLoadError(msg)
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
        OpLoadError: when there are none.
    """
    import torch

    if not _is_defined(op):
        msg = (
            f"loading the op '{op}' failed: got a library that registers nothing under '{op}'; expected torch ops there. "
            f"Fix: STABLE_TORCH_LIBRARY({op}, library), or override functions()."
        )
        raise OpLoadError(msg)
    return getattr(torch.ops, op)


def _is_defined(namespace: str) -> bool:
    import torch

    return any(name.startswith(f"{namespace}::") for name in torch._C._dispatch_get_all_op_names())


def _full_name(builder: type) -> str:
    return f"{builder.__module__}.{builder.__qualname__}"


def load_python_module(name: str, binary: Path) -> Any:
    """Load a Python extension module.

    Raises:
        OpLoadError: when it cannot be loaded.
    """
    import torch  # noqa: F401  # whose libraries the module needs

    full_name = f"anyaccel_{binary.parent.name}_{binary.stem}.{name}"  # pybind11 gives one name one module a process
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


def load_c_library(op: str, binary: Path) -> ctypes.CDLL:
    """Load a library whose functions are called by ctypes.

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
    fix = "correct what the sources do when they are loaded"
    if _is_mounted_noexec(binary) and isinstance(error, (OSError, ImportError)):
        msg = (
            f"loading the op '{op}' failed: got {text}, as {binary.parent} is on a file system that is mounted noexec; expected "
            f"one that programs and libraries may be run from. Fix: set ANYACCEL_CACHE_DIR to a directory on another one."
        )
        return OpLoadError(msg)
    if "undefined symbol" in text:
        fix = "add the source that defines it to sources(), or its library to libraries_args(); c++filt tells its name in C++"
    elif "module export function" in text:
        fix = "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) in a source; where they register torch ops instead, STABLE_ABI = True"
    msg = f"loading the op '{op}' failed: got {text}; expected {binary} to load. Fix: {fix}."
    return OpLoadError(msg)
