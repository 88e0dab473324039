"""The name ``shm`` for ``torch.distributed``, registered without importing what is behind it.

``import torch`` calls :func:`register`, by the entry point group ``torch.backends``, unless ``TORCH_DEVICE_BACKEND_AUTOLOAD=0``.
"""

from __future__ import annotations

import atexit
import sys
from typing import Any

__all__ = ["BACKEND_NAME", "register"]

BACKEND_NAME = "shm"


def register() -> None:
    """Make ``"shm"`` a backend of ``torch.distributed``; once more changes nothing."""
    import torch.distributed as dist

    if dist.is_available() and BACKEND_NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(BACKEND_NAME, _create, extended_api=True, devices=["cpu"])
        # After the hooks of programs, which they register later: torch's import is among the first things that they do.
        atexit.register(_end)


def _create(options: Any, _backend_options: Any = None) -> Any:
    """Return the backend of a new group; torch calls this on every rank of it."""
    from . import shm, torch_functions

    torch_functions.extend(BACKEND_NAME)
    ranks = list(options.global_ranks_in_group)
    return shm.create(options.store, options.group_rank, options.group_size, options.timeout, ranks)


def _end() -> None:
    """Stop the backend's threads, if there are any, before Python ends."""
    used = sys.modules.get(f"{__package__}.shm")
    if used is not None:
        used.before_python_ends()
