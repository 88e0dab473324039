"""Finds the programs that a tool's command really starts, so that all of them count for a build.

``c++`` may be a script, a link to ccache, or a driver of further programs. A driver prints the programs that it would start
(``-###``); a script's words are read; and a program that wraps another of the same name starts the next one in PATH.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from ..inputs import digest_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

__all__ = ["Identity", "digest_of_programs", "find", "find_program", "identify", "namesakes", "started_by"]

_SCRIPT_BYTES = 1 << 16
_WORD = r"[\w./+~-]+"
_QUOTED = r"""["']([^"'$\n]+)["']"""
_VARIABLE = r"\$\{?([A-Za-z_]\w*)|\b([A-Z][A-Z0-9_]{2,})\b"
_DRIVER = r"(?m)^(?:COLLECT_GCC|COLLECT_LTO_WRAPPER)=(.+)$"
_A_COMPILER = r"gcc|g\+\+|clang|c\+\+|cc1|icpx|zig|nvcc|collect2|lto-wrapper|(^|-)(as|ld)\b"
_DEEPEST_SCRIPT = 4
_MOST_NEIGHBOURS = 64
_TIMEOUT_SECONDS = 60.0


class Identity(NamedTuple):
    """The programs that a tool consists of.

    Attributes:
        digest: the digest of the content of all its programs.
        programs: their paths.
        variables: the environment variables that its scripts may read.
        lookups: the result for each name that was looked up in PATH.
    """

    digest: str = ""
    programs: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    lookups: Mapping[str, str] = MappingProxyType({})

    def is_gcc(self) -> bool:
        """Return whether the compiler is GCC, behind any wrappers."""
        return any(os.path.basename(program) == "cc1plus" for program in self.programs)

    def has_gnu_assembler(self) -> bool:
        """Return whether the assembler is GNU as, which can list the data it embeds."""
        return any(re.fullmatch(r"(.+-)?as", os.path.basename(program)) for program in self.programs)


class _Collector:
    """Collects the programs that a command leads to."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self._environment = environment
        self._path = environment.get("PATH", os.defpath)
        self.programs: set[str] = set()
        self.variables: set[str] = set()
        self.lookups: dict[str, str] = {}

    def add_word(self, word: str, depth: int = 0) -> None:
        """Add the programs that a word leads to, if it is a program's name or a file's path."""
        found = "" if word.startswith("-") else find(word, self._environment)
        if found:
            if not os.path.isabs(word):
                self.lookups[word] = found
            self.add(found, depth)
            if _stands_in(found):
                for other in namesakes(found, self._path):
                    self.add(other, depth)
        elif os.path.isabs(word):
            self.add(word, depth)

    def add(self, file: str, depth: int = 0) -> None:
        if file in self.programs or not os.path.isfile(file):
            return
        self.programs.add(file)
        text = _script(file)
        if text is None or depth >= _DEEPEST_SCRIPT:
            return
        self.variables.update(name for match in re.findall(_VARIABLE, text) for name in match if name)
        for word in _words(text):
            self.add_word(word, depth + 1)
        if "python" in text.partition("\n")[0]:  # its imports are looked for next to it
            neighbours = [other.path for other in os.scandir(os.path.dirname(file)) if other.name.endswith(".py")]
            for other in neighbours[:_MOST_NEIGHBOURS]:
                self.add(other, depth + 1)


def identify(
    command: Sequence[str],
    environment: Mapping[str, str],
    asked: Sequence[Sequence[str]],
    further: Iterable[str],
    folder: Path,
) -> Identity:
    """Return the programs that a command consists of; starts processes.

    Args:
        command: the tool's command.
        environment: the environment to run it in.
        asked: arguments that make it print the programs that it would start.
        further: further files that belong to it.
        folder: an empty folder to run it in: some tools do start to work, and write a file.
    """
    collector = _Collector(environment)
    told = _told(command, environment, asked, folder)
    for word in (*command, *told):
        collector.add_word(word)
    for word in told:
        if os.path.isabs(word) and find(name := os.path.basename(word), environment) == word:
            collector.lookups[name] = word  # Debian's GCC 16 prints where in PATH it has found its assembler
    for file in further:
        collector.add(file)
    ordered = sorted(collector.programs)
    variables = tuple(sorted(collector.variables))
    return Identity(digest_of_programs(ordered), tuple(ordered), variables, collector.lookups)


