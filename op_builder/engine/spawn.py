"""Starts programs while no thread forks.

A child forked in the middle of a start would hold copies of the pipes on which the starter waits, for as long as the child
lives; and where the child waits for the very build that the program is for, both would wait for ever.
"""

from __future__ import annotations

import os
import subprocess
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["run", "start"]

_starting = threading.RLock()


def start(command: Sequence[str | os.PathLike[str]], **options: Any) -> subprocess.Popen[str]:
    """Start a program whose output is text; arguments as of ``subprocess.Popen``.

    Raises:
        OSError: when it cannot be started.
    """
    with _starting:
        return subprocess.Popen(list(command), text=True, errors="replace", **options)  # noqa: S603


def run(
    command: Sequence[str | os.PathLike[str]], timeout: float | None = None, **options: Any
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, and keep what it says.

    Args:
        command: the program and its arguments.
        timeout: in seconds, after which it is ended.
        **options: as of ``subprocess.Popen``.

    Raises:
        OSError: when it cannot be started.
        subprocess.TimeoutExpired: when it does not end in time.
    """
    with start(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options) as process:
        try:
            said, complaints = process.communicate(timeout=timeout)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, said, complaints)


def _renew_lock() -> None:
    global _starting
    _starting = threading.RLock()


os.register_at_fork(  # by name each time: a child's own children meet another lock
    before=lambda: _starting.acquire(),  # noqa: PLW0108
    after_in_parent=lambda: _starting.release(),  # noqa: PLW0108
    after_in_child=_renew_lock,
)
