"""What can go wrong between a builder's name and a loaded op.

OpError (RuntimeError)
├── ToolchainError      no usable compiler, or none for these sources
├── BuildError          the compiler or linker failed; carries the command, the first errors and the log's path
├── CacheError          the cache directory is unsafe to load code from
├── NoKernelError       no implementation of a kernel serves here
├── SettingError        an environment variable has a value that means nothing (ValueError too)
└── OpLoadError         a finished binary cannot be loaded
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...accelerator.errors import AnyaccelError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["BuildError", "CacheError", "NoKernelError", "OpError", "OpLoadError", "SettingError", "ToolchainError"]


class OpError(AnyaccelError, RuntimeError):
    """Base of the errors about building and loading ops."""


class ToolchainError(OpError):
    """No toolchain can build the op."""


class CacheError(OpError):
    """The cache directory cannot be trusted."""


class NoKernelError(OpError):
    """No implementation of a kernel serves here."""


class SettingError(OpError, ValueError):
    """An environment variable has a value that means nothing."""


class OpLoadError(OpError):
    """A binary exists and cannot be loaded."""


class BuildError(OpError):
    """A compiler or linker failed.

    Attributes:
        op: the op's name.
        command: the command that failed.
        errors: the first lines in which the compiler names an error.
        log: the file that holds everything it printed.
    """

    def __init__(self, op: str, command: str, errors: Sequence[str], log: Path) -> None:
        self.op = op
        self.command = command
        self.errors = list(errors)
        self.log = log
        listed = "\n  ".join(self.errors) or "(it printed no line with 'error')"
        super().__init__(
            f"building the op '{op}' failed: got\n  {listed}\nfrom the command\n  {command}\n"
            f"expected it to succeed. Fix: correct the first error above; the full log is {log}"
        )

    def __reduce__(self) -> tuple[type[BuildError], tuple[str, str, list[str], Path]]:
        return type(self), (self.op, self.command, self.errors, self.log)
