"""Chooses the accelerator of this process: the registry, and the order of candidates.

``set_accelerator`` › ``DS_ACCELERATOR`` › entry points in the group ``anyaccel.accelerators`` › cuda › xpu › any other
device that ``torch.accelerator`` names › cpu. An explicit choice that cannot be used
raises; an automatic one is logged once, with the reason for every rejection.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import logging
import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from . import environment
from .adoption import adopt
from .detection import rejection
from .errors import SelectionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from importlib.metadata import EntryPoint

    from .abstract_accelerator import DeepSpeedAccelerator

__all__ = ["Candidate", "candidates", "get_accelerator", "set_accelerator", "use_accelerator"]

ENTRY_POINT_GROUP = "anyaccel.accelerators"

REGISTRY: dict[str, str] = {
    "cuda": "cuda_accelerator:CUDA_Accelerator",  # anyaccel: ignore[device-name]
    "xpu": "xpu_accelerator:XPU_Accelerator",
    "cpu": "cpu_accelerator:CPU_Accelerator",
}
"""The accelerators with a file in this package, in the order of preference."""

_logger = logging.getLogger(__name__)
_lock = threading.RLock()


_is_held_for_fork = False
_MOST_SECONDS_BEFORE_FORK = 30.0  # a thread that forks during an import may hold what the choice waits for
_choosing: set[int] = set()  # the threads that choose, or import plug-ins for that
_forking: set[int] = set()  # the threads that fork: none begins to choose meanwhile
_changed = threading.Condition()


def _hold_lock() -> None:
    """Let a choice in another thread end before a fork: the child would hang on a module that it was importing."""
    global _is_held_for_fork
    me = threading.get_ident()
    with _changed:
        _forking.add(me)
        is_chosen = _changed.wait_for(lambda: _choosing <= {me}, _MOST_SECONDS_BEFORE_FORK)
    _is_held_for_fork = _lock.acquire(timeout=_MOST_SECONDS_BEFORE_FORK if is_chosen else 0.0)


def _release_lock() -> None:
    if _is_held_for_fork:
        _lock.release()
    with _changed:
        _forking.discard(threading.get_ident())
        _changed.notify_all()


def _renew_lock() -> None:
    """Replace the locks in a forked child: their holders, threads of the parent, may not exist there."""
    global _lock, _changed
    _lock = threading.RLock()
    _changed = threading.Condition()
    _choosing.intersection_update({threading.get_ident()})
    _forking.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_hold_lock, after_in_parent=_release_lock, after_in_child=_renew_lock)

_current: DeepSpeedAccelerator | None = None
_detected: DeepSpeedAccelerator | None = None


class Candidate(NamedTuple):
    """An accelerator that might be used here, and whether it can be.

    Attributes:
        name: its name for ``DS_ACCELERATOR``.
        source: ``entry point <package>``, ``built in`` or ``torch``.
        make: returns the accelerator.
        rejection: why it cannot be used now; empty if it can be.
    """

    name: str
    source: str
    make: Callable[[], DeepSpeedAccelerator]
    rejection: str

    @property
    def is_available(self) -> bool:
        """Return whether it can be used now."""
        return not self.rejection


def get_accelerator() -> DeepSpeedAccelerator:
    """Return the accelerator that this process uses, choosing one on the first call.

    Returns:
        The same object on every call, until ``set_accelerator`` or ``use_accelerator`` replaces it.

    Raises:
        SelectionError: when ``DS_ACCELERATOR`` names one that cannot be used.
    """
    return _current if _current is not None else _first_use()


def set_accelerator(accel_obj: DeepSpeedAccelerator) -> None:
    """Use an accelerator from now on, whatever device detection would choose.

    Args:
        accel_obj: an instance of ``anyaccel.DeepSpeedAccelerator``, of deepspeed's class of that name, or any object with
            every required member. Members that only our contract has are added to an object that lacks them.

    Raises:
        NotAnAcceleratorError: (a TypeError) that names the missing members.
    """
    global _current
    name = adopt(accel_obj)._name
    with _lock:
        _current = accel_obj
    _logger.info("accelerator set to '%s' by the program", name)


@contextlib.contextmanager
def use_accelerator(accel_obj: DeepSpeedAccelerator) -> Iterator[DeepSpeedAccelerator]:
    """Use an accelerator inside a ``with`` block, and the previous one again afterwards.

    The choice is per process, not per thread: blocks in several threads must not overlap.

    Args:
        accel_obj: as for :func:`set_accelerator`.
    """
    global _current
    previous = _current
    set_accelerator(accel_obj)
    try:
        yield accel_obj
    finally:
        with _lock:
            _current = previous


def candidates() -> list[Candidate]:
    """Return every accelerator that might be used here, in the order of preference.

    It creates no device context, so a child process forked afterwards can still use every device.
    """
    found = _plug_in_candidates(environment.requested_accelerator())
    for name in REGISTRY:
        if name == "cpu":
            found += _other_torch_candidates({candidate.name for candidate in found})
        found.append(Candidate(name, "built in", partial(_make_built_in, name), _rejection(name)))
    return found


def _rejection(name: str) -> str:
    """Return why a device cannot be used here; a driver or an extension that fails must not stop a program for another device."""
    try:
        return rejection(name)
    except BaseException as error:  # noqa: BLE001  # it may be pyo3's panic, or a skipped test
        _require_no_end(error)
        told = f"{type(error).__name__}: {error}"
        _logger.warning("looking for the device '%s' failed, and it is skipped: %s", name, told)
        return told


def _first_use() -> DeepSpeedAccelerator:
    """Choose an accelerator and store it in ``_current``, except while torch.compile traces.

    Storing it during tracing would break the guard on ``_current`` with which the trace begins.
    """
    global _current
    _detect()
    import torch

    if not torch.compiler.is_compiling():
        with _lock:
            _current = _current or _detected
    chosen = _current or _detected
    assert chosen is not None  # noqa: S101  # _detect raises or sets it
    return chosen


def _detect() -> bool:
    """Set ``_detected`` once; torch.compile runs this function while tracing instead of tracing it."""
    global _detected
    if _detected is not None:
        return True
    me = threading.get_ident()
    if me in _choosing:
        msg = (
            "choosing the accelerator failed: got a call of get_accelerator() while a plug-in is imported or made; "
            "expected none before it is chosen. Fix: call it in the plug-in's functions, not when it is imported or made."
        )
        raise SelectionError(msg)
    with _changed:
        _changed.wait_for(lambda: _forking <= {me})
        _choosing.add(me)
    try:
        # without the lock: an import may wait for one in another thread, which waits for the lock
        for entry_point, is_used in _plug_ins(environment.requested_accelerator()):
            if is_used:
                _load_plug_in(entry_point)
        with _lock:
            _detected = _detected or _select()
    finally:
        with _changed:
            _choosing.discard(me)
            _changed.notify_all()
    return True


_detect._dynamo_marked_constant = True  # type: ignore[attr-defined]  # like torch.compiler.assume_constant_result


def _select() -> DeepSpeedAccelerator:
    requested = environment.requested_accelerator()
    found = candidates()
    if requested is not None:
        return _make_requested(requested, found)
    chosen = next(candidate for candidate in found if candidate.is_available)
    rejections = "; ".join(f"{candidate.name}: {candidate.rejection}" for candidate in found if candidate.rejection)
    _logger.info("accelerator '%s' (%s) chosen%s", chosen.name, chosen.source, rejections and f"; not {rejections}")
    return chosen.make()


def _make_requested(requested: str, found: list[Candidate]) -> DeepSpeedAccelerator:
    for candidate in found:
        if candidate.name == requested and candidate.is_available:
            _logger.info("accelerator '%s' (%s) chosen by DS_ACCELERATOR", candidate.name, candidate.source)
            return candidate.make()
    choices = ", ".join(f"{candidate.name} ({candidate.rejection or 'available'})" for candidate in found)
    msg = (
        f"choosing the accelerator failed: got DS_ACCELERATOR={requested!r}; expected an available one of: {choices}. "
        f"Fix: unset DS_ACCELERATOR, or install what that accelerator lacks."
    )
    raise SelectionError(msg)


def _make_built_in(name: str) -> DeepSpeedAccelerator:
    module, class_name = REGISTRY[name].split(":")
    made: DeepSpeedAccelerator = getattr(importlib.import_module(f".{module}", __package__), class_name)()
    return made


def _other_torch_candidates(known: set[str]) -> list[Candidate]:
    import torch

    try:
        device = torch.accelerator.current_accelerator()
    except Exception as error:  # noqa: BLE001  # torch 2.6 raises where there is none; a driver may raise anything
        _logger.info("torch finds no accelerator: %s: %s", type(error).__name__, error)
        return []
    if device is None or device.type in known:
        return []
    from .torch_accelerator import TorchAccelerator

    name = device.type
    try:
        available = TorchAccelerator(name).is_available()
    except Exception as error:  # noqa: BLE001
        told = str(error) if isinstance(error, SelectionError) else f"{type(error).__name__}: {error}"
        return [Candidate(name, "torch", partial(TorchAccelerator, name), told)]
    problem = "" if available else "torch is built for it but finds no device"
    return [Candidate(name, "torch", partial(TorchAccelerator, name), problem)]


def _plug_in_candidates(requested: str | None) -> list[Candidate]:
    """Make the accelerator of each plug-in; one that raises is rejected with its error.

    Importing a plug-in may register a device with torch, so if an accelerator is requested, only its plug-in is imported; for
    the CPU none is, whatever it is called.
    """
    found = []
    for entry_point, is_used in _plug_ins(requested):
        package = entry_point.dist.name if entry_point.dist is not None else entry_point.value
        if is_used:
            made, problem = _make_plug_in(entry_point)
        else:
            made, problem = None, f"not imported: DS_ACCELERATOR={requested}"
        found.append(Candidate(entry_point.name, f"entry point of {package}", partial(_made, made), problem))
    return found


def _plug_ins(requested: str | None) -> list[tuple[EntryPoint, bool]]:
    """Return every plug-in, and whether it is imported."""
    from importlib.metadata import entry_points

    every = entry_points(group=ENTRY_POINT_GROUP)
    return [(one, requested is None or (requested == one.name and requested != "cpu")) for one in every]


@functools.cache
def _load_plug_in(entry_point: EntryPoint) -> Any:
    """Import a plug-in once per process; return what makes its accelerator, or the exception."""
    try:
        return entry_point.load()
    except BaseException as error:  # noqa: BLE001  # it may be pyo3's panic, or a skipped test
        _require_no_end(error)
        return error


def _require_no_end(error: BaseException) -> None:
    """Raise an exception again with which a user ends the program; no other one that a plug-in raises must stop it."""
    if isinstance(error, (KeyboardInterrupt, GeneratorExit)):
        raise error


@functools.cache
def _make_plug_in(entry_point: EntryPoint) -> tuple[DeepSpeedAccelerator | None, str]:
    """Return a plug-in's accelerator, made once per process, and the reason if it cannot be used."""
    try:
        factory = _load_plug_in(entry_point)
        if isinstance(factory, BaseException):
            raise factory
        made = adopt(factory())
        return made, "" if made.is_available() else "its is_available() returned False"
    except BaseException as error:  # noqa: BLE001  # it may be pyo3's panic, or a skipped test
        _require_no_end(error)
        told = f"{type(error).__name__}: {error}"
        _logger.warning(
            "the accelerator plug-in '%s' (%s) failed and is skipped: %s", entry_point.name, entry_point.value, told
        )
        return None, told


def _made(accelerator: DeepSpeedAccelerator | None) -> DeepSpeedAccelerator:
    assert accelerator is not None  # noqa: S101  # only available candidates are made
    return accelerator
