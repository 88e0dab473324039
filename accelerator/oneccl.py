"""Whether Intel's oneCCL bindings are here; importing them registers the ``ccl`` backend with torch.distributed."""

from __future__ import annotations

import functools
import importlib
import logging

__all__ = ["is_oneccl_importable"]

_PACKAGES = ("oneccl_bindings_for_pytorch", "torch_ccl")
_logger = logging.getLogger(__name__)


@functools.cache
def is_oneccl_importable() -> bool:
    """Return whether oneCCL's bindings could be imported; a broken install counts as absent and is logged."""
    for package in _PACKAGES:
        try:
            importlib.import_module(package)
        except ModuleNotFoundError:
            continue
        except (ImportError, OSError, RuntimeError) as error:
            _logger.warning("%s is installed and cannot be imported, so 'ccl' is not used: %s", package, error)
            continue
        return True
    return False
