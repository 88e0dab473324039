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
_VARIABLE = r"""\$\{?([A-Za-z_]\w*)|\b([A-Z][A-Z0-9_]{2,})\b|env(?:iron)?(?:\.get)?[(\[]["'](\w+)"""
_AFTER_EXPANSION = (r"""(?:[)}`]|\$\w+)["']?/([\w./+~-]+)""", r"""(?:[)}`]|\$\w+)/([^"'$\n]+)["']""")
_IMPORT = r"(?m)^\s*(?:from|import)\s+(\w+)"
_DRIVER = r"(?m)^(?:COLLECT_GCC|COLLECT_LTO_WRAPPER)=(.+)$"
_A_COMPILER = r"gcc|g\+\+|clang|c\+\+|cc1|icpx|zig|nvcc|collect2|lto-wrapper|(^|-)(as|ld)\b"
_DEEPEST_SCRIPT = 4
_MOST_NEIGHBOURS = 64
_MOST_EXPANSIONS = 64
_OF_CALLER = {"PWD", "OLDPWD"}  # a build runs the script in a folder of its own
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

    def add(self, file: str, depth: int = 0, *, is_read: bool = False) -> None:
        """Add a file, and what it leads to if it is a script, or a text that a script reads."""
        if file in self.programs or not os.path.isfile(file):
            return
        self.programs.add(file)
        text = _text(file)
        if text is None or depth >= _DEEPEST_SCRIPT or not (is_read or text.startswith("#!")):
            return
        variables = {name for match in re.findall(_VARIABLE, text) for name in match if name}
        self.variables |= variables
        words = _words(text)
        for word in words:
            self.add_word(word, depth + 1)
        for named in self._named_relatively(file, text, words, variables):
            self.add(named, depth + 1, is_read=True)
        if "python" in text.partition("\n")[0]:
            for module in _modules_beside(file, text):
                self.add(module, depth + 1)

    def _named_relatively(self, file: str, text: str, words: Iterable[str], variables: set[str]) -> set[str]:
        """Return the files that a script names below its own folder, or below a folder that a variable has.

        ``"$(dirname "$0")/inner"``, ``. ${0%/*}/env.sh`` and ``$HOME/.flags``, and each word after ``cd "$here"``. Where an
        expansion leads is not worked out: each folder counts. A file that is named so and missing counts when it appears.
        """
        folders = {os.path.dirname(file), os.path.dirname(os.path.realpath(file))}
        told = (self._environment.get(name, "") for name in variables - _OF_CALLER)
        folders |= {value for value in told if os.path.isabs(value) and os.path.isdir(value)}
        tails = {tail for form in _AFTER_EXPANSION for tail in re.findall(form, text) if tail.strip("./ ")}
        expanded = [f"{folder}/{tail}" for folder in sorted(folders) for tail in sorted(tails)][:_MOST_EXPANSIONS]
        self.programs.update(path for path in expanded if not os.path.exists(path))
        folders |= {path for path in expanded if os.path.isdir(path)}
        home = self._environment.get("HOME", "")
        in_home = {f"{home}{word[1:]}" for word in words if home and word.startswith("~/")}
        beside = {f"{folder}/{word}" for folder in folders for word in words if not word.startswith(("-", "/", "~"))}
        return {path for path in (*expanded, *in_home, *beside) if os.path.isfile(path)}


def _modules_beside(file: str, text: str) -> list[str]:
    """Return the modules that a script in Python may import from its own folder, up to a limit."""
    folder = os.path.dirname(file)
    found = [other.path for other in os.scandir(folder) if other.name.endswith(".py")]
    for name in sorted(set(re.findall(_IMPORT, text))):
        for root, _, names in os.walk(os.path.join(folder, name)):
            found += [os.path.join(root, each) for each in names if each.endswith(".py")]
    return sorted(found)[:_MOST_NEIGHBOURS]


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
    return re.search(_A_COMPILER, os.path.basename(os.path.realpath(program))) is None or _is_script(program)


def _text(program: str) -> str | None:
    """Return the text of a script, or of another text that is not longer than a script; None for anything else."""
    try:
        with open(program, "rb") as file:
            begins = file.read(_SCRIPT_BYTES)
    except OSError:
        return None
    return None if b"\0" in begins else begins.decode(errors="replace")


def _is_script(program: str) -> bool:
    return (_text(program) or "").startswith("#!")


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