def started_by(
    command: Sequence[str], environment: Mapping[str, str], asked: Sequence[Sequence[str]], folder: Path
) -> set[str]:
    """Return the programs that a command starts with some arguments, and the files that their scripts name."""
    collector = _Collector(environment)
    for word in _told(command, environment, asked, folder):
        collector.add_word(word)
    return collector.programs


def digest_of_programs(programs: Iterable[str]) -> str:
    """Return one digest of the content of programs, independent of their paths."""
    content = "\n".join(f"{os.path.basename(program)} {digest_of(program)}" for program in sorted(programs))
    return hashlib.sha256(content.encode(errors="surrogateescape")).hexdigest()


def find(word: str, environment: Mapping[str, str]) -> str:
    """Return the path of a program as a compiler driver finds it; empty if it is not found."""
    told = environment.get("COMPILER_PATH", "")
    path = environment.get("PATH", os.defpath)
    found = find_program(word, f"{told}{os.pathsep}{path}" if told else path)
    return os.path.abspath(found) if found else ""


def find_program(word: str, path: str) -> str:
    """Return the result of ``shutil.which``, or an empty string, in a quarter of the time; every warm load needs it."""
    if "\0" in word:
        return ""
    places = [word] if "/" in word else [f"{folder.rstrip('/')}/{word}" for folder in path.split(os.pathsep) if folder]
    return next((place for place in places if os.access(place, os.X_OK) and not os.path.isdir(place)), "")


def namesakes(program: str, path: str) -> list[str]:
    """Return the programs of the same name in PATH: a wrapper of a compiler starts the next one."""
    name = os.path.basename(program)
    places = [os.path.join(folder, name) for folder in path.split(os.pathsep) if os.path.isabs(folder)]
    return [place for place in dict.fromkeys(places) if os.access(place, os.X_OK) and os.path.isfile(place)]


def _stands_in(program: str) -> bool:
    """Return whether a program may start another of its name, as ccache and scripts do."""
    return re.search(_A_COMPILER, os.path.basename(os.path.realpath(program))) is None or _script(program) is not None


def _script(program: str) -> str | None:
    try:
        with open(program, "rb") as file:
            begins = file.read(_SCRIPT_BYTES)
    except OSError:
        return None
    return begins.decode(errors="replace") if begins.startswith(b"#!") else None


def _told(
    command: Sequence[str], environment: Mapping[str, str], asked: Sequence[Sequence[str]], folder: Path
) -> list[str]:
    """Return the programs that a driver reports it would start."""
    from ..spawn import run

    words = []
    for name in ("trial.cpp", "trial.o"):  # without its input, a driver reports nothing
        (folder / name).touch()
    for arguments in asked:
        told = run([*command, *arguments], timeout=_TIMEOUT_SECONDS, env=environment, cwd=folder)
        words += [_first_word(line) for line in told.stderr.splitlines() if line.startswith((" ", '"'))]
        words += [*re.findall(_DRIVER, told.stderr), told.stdout.strip()]
    return [word for word in words if word and "\n" not in word]


def _words(script: str) -> list[str]:
    """Return the words of a script that may name a program, including quoted words with spaces."""
    found = set(re.findall(_WORD, script)) | set(re.findall(_QUOTED, script))
    for line in script.splitlines():
        with contextlib.suppress(ValueError):
            found.update(shlex.split(line, comments=True))
    return sorted(found)


def _first_word(line: str) -> str:
    try:
        words = shlex.split(line)
    except ValueError:
        return ""
    return words[0] if words else ""
