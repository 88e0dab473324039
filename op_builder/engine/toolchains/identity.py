"""Which programs a tool's command really starts, so that a build counts with all of them.

``c++`` may be a script, a link to ccache, or a driver of programs that nobody names. A driver tells what it would start
(``-###``); a script's words are read; and behind a program that stands in for another of its name is the next one in PATH.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shlex
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..inputs import digest_of, stamp_of
from ..spawn import run

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

__all__ = ["Identity", "identify", "namesakes"]

_SCRIPT_BYTES = 1 << 16
_WORD = re.compile(r"[\w./+~-]+")
_VARIABLE = re.compile(r"\$\{?([A-Za-z_]\w*)")
_DRIVER = re.compile(r"^(?:COLLECT_GCC|COLLECT_LTO_WRAPPER)=(.+)$", re.MULTILINE)
_DEEPEST_SCRIPT = 4
_TIMEOUT_SECONDS = 60.0


@dataclass(frozen=True)
class Identity:
    """What a tool is made of.

    Attributes:
        digest: of the content of all of its programs.
        programs: their paths.
        variables: the environment variables that its scripts read.
    """

    digest: str = ""
    programs: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()

    def is_gcc(self) -> bool:
        """Return whether GCC compiles, behind whatever wrappers."""
        return any(os.path.basename(program) == "cc1plus" for program in self.programs)

    def has_gnu_assembler(self) -> bool:
        """Return whether GNU as assembles, which can list the data that it embeds."""
        return any(re.fullmatch(r"(.+-)?as", os.path.basename(program)) for program in self.programs)


def identify(
    command: Sequence[str],
    environment: Mapping[str, str],
    asked: Sequence[Sequence[str]],
    further: Iterable[str],
    folder: Path,
) -> Identity:
    """Return what a command is made of; starts processes.

    Args:
        command: the tool's command.
        environment: the environment to ask it in.
        asked: arguments with which it tells the programs that it would start.
        further: other files that belong to it.
        folder: an empty folder to ask it in: some tools start to work all the same, and write a file.
    """
    path = environment.get("PATH", os.defpath)
    programs: dict[str, None] = {}
    variables: set[str] = set()

    def add(program: str, depth: int = 0) -> None:
        if program in programs or not os.path.isfile(program):
            return
        programs[program] = None
        text = _script(program)
        if text is None or depth >= _DEEPEST_SCRIPT:
            return
        variables.update(_VARIABLE.findall(text))
        for word in _words(text):
            found = shutil.which(word, path=path) if not word.startswith("-") else None
            if found is not None:
                add(os.path.abspath(found), depth + 1)
                for other in namesakes(found, path):
                    add(other, depth + 1)

    for word in command:
        found = shutil.which(word, path=path) if not word.startswith("-") else None
        if found is not None:
            add(os.path.abspath(found))
            for other in namesakes(found, path):
                add(other)
    for word in _told(command, environment, asked, folder):
        found = shutil.which(word, path=path)
        if found is not None:
            add(os.path.abspath(found))
    for file in further:
        add(file)
    ordered = sorted(programs)
    content = "\n".join(f"{os.path.basename(program)} {digest_of(program)}" for program in ordered)
    return Identity(
        hashlib.sha256(content.encode(errors="surrogateescape")).hexdigest(), tuple(ordered), tuple(sorted(variables))
    )


def namesakes(program: str, path: str) -> list[str]:
    """Return the programs of a program's name in PATH: one that stands in for a compiler hands over to the next."""
    name = os.path.basename(program)
    places = [os.path.join(folder, name) for folder in path.split(os.pathsep) if os.path.isabs(folder)]
    return [place for place in dict.fromkeys(places) if os.access(place, os.X_OK) and os.path.isfile(place)]


def stamps_of(programs: Iterable[str]) -> dict[str, str]:
    """Return the stamps by which a program that was replaced is noticed."""
    return {program: stamp_of(program) for program in programs}


def _script(program: str) -> str | None:
    with open(program, "rb") as file:
        begins = file.read(_SCRIPT_BYTES)
    return begins.decode(errors="replace") if begins.startswith(b"#!") else None


def _told(
    command: Sequence[str], environment: Mapping[str, str], asked: Sequence[Sequence[str]], folder: Path
) -> list[str]:
    """Return the programs that a driver says it would start."""
    words = []
    for name in ("trial.cpp", "trial.o"):  # drivers that do not find their input tell nothing
        (folder / name).touch()
    for arguments in asked:
        told = run([*command, *arguments], timeout=_TIMEOUT_SECONDS, env=environment, cwd=folder)
        words += [_first_word(line) for line in told.stderr.splitlines() if line.startswith((" ", '"'))]
        words += [*_DRIVER.findall(told.stderr), told.stdout.strip()]
    return [word for word in words if word]


def _words(script: str) -> list[str]:
    """Return what may name a program in a script, quoted words with spaces among them."""
    found = set(_WORD.findall(script))
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
