"""deepspeed's own builders, for ops and functions that are missing here."""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
import pkgutil
from typing import TYPE_CHECKING, Any

from ...op_builder import BuildStoppedError, OpError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["every_builder_name", "find_builder"]

_logger = logging.getLogger(__name__)


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
    if found is None:
        return theirs
    return found if theirs is None or theirs.__name__ == "NotImplementedBuilder" else _both(found, theirs)


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
    """Return deepspeed's own accelerator for a device, or None if it has none."""
    try:
        module = importlib.import_module(f"deepspeed.accelerator.{device}_accelerator")
    except ImportError:
        return None
    classes = inspect.getmembers(module, inspect.isclass)
    return next(found for name, found in classes if name.lower() == f"{device}_accelerator")()


def _deepspeeds(class_name: str, device: str) -> Any:
    theirs = _accelerator(device)
    return None if theirs is None else theirs.get_op_builder(class_name)


@functools.cache
def _both(ours: Any, theirs: Any) -> Any:
    """Return a class that uses our op, and deepspeed's if ours cannot be loaded, lacks a function or does not support a call."""

    class Both(ours):  # type: ignore[misc]
        def require_torch(self) -> None:
            ours().require_torch()

        def is_compatible(self, verbose: bool = False) -> bool:
            return bool(ours().is_compatible(verbose) or theirs().is_compatible(verbose))

        def load(self, verbose: bool = False) -> Any:
            return _load(ours().load, theirs, verbose)

        def jit_load(self, verbose: bool = True) -> Any:
            return _load(ours().jit_load, theirs, verbose)

    Both.__name__ = Both.__qualname__ = ours.__name__
    Both.__module__ = ours.__module__
    return Both


def _load(load_ours: Callable[[bool], Any], theirs: Any, verbose: bool) -> Any:
    try:
        ours = load_ours(verbose)
    except BuildStoppedError:
        raise
    except OpError as error:
        try:
            functions = _load_theirs(theirs)
        except Exception as another:
            raise error from another
        _say_once(f"{theirs.__name__} loads deepspeed's own op, as anyaccel's failed: {error}")
        return functions
    return _functions(ours, theirs)


@functools.cache
def _functions(ours: Any, theirs: Any) -> _Functions:
    """Return the same object for an op on every call, like ``load()`` without deepspeed."""
    return _Functions(ours, theirs)


@functools.cache
def _load_theirs(theirs: Any) -> Any:
    return theirs().load()


@functools.cache
def _say_once(text: str) -> None:
    _logger.warning("%s", text)


class _Functions:
    def __init__(self, ours: Any, theirs: Any) -> None:
        self._ours = ours
        self._theirs = theirs

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._ours, name, None)
        if found is None:
            _logger.info("%s comes from deepspeed's %s, as it is not here", name, self._theirs.__name__)
            found = getattr(_load_theirs(self._theirs), name)
        elif callable(found):
            found = self._with_stand_in(name, found)
        setattr(self, name, found)
        return found

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
                _say_once(f"{name} uses deepspeed's own function for calls that anyaccel's does not support: {refusal}")
                return stand_in(*arguments, **options)

        return call
