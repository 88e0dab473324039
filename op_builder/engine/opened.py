"""What the compilers and the linker opened for a shared library, and where they looked first.

The compilers list the headers they read, the assembler the data it embeds, and the linker its libraries and scripts. Where
they looked before is worked out from their search paths, which they tell.
"""

from __future__ import annotations

import itertools
import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import OpError
from .inputs import Inputs, Lookups
from .scan import directives
from .spawn import run

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from .native import Compiler, NativeRecipe

__all__ = ["LINK_LIST", "files_named_by", "inputs_of", "refuse_untracked_flags"]

LINK_LIST = "link.d"
"""The linker's list of what it read, in the folder that is built in."""

_SEARCH = re.compile(
    r'^#include "\.\.\." search starts here:\n(.*?)^#include <\.\.\.> .*?:\n(.*?)^End of search', re.M | re.S
)
_EMBEDDED = re.compile(rb'\.incbin[\s\\]*"([^"\\]+)\\?"')
_OWN_HEADERS = re.compile(r"/include/(.+/)?c\+\+/\d|/lib(64|exec)?/(gcc|gcc-cross|clang)/")
_UNTRACKED = re.compile(r"-f(profile-use|profile-instr-use|auto-profile|modules?\b|modules-|module-)")
_SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/lib32")
_SYSTEM_HEADERS = ("/usr/include", *_SYSTEM)
_PROGRAMS = {"as", "cc1", "cc1plus", "collect2", "ld", "ld.bfd", "ld.gold", "ld.lld", "ld.mold", "lto-wrapper"}
_TIMEOUT_SECONDS = 60.0


def refuse_untracked_flags(op: str, flags: Iterable[str]) -> None:
    """Refuse flags that let a compiler read files which it names nowhere.

    Raises:
        OpError: naming the flag.
    """
    for flag in flags:
        value = flag.partition("=")[2]
        if _UNTRACKED.match(flag) and not os.path.isfile(value):
            msg = (
                f"building the op '{op}' failed: got the flag {flag!r}, by which the compiler reads files that it does not "
                f"list, so that a change of them would go unseen; expected flags that name files. Fix: remove it, or name "
                f"the file itself."
            )
            raise OpError(msg)


def files_named_by(flags: Iterable[str]) -> set[str]:
    """Return the files that flags name by absolute paths, in response files too."""
    found: set[str] = set()
    pending = list(flags)
    while pending:
        flag = pending.pop()
        for piece in (flag, *re.split(r"[,=]", flag)):
            path = piece[piece.find("/") :] if "/" in piece else ""
            if path and path not in found and os.path.isfile(path):
                found.add(path)
                if f"@{path}" in flag:
                    pending += _words_of(path)
    return found


def _words_of(response_file: str) -> list[str]:
    try:
        return shlex.split(Path(response_file).read_text(encoding="utf-8", errors="surrogateescape"))
    except ValueError:
        return []


def inputs_of(recipe: NativeRecipe, folder: Path, environment: Mapping[str, str], covered: set[str]) -> Inputs:
    """Return the files that decided a library, after it was built.

    Args:
        recipe: what was built.
        folder: where it was built.
        environment: the environment of the compilers.
        covered: the files that the fingerprint covers.

    Raises:
        OpError: when an input cannot be known.
    """
    opened = {path for file in folder.glob("*.d") if file.name != LINK_LIST for path in _listed(file)}
    used = {suffix: recipe.compilers[suffix] for suffix in sorted({source.suffix for source in recipe.sources})}
    paths = {suffix: _search_path(one, suffix, environment, folder) for suffix, one in used.items()}
    outside = _Outside(recipe, used.values(), [place for path in paths.values() for place in path])
    tracked = {path for path in opened if os.path.realpath(path) not in covered and not outside.covers(path)}
    if recipe.is_portable:  # another machine has other headers of its system, or none
        tracked = {path for path in tracked if not _lies_in(path, _SYSTEM_HEADERS)}
    own = {os.path.realpath(place) for place in (*recipe.include_dirs, *(file.parent for file in recipe.sources))}
    searched = [place for path in paths.values() for place in path if os.path.realpath(place) not in own]
    is_bound = any(not _lies_in(path, [*searched, *_SYSTEM_HEADERS]) for path in tracked)
    told = [word for one in used.values() for word in (*one.command[1:], *one.flags)] + [
        *recipe.linker,
        *recipe.link_flags,
    ]
    lookups = _Lookups(outside, covered)
    tracked |= files_named_by(told) | lookups.add_programs(told)
    for path in () if recipe.is_portable else paths.values():
        lookups.add_headers(opened, path)
    tracked |= _embedded_data(recipe, used.values(), {path for path in opened if not outside.covers(path)} | covered)
    linked, earlier = _linked(recipe, folder, environment, outside)
    lookups.beside.update(earlier)
    try:
        return Inputs.of(tracked | linked, lookups.found(), recipe.places() if is_bound else ())
    except ValueError as error:
        msg = f"building the op '{recipe.op}' failed: {error}, as what a build depends on is kept in lists. Fix: rename it."
        raise OpError(msg) from error


