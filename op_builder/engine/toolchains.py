"""Which C++ compiler builds ops here: ``CXX``, c++, g++, clang++, else the one in pip's ``ziglang``.

Each is accepted, or rejected with the reason. What a compiler says of itself is asked once and remembered in the cache
against its path, size and modification time, so that a warm load starts no process.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from ..environment import compiler_environment
from .errors import ToolchainError

__all__ = ["CxxCompiler", "Probe", "choose_cxx", "probe_cxx"]

_logger = logging.getLogger(__name__)
_REMEMBERED = "toolchains.json"


@dataclass(frozen=True)
class CxxCompiler:
    """A C++ compiler.

    Attributes:
        command: how it is started, as arguments.
        version: the first line of what it says of itself.
    """

    command: tuple[str, ...]
    version: str


@dataclass(frozen=True)
class Probe:
    """What became of looking for one compiler.

    Attributes:
        name: what was looked for.
        compiler: the compiler, where it was accepted.
        rejection: why it was not.
    """

    name: str
    compiler: CxxCompiler | None
    rejection: str


def probe_cxx(requested: str | None, path: str, memory: Path) -> list[Probe]:
    """Look for every C++ compiler, in the order of preference.

    Args:
        requested: the value of ``CXX``; when given, nothing else is looked for.
        path: the directories to search, as in ``PATH``.
        memory: the directory that remembers what compilers said of themselves.
    """
    if requested is not None:
        return [_probe(f"CXX={requested}", _command_of(requested, path), memory)]
    probes = [_probe(name, _command_of(name, path), memory) for name in ("c++", "g++", "clang++")]
    return [*probes, _probe("ziglang", _zig_command(), memory)]


def choose_cxx(requested: str | None, path: str, memory: Path) -> CxxCompiler:
    """Return the first compiler that is accepted.

    Raises:
        ToolchainError: when all are rejected, with each reason.
    """
    rejections = []
    for probe in probe_cxx(requested, path, memory):
        if probe.compiler is not None:
            return probe.compiler
        rejections.append(f"{probe.name}: {probe.rejection}")
    msg = (
        f"choosing a C++ compiler failed: got {'; '.join(rejections)}; expected one that runs. "
        f"Fix: pip install 'anyaccel[cxx]', or set CXX."
    )
    raise ToolchainError(msg)


def _command_of(text: str, path: str) -> tuple[str, ...] | None:
    """Resolve a compiler command; a lone name may be a path with spaces, otherwise it is split as a shell would."""
    try:
        words = [text] if Path(text).is_file() else shlex.split(text)
    except ValueError:  # an unclosed quotation
        return None
    program = shutil.which(words[0], path=path) if words else None
    return None if program is None else (program, *words[1:])


def _zig_command() -> tuple[str, ...] | None:
    package = importlib.util.find_spec("ziglang")
    if package is None or not package.submodule_search_locations:
        return None
    program = shutil.which("zig", path=package.submodule_search_locations[0])
    return None if program is None else (program, "c++")


def _probe(name: str, command: tuple[str, ...] | None, memory: Path) -> Probe:
    if command is None:
        return Probe(name, None, "not found")
    try:
        version = _version(command, memory)
    except (OSError, subprocess.SubprocessError) as error:
        return Probe(name, None, f"{shlex.join(command)} --version fails: {error}")
    return Probe(name, CxxCompiler(command, version), "")


def _version(command: tuple[str, ...], memory: Path) -> str:
    programs = [found for word in command if (found := shutil.which(word)) is not None]  # of `ccache g++`, both
    identity = [list(command), *map(_identity, programs)]
    key = json.dumps(identity)
    remembered = _remembered(memory)
    if key in remembered:
        return remembered[key]
    environment = compiler_environment(memory)
    shown = subprocess.run(  # noqa: S603
        [*command, "--version"], capture_output=True, text=True, timeout=60, env=environment, check=False
    )
    said = (shown.stdout or shown.stderr).strip()
    if shown.returncode != 0 or not said:
        msg = f"exit status {shown.returncode}: {shown.stderr.strip().splitlines()[-1]}" if shown.stderr.strip() else ""
        raise OSError(msg or f"exit status {shown.returncode}, and it says no version")
    version = said.splitlines()[0]
    _remember(memory, {**remembered, key: version})
    return version


def _identity(program: str) -> list[int | str]:
    resolved = Path(program).resolve()
    status = resolved.stat()
    return [str(resolved), status.st_size, status.st_mtime_ns]


def _remembered(memory: Path) -> dict[str, str]:
    try:
        content = json.loads((memory / _REMEMBERED).read_text())
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _remember(memory: Path, versions: dict[str, str]) -> None:
    try:
        with tempfile.NamedTemporaryFile("w", dir=memory, delete=False) as file:
            json.dump(versions, file)
        os.replace(file.name, memory / _REMEMBERED)
    except OSError as error:
        _logger.debug("what the compilers said of themselves is not remembered: %s", error)
