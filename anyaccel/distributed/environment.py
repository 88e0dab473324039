"""The environment variables that this package reads, each named here and nowhere else.

===================  ==============================================================================================
ANYACCEL_SHM_HOST    ranks share memory only with those of the same value: pretend hosts on one machine, for tests
===================  ==============================================================================================
"""

from __future__ import annotations

import os

__all__ = ["pretended_host"]


def pretended_host() -> str:
    """Return the value of ``ANYACCEL_SHM_HOST``, empty when unset."""
    return os.environ.get("ANYACCEL_SHM_HOST", "")