class _Outside:
    """Where the tools' own files lie, for which their identities and versions stand."""

    def __init__(self, recipe: NativeRecipe, compilers: Iterable[Compiler], search_path: Iterable[str]) -> None:
        theirs = {str(place) for one in compilers for place in one.system_include_dirs}
        theirs |= {flag[2:] for flag in recipe.link_paths if flag.startswith("-L")}
        programs = {program for one in compilers for program in one.identity.programs}
        prefixes = {os.path.normpath(f"{program}/../..") for program in programs}
        prefixes |= {program.partition("/lib")[0] for program in programs if "/lib" in program}
        theirs |= {
            place
            for place in search_path
            if (_OWN_HEADERS.search(place) and _lies_in(place, prefixes)) or "/ziglang/" in place
        }
        self._places = {os.path.normpath(place) for place in theirs} | {os.path.realpath(place) for place in theirs}
        self._known: dict[str, bool] = {}

    def covers(self, path: str) -> bool:
        place = os.path.dirname(path)
        if place not in self._known:
            self._known[place] = _lies_in(path, self._places)
        return self._known[place]

    def has(self, place: str) -> bool:
        return self.covers(f"{place}/x")


def _lies_in(path: str, places: Iterable[str]) -> bool:
    spelled = {os.path.normpath(path), os.path.realpath(path)}
    return any(one.startswith(f"{place}/") for place in places for one in spelled)


class _Lookups:
    """Collects where headers were looked for before they were found, or in vain."""

    def __init__(self, outside: _Outside, covered: set[str]) -> None:
        self._outside = outside
        self._covered = covered
        self._folders: dict[str, None] = {}
        self._searches: list[tuple[list[str], dict[str, int]]] = []
        self.beside: dict[str, set[str]] = {}

    def add_programs(self, flags: Sequence[str]) -> set[str]:
        """Add the folders that -B names, and return the programs there that a driver takes instead of its own."""
        found = set()
        apart = [following for flag, following in itertools.pairwise(flags) if flag == "-B"]
        for place in (*(flag[2:] for flag in flags if flag.startswith("-B")), *apart):
            if os.path.isdir(place):
                present = {program for program in _PROGRAMS if os.path.isfile(f"{place}/{program}")}
                found |= {f"{place}/{program}" for program in present}
                self.beside.setdefault(place, set()).update(_PROGRAMS - present)
        return found

    def add_headers(self, opened: Iterable[str], search_path: Sequence[str]) -> None:
        """Add one compiler's headers, and its search path."""
        names: set[str] = set()
        for path in opened:
            names |= {os.path.relpath(path, place) for place in search_path if path.startswith(f"{place}/")}
            for asked in directives(_content(path)):
                names.add(asked.name)
                if asked.is_quoted and not os.path.isfile(f"{os.path.dirname(path)}/{asked.name}"):
                    self._add_beside(path, asked.name)
        before: dict[str, int] = {}
        listed: dict[str, list[str]] = {}
        for name in sorted(name for name in names if name and not os.path.isabs(name)):
            top = name.partition("/")[0]
            for number, place in enumerate(search_path):
                if place not in listed:
                    listed[place] = os.listdir(place) if os.path.isdir(place) else []
                if (top in listed[place] or top in (".", "..")) and os.path.isfile(f"{place}/{name}"):
                    before[name] = number
                    break
            else:
                before[name] = len(search_path)
        self._searches.append((list(search_path), before))

    def _add_beside(self, path: str, name: str) -> None:
        if os.path.realpath(path) not in self._covered and not self._outside.covers(path):
            self.beside.setdefault(os.path.dirname(path), set()).add(name)

    def found(self) -> Lookups:
        """Return the lookups; a tool's own folders are left out, as nobody else puts headers there."""
        folders: list[str] = []
        names: dict[str, int] = {}
        for search_path, before in self._searches:
            open_to_others = [place for place in search_path if not self._outside.has(place)]
            if not folders:
                folders = open_to_others
            if folders == open_to_others:
                for name, number in before.items():
                    count = len([place for place in search_path[:number] if place in open_to_others])
                    names[name] = max(names.get(name, 0), count)
            else:  # another compiler with another path
                for name, number in before.items():
                    for place in search_path[:number]:
                        if place in open_to_others:
                            self.beside.setdefault(place, set()).add(name)
        return Lookups.of(folders, {name: count for name, count in names.items() if count}, self.beside)


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def _listed(file: Path) -> set[str]:
    """Return the files that a list in make's syntax names, as they are spelled there; those of the build itself are not."""
    text = os.fsdecode(file.read_bytes()).replace("\\\n", " ")
    _, _, named = text.partition(": ")
    escaped = named.partition("\n")[0].replace("\\ ", "\0").replace("$$", "$").replace("\\#", "#")
    words = (word.replace("\0", " ") for word in escaped.split())
    return {word for word in words if os.path.isabs(word) and not word.startswith(f"{file.parent}/")}


