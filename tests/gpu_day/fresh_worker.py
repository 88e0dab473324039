"""A plug-in for pytest with ``-n 1``: a test that leaves the GPU unusable ends the process, and pytest-xdist starts a new one.

After an illegal memory access, every further call of CUDA in the process fails: one wrong kernel would fail all later tests.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest


def is_usable() -> bool:
    """Return whether CUDA still works in this process, if it has used it."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        try:
            torch.cuda.synchronize()
        except RuntimeError:  # torch.AcceleratorError is one
            return False
    return True


class Worker:
    """Ends its process after a failed test that left the GPU unusable."""

    def __init__(self) -> None:
        self._has_failed = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Remember that a phase of the test failed."""
        self._has_failed |= report.failed

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        """End the process when it cannot run the next test; the reports of this one are sent."""
        if self._has_failed and not is_usable():
            os._exit(1)
        self._has_failed = False


def pytest_configure(config: pytest.Config) -> None:
    """Register the hooks in workers: only those are replaced."""
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Worker(), "fresh_worker")
