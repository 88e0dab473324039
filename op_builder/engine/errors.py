"""The errors of building and loading ops.

OpError (RuntimeError)
├── ToolchainError      no usable compiler, or none for these sources
├── BuildError          the compiler or linker failed; carries the command, the first errors and the log's path
├── BuildTimeoutError   a compiler ran longer than ANYACCEL_BUILD_TIMEOUT allows; carries the command and its pid
├── BuildStoppedError   the build was stopped from outside, such as by Ctrl-C in another thread
├── TemporaryDirectoryError  no directory for temporary files has room
├── CacheError          the cache directory is unsafe to load code from
├── NoKernelError       no implementation of a kernel is available here
├── SettingError        an environment variable has an invalid value (ValueError too)
├── OpLoadError         a finished binary cannot be loaded
│   └── DigestError     a file of a kernel from elsewhere differs from its digest
└── KernelFaultError    a kernel in the block emulator did something that a GPU leaves undefined
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...accelerator.errors import AnyaccelError, EnvironmentVariableError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = [
    "BuildError",
    "BuildStoppedError",
    "BuildTimeoutError",
    "CacheError",
    "DigestError",
    "KernelFaultError",
    "NoKernelError",
    "OpError",
    "OpLoadError",
    "SettingError",
    "TemporaryDirectoryError",
    "ToolchainError",
]


class OpError(AnyaccelError, RuntimeError):
    """Base of the errors about building and loading ops."""


class ToolchainError(OpError):
    """No toolchain can build the op."""


class NothingToBuildError(OpError):
    """Raised when no op that is asked for has code for a target that is asked for."""


class CacheError(OpError):
    """The cache directory cannot be trusted."""


class NoKernelError(OpError):
    """No implementation of a kernel is available here."""


class SettingError(OpError, EnvironmentVariableError):
    """An environment variable of the builds has an invalid value."""


class OpLoadError(OpError):
    """A finished binary cannot be loaded."""


class DigestError(OpLoadError):
    """A file of a kernel from elsewhere differs from its digest; no code of the kernel was run."""


class KernelFaultError(OpError):
    """A kernel in the block emulator did something that is undefined on a GPU.

    Args:
        message: the whole message.
        kernel: see below, like the others.

    Attributes:
        kernel: the kernel's name.
        fault: what it did: ``"race"``, ``"divergence"``, ``"access out of bounds"``, ``"misaligned access"``,
            ``"uninitialised shared memory"``, ``"assertion failed"``, ``"endless loop"``, or other words.
        place: where in its source, such as ``"kernel.cu:12"``; empty where that is not known.
    """

    def __init__(self, message: str, kernel: str, fault: str, place: str) -> None:
        self.kernel = kernel
        self.fault = fault
        self.place = place
        super().__init__(message)

    def __reduce__(self) -> tuple[type[KernelFaultError], tuple[str, str, str, str]]:
        return type(self), (str(self), self.kernel, self.fault, self.place)


class TemporaryDirectoryError(OpError):
    """No directory for temporary files can be used."""


class BuildStoppedError(OpError):
    """A build was stopped from outside.

    Attributes:
        op: the op's name.
        command: the command that was running.
        reason: what ended it, such as ``"SIGTERM"``.
    """

    def __init__(self, op: str, command: str, reason: str) -> None:
        self.op = op
        self.command = command
        self.reason = reason
        super().__init__(
            f"building the op '{op}' failed: it was stopped by {reason} while it ran\n  {command}\nFix: call load() again."
        )

    def __reduce__(self) -> tuple[type[BuildStoppedError], tuple[str, str, str]]:
        return type(self), (self.op, self.command, self.reason)


class BuildTimeoutError(OpError):
    """A compiler exceeded its time limit.

    Attributes:
        op: the op's name.
        command: the command that was running.
        pid: its process id; the process has been ended.
        seconds: the time limit.
        log: the file with everything it printed.
    """

    def __init__(self, op: str, command: str, pid: int, seconds: float, log: Path) -> None:
        self.op = op
        self.command = command
        self.pid = pid
        self.seconds = seconds
        self.log = log
        super().__init__(
            f"building the op '{op}' failed: process {pid} was still running after {seconds:g} s:\n  {command}\n"
            f"ANYACCEL_BUILD_TIMEOUT allows no more, so it was ended; its output is in {log}\n"
            f"Fix: raise or unset ANYACCEL_BUILD_TIMEOUT, or set CXX to another compiler."
        )

    def __reduce__(self) -> tuple[type[BuildTimeoutError], tuple[str, str, int, float, Path]]:
        return type(self), (self.op, self.command, self.pid, self.seconds, self.log)


class BuildError(OpError):
    """A compiler or linker failed.

    Attributes:
        op: the op's name.
        command: the command that failed.
        errors: the first lines of output that name an error.
        log: the file with everything it printed.
        ending: how the command ended, such as ``"exit status 1"``; empty if there was no process.
    """

    def __init__(self, op: str, command: str, errors: Sequence[str], log: Path, ending: str = "") -> None:
        self.op = op
        self.command = command
        self.errors = list(errors)
        self.log = log
        self.ending = ending
        listed = "\n  ".join(self.errors) or "(no line of its output contains 'error')"
        super().__init__(
            f"building the op '{op}' failed:\n  {listed}\nThe command was{f' ({ending})' if ending else ''}:\n  {command}\n"
            f"Fix: correct the first error above. The full output is in {log}"
        )

    def __reduce__(self) -> tuple[type[BuildError], tuple[str, str, list[str], Path, str]]:
        return type(self), (self.op, self.command, self.errors, self.log, self.ending)