def _linked_files(file: Path) -> set[str]:
    """Return the files in a linker's list, which has one on each line and escapes nothing."""
    first, _, _ = os.fsdecode(file.read_bytes()).partition("\n\n")
    paths = [line.strip().removesuffix("\\").strip() for line in first.partition(":")[2].splitlines()]
    return {path for path in paths if os.path.isabs(path) and not path.startswith(f"{file.parent}/")}


def _search_path(compiler: Compiler, suffix: str, environment: Mapping[str, str], folder: Path) -> list[str]:
    """Return the directories in which a compiler looks for headers, in order; quoted ones first."""
    asked = run(compiler.asking_for_search_path(suffix), timeout=_TIMEOUT_SECONDS, env=dict(environment), cwd=folder)
    found = _SEARCH.search(asked.stderr.replace("\r", ""))
    if found is None:
        return [str(place) for place in (*compiler.include_dirs, *compiler.system_include_dirs)]
    lines = [line.strip().removesuffix(" (framework directory)") for line in (found[1] + found[2]).splitlines()]
    return [os.path.abspath(os.path.join(folder, line)) for line in lines if line]


def _embedded_data(recipe: NativeRecipe, compilers: Iterable[Compiler], read: set[str]) -> set[str]:
    """Return the files that the assembler embeds, where it does not list them itself.

    Raises:
        OpError: naming the source whose file cannot be known.
    """
    found: set[str] = set()
    if all(one.lists_data for one in compilers):
        return found
    for path in sorted(read):
        content = _content(path)
        named = {os.fsdecode(name) for name in _EMBEDDED.findall(content)}
        if content.count(b".incbin") > len(_EMBEDDED.findall(content)) or not all(map(os.path.isfile, named)):
            msg = (
                f"building the op '{recipe.op}' failed: got .incbin in {path}, whose file this compiler does not tell, so that "
                f"a change of it would go unseen; expected an absolute path. Fix: write one, or compile with g++."
            )
            raise OpError(msg)
        found |= named
    return found


def _linked(
    recipe: NativeRecipe, folder: Path, environment: Mapping[str, str], outside: _Outside
) -> tuple[set[str], dict[str, set[str]]]:
    """Return what was linked on the user's demand, and the names of libraries that were looked for where they are not."""
    named = files_named_by((*recipe.linker[1:], *recipe.link_flags))
    flags = _expanded((*recipe.linker[1:], *recipe.link_flags, *recipe.link_paths))
    file = folder / LINK_LIST
    listed = _linked_files(file) if file.is_file() else set()
    found = {path for path in listed if not outside.covers(path) and not _lies_in(path, _SYSTEM)}
    folders = _library_path(recipe, folder, environment, flags)
    earlier: dict[str, set[str]] = {}
    for name in _libraries(flags):
        choices = (name[1:],) if name.startswith(":") else (f"lib{name}.so", f"lib{name}.a")
        for place in folders:
            present = next((choice for choice in choices if os.path.isfile(f"{place}/{choice}")), None)
            missing = choices if present is None else choices[: choices.index(present)]
            if missing and not outside.has(place):
                earlier.setdefault(place, set()).update(missing)
            if present is not None:
                if not outside.has(place):
                    found.add(f"{place}/{present}")
                break
    return found | named, earlier


def _expanded(flags: Iterable[str]) -> list[str]:
    """Return flags with the words of response files in their place."""
    words = []
    for flag in flags:
        words += _expanded(_words_of(flag[1:])) if flag.startswith("@") and os.path.isfile(flag[1:]) else [flag]
    return words


def _libraries(words: Sequence[str]) -> list[str]:
    """Return the names that -l gives."""
    apart = [following for word, following in itertools.pairwise(words) if word == "-l"]
    return [*(word[2:] for word in words if word.startswith("-l") and len(word) > 2), *apart]


def _library_path(
    recipe: NativeRecipe, folder: Path, environment: Mapping[str, str], flags: Sequence[str]
) -> list[str]:
    """Return the directories in which the linker looks for libraries, in order, as the driver tells."""
    command = [recipe.linker[0], "-###", "-shared", *flags, "-o", recipe.output]
    asked = run(command, timeout=_TIMEOUT_SECONDS, env=dict(environment), cwd=folder)
    lines = [line for line in asked.stderr.splitlines() if " -L" in line and line.startswith((" ", '"'))]
    try:
        words = shlex.split(lines[-1]) if lines else list(flags)
    except ValueError:
        words = list(flags)
    places = [word[2:] for word in words if word.startswith("-L")]
    places += environment.get("LIBRARY_PATH", "").split(os.pathsep) if not lines else []
    return list(dict.fromkeys(os.path.normpath(place) for place in places if os.path.isabs(place)))
