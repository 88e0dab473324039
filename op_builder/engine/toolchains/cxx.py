"""Which C++ compiler builds ops here: ``CXX``, c++, g++, clang++, else the one in pip's ``ziglang``."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import shlex
import shutil
import string
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ..errors import TemporaryDirectoryError, ToolchainError
from ..scratch import TEMPORARY_FIX, in_scratch_folder
from .identity import Identity, find_program
from .probe import Memory, Probe, run_quietly, said_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "TELL_PROGRAMS",
    "CxxCompiler",
    "choose_cxx",
    "is_zig",
    "probe_cxx",
    "spelled",
    "zig_for",
    "zig_program",
]

_logger = logging.getLogger(__name__)
TELL_PROGRAMS = (
    ("-###", "-c", "trial.cpp", "-o", "trial.o"),
    ("-###", "-shared", "trial.o", "-o", "trial.so"),
    ("-print-prog-name=as",),
    ("-print-prog-name=ld",),
)
"""Makes a driver say which programs it would start, without starting them."""
_FIX = "pip install 'anyaccel[cxx]'"
_PLAIN = frozenset(string.ascii_letters + string.digits + "_.+/-")
_TRIAL = """#include <cstddef>
static_assert(__cplusplus > 201703L);
extern "C" char* trial(std::size_t bytes) { return new char[bytes]; }
"""
"""Needs the C++ library, which gcc does not link, and little time: an empty cache waits for it."""


class CxxCompiler(NamedTuple):
    """A C++ compiler.

    Attributes:
        command: how it is started, as arguments.
        version: the first line of what it says of itself.
        identity: the programs that it is made of.
    """

    command: tuple[str, ...]
    version: str
    identity: Identity = Identity()

    @property
    def program(self) -> str:
        """The compiler itself, of a command such as ``ccache g++``."""
        return [word for word in self.command if not word.startswith("-")][-1]

    @property
    def is_zig(self) -> bool:
        """Whether it is ziglang's: it needs nothing of the system, and brings a C++ library of its own."""
        return is_zig(self.command)


def is_zig(command: Sequence[str]) -> bool:
    """Return whether a command starts ziglang's compiler."""
    return Path(command[0]).name == "zig"


def spelled(command: Sequence[str], flags: Sequence[str]) -> list[str]:
    """Return flags as a compiler spells them: ziglang takes a CPU's name with underscores, and Arm's versions as features."""
    if not is_zig(command):
        return list(flags)
    return [_spelled_for_zig(flag) if flag.startswith("-march=") else flag for flag in flags]


def _spelled_for_zig(flag: str) -> str:
    name = flag.removeprefix("-march=")
    if name.startswith("x86-64"):
        return f"-march={name.replace('-', '_')}"
    arm = re.fullmatch(r"armv8(?:\.(\d))?-a", name)
    if arm is None:
        return flag
    return f"-mcpu=generic+v8_{arm[1]}a" if arm[1] else "-mcpu=generic"


def zig_for(triple: str, memory: Path) -> CxxCompiler:
    """Return ziglang's compiler for another platform than this machine's.

    Args:
        triple: such as ``aarch64-linux-gnu.2.28``.
        memory: the directory that remembers what compilers said of themselves.

    Raises:
        ToolchainError: when ziglang is not installed, or does not know the platform.
    """
    command = _zig_command()
    probe = _probe("ziglang", None if command is None else (*command, "-target", triple), memory, _FIX)
    if probe.tool is None:
        msg = f"choosing a C++ compiler for {triple} failed: ziglang is {probe.detail}. Fix: {probe.fix}."
        raise ToolchainError(msg)
    return probe.tool


def probe_cxx(requested: str | None, path: str, memory: Path) -> list[Probe[CxxCompiler]]:
    """Look for every C++ compiler, in the order of preference.

    Args:
        requested: the value of ``CXX``; when given, nothing else is looked for.
        path: the directories to search, as in ``PATH``.
        memory: the directory that remembers what compilers said of themselves.
    """
    found: list[Probe[CxxCompiler]] = []
    try:
        found.extend(_probes(requested, path, memory))
    except TemporaryDirectoryError as error:
        found.append(Probe("C++", "temporary files", None, str(error), TEMPORARY_FIX))
    return found


