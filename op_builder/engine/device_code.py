"""The recipe of device code: a source that a run-time compiler turns into a binary for one kind of device."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from .errors import OpError
from .failure import Failure
from .fingerprint import fingerprint
from .spawn import ProgramTimeout

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from .build import Workplace

__all__ = ["DeviceCodeRecipe", "DeviceCompiler"]


class DeviceCompiler(Protocol):
    """A run-time compiler.

    Attributes:
        name: such as ``"NVRTC"``.
        version: of it, and of everything else outside the sources that decides what it makes.
    """

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...

    def compile(
        self, source: str, name: str, options: Sequence[str], kernels: Sequence[str]
    ) -> tuple[bytes, dict[str, str], str]:
        """Return the binary, the symbol of each kernel, and the log; of a failure no binary, and errors in the log."""


@dataclass(frozen=True)
class DeviceCodeRecipe:
    """Everything that decides a piece of device code.

    Attributes:
        op: the op's name.
        source: the file with the kernels; what it includes must need no library of the host.
        include_dirs: the op's include directories.
        target: what it is compiled for: ``sm_90``, ``compute_120``, or a SYCL device.
        compiler: compiles it.
        options: the compiler's options, without include directories.
        output: the binary's file name.
        kernels: the template instances to compile; the metadata keep their symbols.
    """

    op: str
    source: Path
    include_dirs: tuple[Path, ...]
    target: str
    compiler: DeviceCompiler
    options: tuple[str, ...]
    output: str
    kernels: tuple[str, ...] = ()
    note: str = field(default="", init=False)

    def described(self) -> dict[str, Any]:
        """Return what the metadata of a build keep."""
        version = f"{self.compiler.name} {self.compiler.version}"
        return {**self._facts(), "compiler_version": version, "key": self.key()}

    def _facts(self) -> dict[str, Any]:
        return {"op": self.op, "target": self.target, "options": list(self.options), "kernels": list(self.kernels)}

    def fingerprint(self) -> str:
        """Return the name of the result."""
        return fingerprint(
            [self.source],
            self.include_dirs,
            {**self._facts(), "compiler": f"{self.compiler.name} {self.compiler.version}"},
        )

    def key(self) -> str:
        """Return the name that the result has whichever version of the compiler builds it."""
        return fingerprint([self.source], self.include_dirs, self._facts())

    def produce(self, workplace: Workplace) -> dict[str, Any]:
        """Compile in a workplace, and return the kernels' symbols.

        Raises:
            BuildError: when the compiler refuses the source.
        """
        options = [*self.options, *(f"-I{folder}" for folder in self.include_dirs)]
        source = self.source.read_text(encoding="utf-8")
        command = (self.compiler.name.lower(), *options, str(self.source))
        try:
            binary, symbols, log = self.compiler.compile(source, str(self.source), options, self.kernels)
        except ProgramTimeout as error:
            raise workplace.error(self.op, Failure(command, "", {"timeout": error.timeout}, error.pid)) from None
        if not binary:
            raise workplace.error(self.op, Failure(command, log))
        (workplace.folder / self.output).write_bytes(binary)
        return {"symbols": symbols}

    def unseen_headers(self, folder: Path) -> dict[str, str]:
        """Return nothing: the compiler's version stands for the system's headers, and the fingerprint covers the others."""
        return {}

    def verify(self, built: Path) -> None:
        """Refuse what is neither machine code nor PTX; Intel's OpenCL wraps machine code too.

        Raises:
            OpError: saying what it is instead.
        """
        content = built.read_bytes()
        if not (content.startswith(b"\x7fELF") or b".target" in content):
            msg = (
                f"verifying the op '{self.op}' failed: got {content[:16]!r} from {self.compiler.name}; "
                f"expected device code. Fix: report it."
            )
            raise OpError(msg)
