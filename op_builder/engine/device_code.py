"""The recipe of device code: a CUDA source, compiled by NVRTC for one architecture."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .build import COMMAND
from .errors import OpError
from .fingerprint import fingerprint

if TYPE_CHECKING:
    from pathlib import Path

    from .build import Workplace
    from .toolchains.nvrtc import Nvrtc

__all__ = ["DeviceCodeRecipe"]


@dataclass(frozen=True)
class DeviceCodeRecipe:
    """Everything that decides a piece of device code.

    Attributes:
        op: the op's name.
        source: the ``.cu`` file; it may include only headers without a host library.
        include_dirs: the op's include directories.
        target: ``sm_90`` for machine code, ``compute_120`` for PTX.
        compiler: NVRTC.
        options: its further options.
    """

    op: str
    source: Path
    include_dirs: tuple[Path, ...]
    target: str
    compiler: Nvrtc
    options: tuple[str, ...] = ("-std=c++20", "-default-device", "--extra-device-vectorization")
    note: str = field(default="", init=False)

    @property
    def output(self) -> str:
        """The file's name: a cubin holds machine code, and PTX is text."""
        return f"{self.op}.{'cubin' if self.target.startswith('sm_') else 'ptx'}"

    def described(self) -> dict[str, Any]:
        """Return what the metadata of a build keep."""
        version = f"NVRTC {self.compiler.version}"
        return {**self._facts(), "compiler_version": version, "key": self.key()}

    def _facts(self) -> dict[str, Any]:
        return {"op": self.op, "target": self.target, "options": list(self.options), "kind": "device code"}

    def fingerprint(self) -> str:
        """Return the name of the result."""
        return fingerprint([self.source], self.include_dirs, {**self._facts(), "nvrtc": self.compiler.version})

    def key(self) -> str:
        """Return the name that the result has whichever NVRTC builds it."""
        return fingerprint([self.source], self.include_dirs, self._facts())

    def produce(self, workplace: Workplace) -> None:
        """Compile in a workplace.

        Raises:
            BuildError: when NVRTC refuses the source.
        """
        options = [*self.options, f"-arch={self.target}", *(f"-I{folder}" for folder in self.include_dirs)]
        binary, log = self.compiler.compile(self.source.read_text(), str(self.source), options)
        if not binary:
            command = json.dumps(["nvrtc", *options, str(self.source)])
            raise workplace.failure(self.op, f"{COMMAND}{command}\n{log}")
        (workplace.folder / self.output).write_bytes(binary)

    def unseen_headers(self, folder: Path) -> dict[str, str]:
        """Return nothing: NVRTC reads no header of the system, and the fingerprint covers the others."""
        return {}

    def verify(self, built: Path) -> None:
        """Refuse what is neither machine code nor PTX.

        Raises:
            OpError: saying what it is instead.
        """
        content = built.read_bytes()
        if not (content.startswith(b"\x7fELF") or b".target" in content):
            msg = f"verifying the op '{self.op}' failed: got {content[:16]!r} from NVRTC; expected device code. Fix: report it."
            raise OpError(msg)