def _probes(requested: str | None, path: str, memory: Path) -> Iterator[Probe[CxxCompiler]]:
    if requested is not None:
        yield _probe(f"CXX={requested}", _command_of(requested, path), memory, "unset CXX")
        return
    for name in ("c++", "g++", "clang++"):
        yield _probe(name, _command_of(name, path), memory, _FIX)
    yield _probe("ziglang", _zig_command(), memory, _FIX)


def choose_cxx(requested: str | None, path: str, memory: Path, *, for_torch_headers: bool = False) -> CxxCompiler:
    """Return the first compiler that is accepted.

    Args:
        requested: the value of ``CXX``; when given, nothing else is considered.
        path: the directories to search, as in ``PATH``.
        memory: the directory that remembers what compilers said of themselves.
        for_torch_headers: the sources use torch's C++ API, whose C++ library is the system's.

    Raises:
        ToolchainError: when all are rejected, with each reason.
        TemporaryDirectoryError: when there is no room to try one out.
    """
    rejections = []
    for probe in _probes(requested, path, memory):
        if probe.tool is None:
            rejections.append(f"{probe.name}: {probe.detail}")
        elif for_torch_headers and probe.tool.is_zig:
            rejections.append(f"{probe.name}: torch's C++ API needs the system's C++ library, and it has its own")
        else:
            for rejection in rejections:
                _logger.debug("C++ compiler rejected: %s", rejection)
            return probe.tool
    fix = f"{'apt-get install g++' if for_torch_headers else _FIX}, or set CXX"
    if requested is not None:
        fix = "unset or correct CXX"
    msg = f"choosing a C++ compiler failed: got {'; '.join(rejections)}; expected one that works. Fix: {fix}."
    raise ToolchainError(msg)


def _command_of(text: str, path: str) -> tuple[str, ...] | None:
    """Resolve a compiler command; a lone name may be a path with spaces, otherwise it is split as a shell would."""
    try:
        words = [text] if _PLAIN.issuperset(text) or os.path.isfile(text) else shlex.split(text)
    except ValueError:  # an unclosed quotation
        return None
    program = find_program(os.path.expanduser(words[0]), path) if words else ""
    return (program, *words[1:]) if program else None


def zig_program() -> str | None:
    """Return the program that pip's ziglang brings, or None."""
    package = importlib.util.find_spec("ziglang")
    if package is None or not package.submodule_search_locations:
        return None
    return shutil.which("zig", path=package.submodule_search_locations[0])


def _zig_command() -> tuple[str, ...] | None:
    program = zig_program()
    return None if program is None else (program, "c++")


def _probe(name: str, command: tuple[str, ...] | None, memory: Path, fix: str) -> Probe[CxxCompiler]:
    if command is None:
        return Probe("C++", name, None, "not found, or not executable", fix)
    try:
        known = Memory(memory).recall(
            command, lambda: _try_out(command, memory), () if is_zig(command) else TELL_PROGRAMS
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Probe("C++", name, None, f"{shlex.join(command)} fails: {error}", fix)
    return Probe("C++", name, CxxCompiler(command, known.said, known.identity), known.said)


def _try_out(command: tuple[str, ...], memory: Path) -> str:
    """Return the compiler's version, once it has built a library of C++20: some say a version and lack half of themselves."""
    version = said_version(command, memory).splitlines()[0]
    if is_zig(command):
        return version  # complete in itself, and slow the first time

    def build(folder: Path) -> None:
        (folder / "trial.cpp").write_text(_TRIAL, encoding="utf-8")
        run_quietly(
            [*command, "-std=c++20", "-shared", "-fPIC", "-Wl,-z,defs", "trial.cpp", "-o", "trial.so"], memory, folder
        )
        if not (folder / "trial.so").is_file():
            msg = "it builds nothing"
            raise OSError(msg)

    in_scratch_folder(memory, f"trying out {shlex.join(command)}", build)
    return version
