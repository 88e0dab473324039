"""Chooses a kernel's implementation by hardware and priority: the best is tried first, the others only if it fails."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar

from .engine.errors import NoKernelError, OpError, OpLoadError
from .engine.trace import Trace
from .kernel_extensions import KernelExtension

__all__ = ["KernelLoader", "best_of"]

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class KernelLoader:
    """Chooses and loads an implementation of one kernel.

    Attributes:
        REGISTRY: the classes of the implementations. Each loader has its own list; without one, a copy of its base class's.
    """

    REGISTRY: ClassVar[list[KernelExtension | type[KernelExtension]]] = []

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        own = cls.__dict__.get("REGISTRY")
        cls.REGISTRY = [*cls.REGISTRY] if own is None else [*map(_require_extension, own)]

    @classmethod
    def register_extension(cls, extension: Any) -> None:
        """Add an implementation, replacing one with the same name.

        Args:
            extension: its class, a subclass of ``KernelExtension``.

        Raises:
            TypeError: when ``extension`` is not a subclass, lacks a method, or has no valid name or priority.
        """
        _require_extension(extension)
        name = _described(extension).name
        cls.REGISTRY[:] = [known for known in cls.REGISTRY if _described(known).name != name]
        cls.REGISTRY.append(extension)

    def load(self, ext_name: str | None = None) -> Any:
        """Load an implementation; see :meth:`functions`.

        Args:
            ext_name: its name; by default the highest-priority implementation that works here.

        Returns:
            The kernel's functions.
        """
        return self.functions(ext_name)

    def functions(self, ext_name: str | None = None) -> Any:
        """Load an implementation.

        Args:
            ext_name: its name. By default the highest-priority implementation available here; if loading it fails, the
                next, with a log message.

        Returns:
            The kernel's functions.

        Raises:
            NoKernelError: when no implementation is available, or none has that name; lists the reasons.
            OpError: when the named implementation cannot be loaded.
        """
        if ext_name is not None:
            return self._load_named(ext_name)
        trace = Trace(type(self).__name__)
        functions = best_of(self.REGISTRY, trace)
        if functions is None:
            raise self._none_of(trace)
        return functions

    def usable(self, trace: Trace) -> list[KernelExtension]:
        """Return the implementations available here, best first; builds nothing.

        Args:
            trace: records why each of the others is not available.
        """
        return [extension for extension in _available(self.REGISTRY, trace) if _is_compatible(extension, trace)]

    def _load_named(self, ext_name: str) -> Any:
        name = type(self).__name__
        try:
            extension = self._named(ext_name)
            is_available = extension.is_available()
            if is_available:
                extension.assert_compatible()
                return _loaded(extension)
        except OpError:
            raise
        except Exception as error:
            msg = (
                f"{name} failed: {ext_name!r} raised {type(error).__name__}: {error}. "
                f"Fix: correct that implementation, or call {name}().load()."
            )
            raise OpLoadError(msg) from error
        msg = f"{name} failed: {ext_name!r} does not run on this machine. Fix: call {name}().load()."
        raise NoKernelError(msg)

    def _named(self, ext_name: str) -> KernelExtension:
        described = [_described(known) for known in self.REGISTRY]
        for known in described:
            if known.name == ext_name:
                return known() if isinstance(known, type) else known
        choices = ", ".join(known.name for known in described) or "none"
        msg = f"{type(self).__name__} failed: it has no implementation {ext_name!r}. Fix: pass one of: {choices}."
        raise NoKernelError(msg)

    def _none_of(self, trace: Trace) -> NoKernelError:
        name = type(self).__name__
        if not self.REGISTRY:
            msg = f"{name} failed: it has no implementation. Fix: add one with {name}.register_extension()."
            return NoKernelError(msg)
        msg = (
            f"{name} failed: no implementation is available here: {trace}. "
            f"Fix: resolve the problem of the implementation that you want to use."
        )
        return NoKernelError(msg)


def _described(extension: KernelExtension | type[KernelExtension]) -> KernelExtension | type[KernelExtension]:
    """Return the object with the name and the priority: the class, or an instance if ``__init__`` sets them."""
    if not isinstance(extension, type):
        return extension
    has_both = isinstance(getattr(extension, "name", None), str) and isinstance(extension.priority, int)
    if has_both and extension.__init__ is KernelExtension.__init__:
        return extension
    try:
        return extension()
    except Exception:
        if has_both:  # whoever loads it will see the error
            return extension
        raise


def _require_extension(extension: Any) -> type[KernelExtension]:
    """Return an implementation's class, after checking that it is complete.

    Raises:
        TypeError: saying what is missing.
    """
    problem = ""
    if not (isinstance(extension, type) and issubclass(extension, KernelExtension)):
        problem = "expected a subclass of KernelExtension. Fix: pass a class"
    elif extension.__abstractmethods__:
        problem = f"it does not define {', '.join(sorted(extension.__abstractmethods__))}. Fix: define these methods"
    else:
        problem = _problem_of(extension)
    if problem:
        msg = f"registering an implementation of a kernel failed: got {extension!r}; {problem}."
        raise TypeError(msg)
    found: type[KernelExtension] = extension
    return found


def _problem_of(extension: type[KernelExtension]) -> str:
    try:
        described = _described(extension)
    except Exception as error:  # noqa: BLE001  # its __init__ may raise anything
        return f"creating it raised {type(error).__name__}: {error}. Fix: give it an __init__ without arguments"
    if not isinstance(getattr(described, "name", None), str):
        return "it has no name. Fix: set name = '...'"
    if not isinstance(getattr(described, "priority", None), int):
        return "its priority is not an integer. Fix: set priority = 1"
    return ""


def best_of(implementations: Sequence[KernelExtension | type[KernelExtension]], trace: Trace | None = None) -> Any:
    """Load the best implementation available here, or the next if loading fails; return None when all fail.

    Args:
        implementations: the implementations, or their classes.
        trace: records why each one before the loaded one was rejected.
    """
    trace = trace or Trace("the best implementation")
    for extension in _available(implementations, trace):
        if not (extension.load_checks or _is_compatible(extension, trace)):
            continue
        try:
            functions = _loaded(extension)
        except Exception as error:  # noqa: BLE001  # one broken implementation must not stop the others
            trace.reject(extension.name, f"available, but {_reason(error)}", logging.WARNING)
        else:
            trace.accept(extension.name, f"priority {extension.priority}, the highest available here")
            return functions
    return None


def _loaded(extension: KernelExtension) -> Any:
    """Load an implementation.

    Raises:
        OpLoadError: when its ``load()`` returns None.
    """
    functions = extension.load()
    if functions is None:
        msg = f"loading {extension.name!r} failed: its load() returned None. Fix: return an object with the kernel's functions."
        raise OpLoadError(msg)
    return functions


def _available(implementations: Sequence[Any], trace: Trace) -> Iterator[KernelExtension]:
    """Yield the implementations whose hardware is present, best first; checks no more of them than the caller takes."""
    for known in sorted(map(_described, implementations), key=lambda one: -one.priority):
        try:
            extension = known() if isinstance(known, type) else known
            is_available = extension.is_available()
        except Exception as error:  # noqa: BLE001  # one broken implementation must not stop the others
            _reject(trace, known.name, error)
            continue
        if is_available:
            yield extension
        else:
            trace.reject(known.name, "its hardware was not found")


def _is_compatible(extension: KernelExtension, trace: Trace) -> bool:
    try:
        extension.assert_compatible()
    except Exception as error:  # noqa: BLE001  # one broken implementation must not stop the others
        _reject(trace, extension.name, error)
        return False
    return True


def _reject(trace: Trace, name: str, error: Exception) -> None:
    trace.reject(name, _reason(error), logging.INFO if isinstance(error, OpError) else logging.WARNING)


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, OpError) else f"{type(error).__name__}: {error}"
