"""NVIDIA's PTX assembler, which comes with nvcc and with Triton: it checks hand-written PTX without a GPU."""

from __future__ import annotations

import importlib.util
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..environment import build_timeout
from ..errors import ToolchainError
from ..scratch import in_scratch_folder, lack_of_room
from ..spawn import run

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Ptxas", "choose_ptxas"]

_TOOLKIT = Path("/usr/local/cuda")
_VERSION = re.compile(r"V(\d+\.\d+\.\d+)")


@dataclass(frozen=True)
class Ptxas:
    """The assembler, used as a compiler of device code.

    Attributes:
        version: its version, such as ``13.0.88``.
        command: its path.
    """

    version: str
    command: Path
    name: str = "ptxas"

    def compile(
        self, source: str, name: str, options: Sequence[str], kernels: Sequence[str]
    ) -> tuple[bytes, dict[str, str], str]:
        """Return the machine code, the kernels' symbols, which are their names, and the log; see ``DeviceCompiler``."""

        def assemble(folder: Path) -> tuple[bytes, str]:
            given, made = folder / Path(name).name, folder / "out.cubin"
            given.write_text(source, encoding="utf-8")
            ran = run([self.command, *options, given, "-o", made], build_timeout())
            said = ran.stderr + ran.stdout
            no_room = lack_of_room(said) if ran.returncode else None
            if no_room is not None:
                raise no_room
            return made.read_bytes() if ran.returncode == 0 else b"", said.replace(str(given), name)

        binary, log = in_scratch_folder(None, f"assembling {name}", assemble)
        return binary, {kernel: kernel for kernel in kernels}, log


def choose_ptxas(cuda_home: Path | None, path: str) -> Ptxas:
    """Return the assembler in ``CUDA_HOME``, in ``PATH``, of the toolkit, of pip's nvcc, or in Triton's wheel.

    Raises:
        ToolchainError: when none is found.
    """
    from .nvcc import pip_home

    homes = [home / "bin" for home in (cuda_home, _TOOLKIT, pip_home()) if home is not None]
    places = [str(homes[0]), path, *map(str, homes)] if cuda_home else [path, *map(str, homes)]
    commands = [("ptxas", place) for place in places]
    commands += [(name, str(folder)) for folder in _tritons_folders() for name in ("ptxas-blackwell", "ptxas")]
    found = next((command for name, place in commands if (command := shutil.which(name, path=place))), None)
    if found is None:
        msg = "assembling PTX failed: CUDA's assembler, ptxas, was not found. Fix: pip install 'anyaccel[nvcc]'"
        raise ToolchainError(msg)
    said = run([found, "--version"], build_timeout()).stdout
    version = _VERSION.search(said)
    return Ptxas(version.group(1) if version else "unknown", Path(found))


def _tritons_folders() -> list[Path]:
    """Return where Triton's wheel has its assemblers, without importing Triton; the one for Blackwell is the newer one."""
    spec = importlib.util.find_spec("triton")
    places = spec.submodule_search_locations if spec is not None else None
    return [Path(place, "backends", "nvidia", "bin") for place in places or ()]
