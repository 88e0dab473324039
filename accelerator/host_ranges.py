"""Named ranges in ``torch.profiler``, for devices without their own range API.

Inside ``torch.compile`` they do nothing, like torch's own ``record_function``.
"""

from __future__ import annotations

import threading
from typing import Any

__all__ = ["pop", "push"]


class _OpenRanges(threading.local):
    def __init__(self) -> None:
        self.stack: list[Any] = []


_open = _OpenRanges()


def push(msg: str) -> None:
    """Open a range in this thread."""
    import torch

    if torch.compiler.is_compiling():
        return
    opened = torch.profiler.record_function(msg)
    opened.__enter__()
    _open.stack.append(opened)


def pop() -> None:
    """Close the range that this thread opened last, if there is one: what only shows a program must not end it."""
    import torch

    if not torch.compiler.is_compiling() and _open.stack:
        _open.stack.pop().__exit__(None, None, None)
