"""The environment variables that this package reads, each named here and nowhere else.

===================  ==============================================================================================
ANYACCEL_SHM_HOST    ranks share memory only with those of the same value: pretend hosts on one machine, for tests
CCL_ROOT             Intel's oneCCL: where it is set, deepspeed's CCLCommBuilder stays deepspeed's own
MASTER_ADDR          set by launchers: the first rank's host, which deepspeed's CCLCommBuilder names to the other ranks
===================  ==============================================================================================
"""

from __future__ import annotations

import os

from ..accelerator.errors import EnvironmentVariableError

__all__ = ["main_host", "oneccl_root", "pretended_host"]


def pretended_host() -> str:
    """Return the value of ``ANYACCEL_SHM_HOST``, empty when unset.

    Raises:
        EnvironmentVariableError: when it is not UTF-8.
    """
    name = os.environ.get("ANYACCEL_SHM_HOST", "")
    if any(0xD800 <= ord(letter) <= 0xDFFF for letter in name):
        msg = (
            f"reading the environment failed: got ANYACCEL_SHM_HOST={name!r}; expected a name in UTF-8. "
            f"Fix: unset ANYACCEL_SHM_HOST, or set it to another name."
        )
        raise EnvironmentVariableError(msg)
    return name


def oneccl_root() -> str:
    """Return the folder of Intel's oneCCL, ``CCL_ROOT``; empty when unset."""
    return os.environ.get("CCL_ROOT", "")


def main_host() -> str:
    """Return the address of the first rank's host, ``MASTER_ADDR``; this host's own when unset."""
    return os.environ.get("MASTER_ADDR") or "127.0.0.1"
