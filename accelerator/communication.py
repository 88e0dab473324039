"""Backends that torch.distributed does not include: importing the package that provides one registers it.

Intel's oneCCL bindings register ``ccl``; other packages announce backends, such as ``shm``, with entry points.
"""

from __future__ import annotations

import functools
import importlib
import logging

from .errors import SelectionError

__all__ = ["BACKEND_GROUP", "is_oneccl_importable", "require_backend"]

BACKEND_GROUP = "anyaccel.communication_backends"
"""The group of entry points: a backend's name, and a function that registers it with torch.distributed."""

_PACKAGES = ("oneccl_bindings_for_pytorch", "torch_ccl")
_logger = logging.getLogger(__name__)


@functools.cache
def is_oneccl_importable() -> bool:
    """Return whether oneCCL's bindings can be imported; a broken installation is logged and counts as missing."""
    for package in _PACKAGES:
        try:
            importlib.import_module(package)
        except ModuleNotFoundError:
            continue
        except Exception as error:  # noqa: BLE001  # whatever a third party's package raises
            _logger.warning("%s is installed and cannot be imported, so 'ccl' is not used: %s", package, error)
            continue
        return True
    return False


def require_backend(name: str, asked_by: str) -> str:
    """Return a backend's name after making sure that torch.distributed has it, registering it if a package announces it.

    Args:
        name: such as ``"shm"``.
        asked_by: the variable or argument that named it, for the error message.

    Raises:
        SelectionError: when no package provides it, or it cannot be registered.
    """
    from importlib.metadata import entry_points

    if name in _usable_backends():
        return name
    announced = {one.name: one for one in entry_points(group=BACKEND_GROUP)}
    if name not in announced:
        choices = ", ".join(sorted({*announced, *_usable_backends()}))
        msg = (
            f"choosing the communication backend failed: got {asked_by}={name!r}; expected one of: {choices}. "
            f"Fix: set {asked_by} to one of these, or install the package that provides {name!r}."
        )
        raise SelectionError(msg)
    try:
        announced[name].load()()
    except Exception as error:  # a third party's package may raise anything
        msg = (
            f"choosing the communication backend failed: got {asked_by}={name!r}, which {announced[name].value} could not "
            f"register: {error}. Fix: reinstall that package, or unset {asked_by}."
        )
        raise SelectionError(msg) from error
    return name


def _usable_backends() -> list[str]:
    """Return the registered backends that this torch is built with."""
    import torch.distributed as dist

    known = (name for name in dist.Backend.backend_list if name != dist.Backend.UNDEFINED)
    return [name for name in known if getattr(dist, f"is_{name}_available", lambda: True)()]
