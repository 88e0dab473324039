"""deepspeed's own builders, for ops and functions that are missing here."""

from __future__ import annotations

import copyreg
import functools
import importlib
import inspect
import logging
import pkgutil
from abc import ABCMeta
from typing import TYPE_CHECKING, Any

from ...op_builder import BuildStoppedError, OpError
from .served import note

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["every_builder_name", "find_builder"]


def find_builder(class_name: str, device: str, found: Any) -> Any:
    """Return the builder class for deepspeed: ours, deepspeed's, or one that combines both.

    Args:
        class_name: such as ``"AsyncIOBuilder"``.
        device: the device's name.
        found: our class, or None.
    """
    if class_name == "ShareMemCommBuilder":
        from .shm_comm import ShareMemCommBuilder

        return ShareMemCommBuilder
    theirs = _deepspeeds(class_name, device)
    is_theirs = theirs is not None and theirs.__name__ != "NotImplementedBuilder"
    if class_name == "CCLCommBuilder" and is_theirs:
        from ...distributed import environment
        from .shm_comm import CCLCommBuilder

        if not environment.oneccl_root():
            return CCLCommBuilder
        return _theirs_alone(theirs, "CCL_ROOT names an installation of oneCCL")
    if found is None:
        return _theirs_alone(theirs, "anyaccel has none for this device") if is_theirs else theirs
    return _both(found, theirs if is_theirs else None)


def every_builder_name(device: str) -> list[str]:
    """Return the names of deepspeed's builders for a device, followed by ours."""
    from ...op_builder import BUILDERS

    theirs = _accelerator(device)
    names = [] if theirs is None else _names_in(theirs.op_builder_dir())
    return list(dict.fromkeys([*names, *BUILDERS]))


def _names_in(package: str) -> list[str]:
    folder = importlib.import_module(package).__path__
    modules = [found.name for found in pkgutil.iter_modules(folder) if found.name not in ("all_ops", "builder")]
    return [
        name
        for module in modules
        for name in dir(importlib.import_module(f"{package}.{module}"))
        if name.endswith("Builder")
    ]


@functools.cache
def _accelerator(device: str) -> Any:
    """Return deepspeed's own accelerator for a device, or None if it has none; AMD's GPUs have CUDA's."""
    device = "cuda" if device == "hip" else device  # anyaccel: ignore[device-name]
    try:
        module = importlib.import_module(f"deepspeed.accelerator.{device}_accelerator")
    except ImportError:
        return None
    classes = inspect.getmembers(module, inspect.isclass)
    return next(found for name, found in classes if name.lower() == f"{device}_accelerator")()


def _deepspeeds(class_name: str, device: str) -> Any:
    theirs = _accelerator(device)
    return None if theirs is None else theirs.get_op_builder(class_name)


class _Made(ABCMeta):
    """The class of the classes that are made here: they are pickled as what makes them, not by the names that they borrow."""

    made_by: tuple[Callable[..., Any], tuple[Any, ...]]


copyreg.pickle(_Made, lambda cls: cls.made_by)


@functools.cache
def _theirs_alone(theirs: Any, reason: str) -> Any:
    """Return deepspeed's class, which notes that its op is used."""

    class Theirs(theirs, metaclass=_Made):  # type: ignore[misc]
        made_by = (_theirs_alone, (theirs, reason))

        def load(self, *arguments: Any, **options: Any) -> Any:
            functions = super().load(*arguments, **options)
            note(theirs, reason=reason)
            return functions

    return _named(Theirs, theirs)


@functools.cache
def _both(ours: Any, theirs: Any) -> Any:
    """Return a class that uses our op, and deepspeed's if ours cannot be loaded, lacks a function or does not support a call.

    Args:
        ours: our class.
        theirs: deepspeed's class, or None if it has none.
    """

    class Both(ours, metaclass=_Made):  # type: ignore[misc]
        made_by = (_both, (ours, theirs))

        def require_torch(self) -> None:
            ours().require_torch()

        def is_compatible(self, verbose: bool = False) -> bool:
            return bool(ours().is_compatible(verbose) or (theirs is not None and theirs().is_compatible(verbose)))

        def load(self, verbose: bool = False) -> Any:
            return _load(ours, ours().load, theirs, verbose)

        def jit_load(self, verbose: bool = True) -> Any:
            return _load(ours, ours().jit_load, theirs, verbose)

    return _named(Both, ours)


def _named(made: Any, builder: Any) -> Any:
    """Return a class with the name of the builder's, so that it is found and shown as that one."""
    made.__name__ = made.__qualname__ = builder.__name__
    made.__module__ = builder.__module__
    return made


def _load(ours: Any, load_ours: Callable[[bool], Any], theirs: Any, verbose: bool) -> Any:
    try:
        functions = load_ours(verbose)
    except BuildStoppedError:
        raise
    except OpError as error:
        if theirs is None:
            raise
        try:
            functions = _load_theirs(theirs)
        except Exception as another:
            raise error from another
        note(ours, reason=f"anyaccel's failed: {error}", level=logging.WARNING)
        return functions
    note(ours)
    return functions if theirs is None else _functions(functions, ours, theirs)


@functools.cache
def _functions(functions: Any, ours: Any, theirs: Any) -> _Functions:
    """Return the same object for an op on every call, like ``load()`` without deepspeed."""
    return _Functions(functions, ours, theirs)


def _load_theirs(theirs: Any) -> Any:
    """Return deepspeed's op; one that could not be built is not tried again, which would take as long each time."""
    loaded, error = _loaded(theirs)
    if error is not None:
        raise error
    return loaded


@functools.cache
def _loaded(theirs: Any) -> tuple[Any, Exception | None]:
    try:
        return theirs().load(), None
    except Exception as error:  # noqa: BLE001  # it is raised by who asks
        return None, error


class _Functions:
    def __init__(self, functions: Any, ours: Any, theirs: Any) -> None:
        self._functions = functions
        self._ours = ours
        self._theirs = theirs

    def __getattr__(self, name: str) -> Any:
        found = None if name.startswith("__") else getattr(self._functions, name, None)
        # Python's own questions, as when copying, and a notebook's, such as _repr_html_, must not compile anything.
        if found is None and name.startswith("_"):
            raise AttributeError(name)
        if found is None:
            found = self._stand_in(name)
            note(self._ours, name, "anyaccel has none")
        elif callable(found) and not isinstance(found, type):
            found = self._with_stand_in(name, found)
        setattr(self, name, found)
        return found

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._functions)})

    def _stand_in(self, name: str) -> Any:
        """Return deepspeed's function; an AttributeError, as ``hasattr`` expects, says why there is none."""
        try:
            return getattr(_load_theirs(self._theirs), name)
        except AttributeError:
            raise
        except Exception as error:
            msg = f"the op of {self._ours.__name__} has no '{name}', and deepspeed's own op cannot be loaded: {error}"
            raise AttributeError(msg) from error

    def _with_stand_in(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that calls deepspeed's if ours raises, before writing, that it does not support the call."""

        @functools.wraps(function)
        def call(*arguments: Any, **options: Any) -> Any:
            try:
                return function(*arguments, **options)
            except NotImplementedError as refusal:
                try:
                    stand_in = getattr(_load_theirs(self._theirs), name)
                except Exception as another:
                    raise refusal from another
                note(self._ours, name, f"anyaccel's does not support a call: {refusal}", logging.WARNING)
                return stand_in(*arguments, **options)

        return call
