"""Chooses the C++ compiler: ``CXX``, c++, g++, clang++, otherwise the compiler in pip's ``ziglang``."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import shlex
import shutil
import string
import subprocess
from itertools import dropwhile
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
    "further_words",
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
"""Makes a driver print the programs it would start, without starting them."""
_FIX = "pip install 'anyaccel[cxx]'"
_PLAIN = frozenset(string.ascii_letters + string.digits + "_.+/-")
_COMPILER = re.compile(
    r"(?:[^-].*-)?(?:c\+\+|cc|g\+\+|gcc|clang|clang\+\+|dpcpp|hipcc|icpx|icx|mpi(?:c\+\+|cc|cxx)|nvc\+\+|nvcc)(?:-[\d.]+)?"
)
"""The names of C++ compilers, such as ``x86_64-linux-gnu-g++-12``."""
_LAUNCHER = re.compile(
    r"(?:s|build)?ccache|distcc|icecc|rewrapper|bear|scan-build|env|nice|ionice|chrt|taskset|timeout|time|stdbuf|nohup"
    r"|setsid|flock|numactl|prlimit|unshare|nsenter|setpriv|sudo|doas|chroot|systemd-run|bwrap|firejail|proot|cpulimit"
    r"|faketime|eatmydata|strace|ltrace|perf|valgrind|gdb|rr|nsys|python[\d.]*"
    r"|setarch|linux(?:32|64)|uname26|x86_64|i386|aarch64"  # the last are other names of setarch
)
"""Programs that start the compiler that their arguments name."""
_TRIAL = """#include <cstddef>
static_assert(__cplusplus > 201703L);
extern "C" char* trial(std::size_t bytes) { return new char[bytes]; }
"""
"""Needs the C++ library, which gcc does not link, and compiles fast: with an empty cache, users wait for it."""


class CxxCompiler(NamedTuple):
    """A C++ compiler.

    Attributes:
        command: the command that starts it, as arguments.
        version: the first line of its version text.
        identity: the programs that it consists of.
    """

    command: tuple[str, ...]
    version: str
    identity: Identity = Identity()

    @property
    def program(self) -> str:
        """The compiler itself, in a command such as ``ccache g++``."""
        return self.command[len(self.command) - len(further_words(self.command)) - 1]

    @property
    def is_zig(self) -> bool:
        """Whether it is ziglang's, which needs nothing of the system and has its own C++ library."""
        return is_zig(self.command)


def further_words(command: Sequence[str]) -> tuple[str, ...]:
    """Return what follows the programs in a compiler's command, such as ``ccache g++``: the user's flags, or a platform."""
    if is_zig(command):
        return tuple(command[2:])
    if _LAUNCHER.fullmatch(os.path.basename(command[0])):
        names = ["" if word.startswith("-") or "=" in word else os.path.basename(word) for word in command]
        programs = [place for place, name in enumerate(names) if name and _is_program(command[place])]
        compilers = [place for place, name in enumerate(names) if _COMPILER.fullmatch(name)]
        chosen = [place for place in programs if not _LAUNCHER.fullmatch(names[place])]
        first = min([*chosen, *compilers], default=len(command))  # `nice -n 5 g++`, `env A=1 g++`
        flags = [place for place in range(first, len(command)) if command[place].startswith("-")]
        beside = [place for place in compilers if place < min(flags, default=len(command))]  # `perf stat g++`
        if first < len(command):
            return tuple(command[min(beside, default=first) + 1 :])
    return tuple(dropwhile(_is_program, command[1:]))


def _is_program(word: str) -> bool:
    """Return whether a word of a command starts a program, and is no flag, response file, source or object file."""
    return not word.startswith(("-", "@")) and shutil.which(word) is not None and not word.endswith((".o", ".so", ".a"))


def is_zig(command: Sequence[str]) -> bool:
    """Return whether a command starts ziglang's compiler."""
    return Path(command[0]).name == "zig"


def spelled(command: Sequence[str], flags: Sequence[str]) -> list[str]:
    """Return flags in a compiler's spelling: ziglang takes CPU names with underscores, and Arm versions as features."""
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
    """Return ziglang's compiler for another platform.

    Args:
        triple: the platform, such as ``aarch64-linux-gnu.2.28``.
        memory: the directory that caches the tools' versions.

    Raises:
        ToolchainError: when ziglang is not installed, or does not support the platform.
    """
    command = _zig_command()
    probe = _probe("ziglang", None if command is None else (*command, "-target", triple), memory, _FIX)
    if probe.tool is None:
        msg = f"choosing a C++ compiler for {triple} failed: ziglang is {probe.detail}. Fix: {probe.fix}."
        raise ToolchainError(msg)
    return probe.tool


def probe_cxx(requested: str | None, path: str, memory: Path) -> list[Probe[CxxCompiler]]:
    """Look for every C++ compiler, in order of preference.

    Args:
        requested: the value of ``CXX``; if given, only this compiler is tried.
        path: the directories to search, as in ``PATH``.
        memory: the directory that caches the tools' versions.
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
    """Return the first accepted compiler.

    Args:
        requested: the value of ``CXX``; if given, only this compiler is tried.
        path: the directories to search, as in ``PATH``.
        memory: the directory that caches the tools' versions.
        for_torch_headers: whether the sources use torch's C++ API, which needs the system's C++ library.

    Raises:
        ToolchainError: when all are rejected, with the reasons.
        TemporaryDirectoryError: when no disk has room for a test compilation.
    """
    rejections = []
    for probe in _probes(requested, path, memory):
        if probe.tool is None:
            rejections.append(f"{probe.name}: {probe.detail}")
        elif for_torch_headers and probe.tool.is_zig:
            rejections.append(
                f"{probe.name}: torch's C++ API needs the system's C++ library, and this compiler has its own"
            )
        else:
            for rejection in rejections:
                _logger.debug("C++ compiler rejected: %s", rejection)
            return probe.tool
    fix = f"{'apt-get install g++' if for_torch_headers else _FIX}, or set CXX"
    if requested is not None:
        fix = "unset CXX, or set it to a C++20 compiler that works, such as g++"
    msg = f"choosing a C++ compiler failed: no compiler works: {'; '.join(rejections)}. Fix: {fix}."
    raise ToolchainError(msg)


def _command_of(text: str, path: str) -> tuple[str, ...] | None:
    """Resolve a compiler command; it may be a path with spaces, otherwise it is split like a shell would."""
    try:
        words = [text] if _PLAIN.issuperset(text) or os.path.isfile(text) else shlex.split(text)
    except ValueError:  # an unclosed quotation mark
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
    """Return the compiler's version after a test build of a C++20 library: some print a version but have parts missing."""
    version = said_version(command, memory).splitlines()[0]
    if is_zig(command):
        return version  # it is always complete, and slow the first time

    def build(folder: Path) -> None:
        (folder / "trial.cpp").write_text(_TRIAL, encoding="utf-8")
        run_quietly(
            [*command, "-std=c++20", "-shared", "-fPIC", "-Wl,-z,defs", "trial.cpp", "-o", "trial.so"], memory, folder
        )
        if not (folder / "trial.so").is_file():
            msg = "it produced no file"
            raise OSError(msg)

    in_scratch_folder(memory, f"trying out {shlex.join(command)}", build)
    return version
