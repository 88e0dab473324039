"""The choice among the implementations of a kernel, by hardware and priority: the best is tried first, the rest not asked."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar

from .engine.errors import NoKernelError, OpError
from .engine.trace import Trace
from .kernel_extensions import KernelExtension

__all__ = ["KernelLoader", "best_of"]

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class KernelLoader:
    """Chooses among the implementations of one kernel, and loads it.

    Attributes:
        REGISTRY: the implementations, or their classes; every loader has a list of its own.
    """

    REGISTRY: ClassVar[list[KernelExtension | type[KernelExtension]]] = []

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.REGISTRY = [*map(_require_extension, cls.__dict__.get("REGISTRY", ()))]

    @classmethod
    def register_extension(cls, extension: Any) -> None:
        """Add an implementation; one of the same name is replaced.

        Args:
            extension: its class, a subclass of ``KernelExtension``.

        Raises:
            TypeError: when it is not one, lacks a method, or its name or priority is none.
        """
        _require_extension(extension)
        name = _described(extension).name
        cls.REGISTRY[:] = [known for known in cls.REGISTRY if _described(known).name != name]
        cls.REGISTRY.append(extension)

    def load(self, ext_name: str | None = None) -> Any:
        """Load an implementation; see :meth:`functions`."""
        return self.functions(ext_name)

    def functions(self, ext_name: str | None = None) -> Any:
        """Load an implementation.

        Args:
            ext_name: its name; by default the one of highest priority among those that serve here, and when that cannot
                be loaded the next, which the log tells.

        Returns:
            The kernel's functions.

        Raises:
            NoKernelError: when there is none, or none of that name, saying of each why not.
            OpError: when the one that was named cannot be loaded.
        """
        if ext_name is not None:
            extension = self._named(ext_name)
            if not extension.is_available():
                name = type(self).__name__
                msg = f"{name} failed: got {ext_name!r}; expected one for this machine. Fix: {name}().load() chooses."
                raise NoKernelError(msg)
            extension.assert_compatible()
            return extension.load()
        trace = Trace(type(self).__name__)
        functions = best_of(self.REGISTRY, trace)
        if functions is None:
            raise self._none_of(trace)
        return functions

    def usable(self, trace: Trace) -> list[KernelExtension]:
        """Return the implementations that serve here, best first; builds nothing.

        Args:
            trace: says of every other one why not.
        """
        return [extension for extension in _available(self.REGISTRY, trace) if _is_compatible(extension, trace)]

    def _named(self, ext_name: str) -> KernelExtension:
        described = [_described(known) for known in self.REGISTRY]
        for known in described:
            if known.name == ext_name:
                return known() if isinstance(known, type) else known
        choices = ", ".join(known.name for known in described) or "none"
        msg = f"{type(self).__name__} failed: got {ext_name!r}; expected one of: {choices}. Fix: correct the name."
        raise NoKernelError(msg)

    def _none_of(self, trace: Trace) -> NoKernelError:
        name = type(self).__name__
        if not self.REGISTRY:
            msg = f"{name} failed: it has no implementation. Fix: {name}.register_extension(one of your own)."
            return NoKernelError(msg)
        msg = (
            f"{name} failed: no implementation can be used here: {trace}. "
            f"Fix: remove what stops the implementation that this machine should use."
        )
        return NoKernelError(msg)


def _described(extension: KernelExtension | type[KernelExtension]) -> KernelExtension | type[KernelExtension]:
    """Return what has the name and the priority: the class, or an instance where ``__init__`` sets them."""
    has_both = isinstance(getattr(extension, "name", None), str) and isinstance(extension.priority, int)
    return extension if has_both or not isinstance(extension, type) else extension()


def _require_extension(extension: Any) -> type[KernelExtension]:
    """Return an implementation's class, when it is whole.

    Raises:
        TypeError: saying what is missing.
    """
    problem = ""
    if not (isinstance(extension, type) and issubclass(extension, KernelExtension)):
        problem = "expected a subclass of KernelExtension. Fix: pass the class"
    elif extension.__abstractmethods__:
        problem = f"expected one with {', '.join(sorted(extension.__abstractmethods__))}. Fix: define them"
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
    except Exception as error:  # noqa: BLE001  # whatever its __init__ raises
        return f"making one raised {type(error).__name__}: {error}. Fix: give it an __init__ without arguments"
    if not isinstance(getattr(described, "name", None), str):
        return "expected one with a name. Fix: name = '...'"
    if not isinstance(getattr(described, "priority", None), int):
        return "expected a priority that is a whole number. Fix: priority = 1"
    return ""


def best_of(implementations: Sequence[KernelExtension | type[KernelExtension]], trace: Trace | None = None) -> Any:
    """Load the best implementation that serves here; the next where it cannot be loaded, and None where none can.

    Args:
        implementations: those to choose among, or their classes.
        trace: says of every one before the one that was loaded why not.
    """
    trace = trace or Trace("the best implementation")
    for extension in _available(implementations, trace):
        if not (extension.load_checks or _is_compatible(extension, trace)):
            continue
        try:
            functions = extension.load()
        except Exception as error:  # noqa: BLE001  # one implementation's fault is not another's
            trace.reject(extension.name, f"it serves here, but {_reason(error)}", logging.WARNING)
        else:
            trace.accept(extension.name, f"priority {extension.priority}, the highest that serves here")
            return functions
    return None


def _available(implementations: Sequence[Any], trace: Trace) -> Iterator[KernelExtension]:
    """Yield the implementations whose hardware is here, best first; those after the one that is taken are not asked."""
    for known in sorted(map(_described, implementations), key=lambda one: -one.priority):
        try:
            extension = known() if isinstance(known, type) else known
            is_available = extension.is_available()
        except Exception as error:  # noqa: BLE001  # one implementation's fault is not another's
            _reject(trace, known.name, error)
            continue
        if is_available:
            yield extension
        else:
            trace.reject(known.name, "its hardware was not found")


def _is_compatible(extension: KernelExtension, trace: Trace) -> bool:
    try:
        extension.assert_compatible()
    except Exception as error:  # noqa: BLE001  # one implementation's fault is not another's
        _reject(trace, extension.name, error)
        return False
    return True


def _reject(trace: Trace, name: str, error: Exception) -> None:
    trace.reject(name, _reason(error), logging.INFO if isinstance(error, OpError) else logging.WARNING)


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, OpError) else f"{type(error).__name__}: {error}"
