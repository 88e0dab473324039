"""Records where compilers looked for headers, including where they found none."""

from __future__ import annotations

import itertools
import os
import re
from typing import TYPE_CHECKING, NamedTuple

from .errors import OpError
from .flag_files import headers_defined_by, headers_included_by
from .inputs import ChangedMeanwhile, Lookups, has_changed_since, is_found
from .scan import content_of, directives, headers_defined_in
from .spawn import run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from .native_facts import Compiler, NativeFacts

__all__ = ["HeaderLookups", "Outside", "SearchPath", "lies_in", "search_path_of"]

_SEARCH = re.compile(
    r'^#include "\.\.\." search starts here:\n(.*?)^#include <\.\.\.> .*?:\n(.*?)^End of search',
    re.MULTILINE | re.DOTALL,
)
_ABSENT = re.compile(r'^ignoring nonexistent directory "(.*)"$', re.MULTILINE)
_OWN_HEADERS = re.compile(r"/include/(.+/)?c\+\+/\d|/lib(64|exec)?/(gcc|gcc-cross|clang)/")
_OTHERS = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "GCC_EXEC_PREFIX", "COMPILER_PATH")
_OF_GCC = re.compile(r"(?<=/gcc/)[^/]+/[^/]+(?=/include$)|(?<=/gcc-cross/)[^/]+/[^/]+(?=/include$)")
_PROGRAMS = {
    *("as", "cc1", "cc1plus", "collect2", "lto-wrapper", "specs"),
    *("collect-ld", "ld", "ld.bfd", "ld.gold", "ld.lld", "ld.mold", "real-ld"),
}
_COMPILED = ".gch"  # GCC takes such a file, or a folder of them, in place of the header
_TIMEOUT_SECONDS = 60.0


class SearchPath(NamedTuple):
    """Where a compiler looks for headers.

    Attributes:
        places: the directories, in order, quote-only ones first; empty when unknown.
        absent: those that do not exist, anywhere in that order.
    """

    places: list[str]
    absent: list[str]


def search_path_of(command: Sequence[str], environment: Mapping[str, str], folder: Path) -> SearchPath:
    """Return the directories in which a compiler looks for headers.

    Raises:
        OpError: when a directory name is not UTF-8.
    """
    asked = run(command, timeout=_TIMEOUT_SECONDS, env=environment, cwd=folder)
    found = _SEARCH.search(asked.stderr.replace("\r", ""))
    if found is None:
        return SearchPath([], [])
    lines = [line.strip(" ").removesuffix(" (framework directory)") for line in (found[1] + found[2]).split("\n")]
    if "\ufffd" in found[0]:
        msg = (
            f"asking {command[0]} for its search path failed: {lines} has names that are not UTF-8. "
            f"Fix: rename these folders, or take them out of CPATH and CPLUS_INCLUDE_PATH."
        )
        raise OpError(msg)
    found_in = (os.path.abspath(os.path.join(folder, line)) for line in lines if line)
    own = os.path.abspath(folder)  # an empty entry of CPATH means the working directory, which is gone after the build
    absent = [os.path.abspath(os.path.join(folder, place)) for place in _ABSENT.findall(asked.stderr)]
    return SearchPath([place for place in found_in if place != own], absent)


class Outside:
    """The directories of the tools' own files, which are covered by the tools' identities and versions."""

    def __init__(
        self, recipe: NativeFacts, compilers: Iterable[Compiler], bare: Iterable[str], system: Iterable[str] = ()
    ) -> None:
        """Collect the recipe's system directories, and those that compilers search by themselves.

        Args:
            recipe: the recipe.
            compilers: its compilers.
            bare: where these look for headers without the op's and the user's flags.
            system: further directories; for a build that serves other machines, which have other system files, or none.
        """
        theirs = {*system, *(str(place) for one in compilers for place in one.system_include_dirs)}
        theirs |= {flag[2:] for flag in recipe.link_paths if flag.startswith("-L")}
        zigs = {os.path.dirname(one.command[0]) for one in compilers if os.path.basename(one.command[0]) == "zig"}
        theirs |= {place for place in bare if _OWN_HEADERS.search(place) or lies_in(place, zigs)}
        self._places = {os.path.normpath(place) for place in theirs} | {os.path.realpath(place) for place in theirs}
        self._known: dict[str, bool] = {}

    def covers(self, path: str) -> bool:
        """Return whether a file is in one of these directories."""
        if path not in self._known:  # not by folder: a folder of links has files of its own, too
            self._known[path] = lies_in(path, self._places)
        return self._known[path]

    def has(self, place: str) -> bool:
        """Return whether a directory is one of these."""
        return self.covers(f"{place}/x")


def lies_in(path: str, places: Iterable[str]) -> bool:
    """Return whether a file is below one of some directories, by its path as given or with links resolved."""
    spelled = {os.path.normpath(path), os.path.realpath(path)}
    return any(one.startswith(f"{place}/") for place in places for one in spelled)


def without_others(environment: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which a compiler searches only its own directories."""
    return {name: value for name, value in environment.items() if name not in _OTHERS}


class HeaderLookups:
    """Collects the names of headers and the directories in which they were looked for.

    Args:
        outside: the tools' own files.
        opened: every file that the compilers opened, by the path they used.
        began_ns: when the build began.
        flags: the flags of the compilers.
        is_own: tells whether a file belongs to the op.
        refuses_folders: whether a folder of precompiled headers, which GCC takes, is an error.
    """

    def __init__(
        self,
        outside: Outside,
        opened: Iterable[str],
        began_ns: int,
        flags: Sequence[str],
        is_own: Callable[[str], bool],
        refuses_folders: bool,
    ) -> None:
        self._outside = outside
        self._flags = flags
        self._is_own = is_own
        self._opened = set(opened)
        self._real = {os.path.realpath(path) for path in self._opened}
        self._began_ns = began_ns
        self._searches: list[tuple[list[str], dict[str, int]]] = []
        self.beside: dict[str, set[str]] = {}
        self.precompiled: set[str] = set()
        self._refuses_folders = refuses_folders

    def add_folders_of_programs(self, listed: str, search_path: Iterable[str]) -> None:
        """Add the folders in which a driver looks for programs first: those in -B flags and in ``COMPILER_PATH``.

        GCC also looks in folders of these that are named after its machine and version.

        Args:
            listed: the value of that variable.
            search_path: where the compilers look for headers, of which one is named so, too.
        """
        named = {found[0] for found in map(_OF_GCC.search, search_path) if found}
        own = {folder for name in named for folder in (name, os.path.dirname(name))}
        flags = self._flags
        starts = ("-B", "--prefix=")  # two spellings of one option
        places = [flag.removeprefix(start) for flag in flags for start in starts if flag.startswith(start)]
        places += [following for flag, following in itertools.pairwise(flags) if flag in ("-B", "--prefix")]
        places += listed.split(os.pathsep)
        for place in filter(None, places):
            # ``-Btools-`` starts ``tools-cc1plus``, too
            for prefix in (f"{place}/", place, *(f"{place}/{folder}/" for folder in own)):
                missing = {program for program in _PROGRAMS if not os.path.isfile(f"{prefix}{program}")}
                folder, start = os.path.split(os.path.abspath(f"{prefix}x"))
                self.beside.setdefault(folder, set()).update(f"{start[:-1]}{program}" for program in missing)

    def add_headers(self, search_path: Sequence[str], absent: Iterable[str]) -> None:
        """Add one compiler's headers, its search path, and the directories of that which do not exist.

        Raises:
            ChangedMeanwhile: when a header appeared during the compilation.
            ValueError: when it is not known which header a file of the op looks for.
        """
        names: set[str] = set()
        by_macro: set[str] = set()
        tested: dict[str, list[str]] = {}
        for path in self._opened:
            names |= {os.path.relpath(path, place) for place in search_path if path.startswith(f"{place}/")}
            if not self._outside.covers(path):
                self._add_beside(path, f"{os.path.basename(path)}{_COMPILED}")
            for asked in directives(content_of(path)):
                if asked.name and not os.path.isabs(asked.name):
                    names.add(asked.name)
                if asked.name and (asked.is_quoted or os.path.isabs(asked.name)):
                    self._add_beside(path, asked.name)
                    self._add_beside(path, f"{asked.name}{_COMPILED}")
                if asked.macro:
                    by_macro.add(path)
                if asked.is_tested and not self._outside.covers(path):
                    tested.setdefault(asked.macro, []).append(path)
        for name in headers_included_by(self._flags):
            if os.path.isabs(name):
                self._add_beside(name, f"{os.path.basename(name)}{_COMPILED}")
            else:
                names.add(name)
        for _, value in headers_defined_by(self._flags):  # ``#include MACRO``
            names.add(value[1:-1])
        for path, (name, is_quoted) in self._tested(tested):
            names.add(name)
            if is_quoted:
                self._add_beside(path, name)
        for path, name in itertools.product(
            by_macro, {*names, *map(os.path.basename, self._opened)} if by_macro else ()
        ):
            self._add_beside(path, name)
            self._add_beside(path, f"{name}{_COMPILED}")
        for place in absent:
            self.beside.setdefault(place, set()).update(names)
        before = {name: self._before(name, search_path) for name in sorted(names)}
        for name, number in [*before.items()]:
            before[f"{name}{_COMPILED}"] = self._before(f"{name}{_COMPILED}", search_path[: number + 1])
        self._searches.append((list(search_path), before))

    def _tested(self, macros: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, tuple[str, bool]]]:
        """Yield the headers that macros in ``__has_include(MACRO)`` stand for, and whether each is quoted, with the file."""
        if not macros:
            return
        headers, known = headers_defined_in(map(content_of, self._opened))
        for macro, value in headers_defined_by(self._flags):
            headers.setdefault(macro, set()).add((value[1:-1], value[0] == '"'))
            known.add(macro)
        for macro, paths in macros.items():
            own = next(filter(self._is_own, paths), "")
            if own and macro not in known:
                msg = f"{own} looks for a header that the macro {macro.rstrip('( ')} names"
                raise ValueError(msg)
            yield from ((path, header) for path in paths for header in headers.get(macro, ()))

    def _before(self, name: str, search_path: Sequence[str]) -> int:
        """Return how many of the first directories do not have a name."""
        for number, place in enumerate(search_path):
            if self._is_found(f"{place}/{name}"):
                self._take(f"{place}/{name}")
                return number
        return len(search_path)

    def _add_beside(self, path: str, name: str) -> None:
        """Add a name that compilers first look for next to the including file, if it is not there."""
        found = os.path.join(os.path.dirname(path), name)
        if self._is_found(found):
            self._take(found)
        elif not self._outside.covers(path):
            self.beside.setdefault(os.path.dirname(found), set()).add(os.path.basename(found))

    def _is_found(self, path: str) -> bool:
        """Return whether there is a header, or a precompiled one; watch a folder that may get some."""
        if path.endswith(_COMPILED) and os.path.isdir(path):
            self.beside.setdefault(path, set()).add(".")
        return is_found(path)

    def _take(self, path: str) -> None:
        """Check that a file which the compiler would open now is older than the build, unless it opened it.

        A precompiled header is never listed, so it counts as opened.

        Raises:
            ChangedMeanwhile: when it is newer.
            OpError: when it is a folder of precompiled headers.
        """
        if path.endswith(_COMPILED) and not self._outside.covers(path):
            if not os.path.isdir(path):
                self.precompiled.add(path)
            elif self._refuses_folders:
                msg = (
                    f"building an op failed: GCC may take any of the precompiled headers in {path}, and does not tell "
                    f"which. Fix: replace the folder by one file of this name."
                )
                raise OpError(msg)
        if (
            path not in self._opened
            and os.path.realpath(path) not in self._real
            and has_changed_since(path, self._began_ns)
        ):
            raise ChangedMeanwhile(path)

    def found(self) -> Lookups:
        """Return the lookups, without the tools' own folders, where nobody else puts headers."""
        folders: list[str] = []
        names: dict[str, int] = {}
        for search_path, before in self._searches:
            open_to_others = [place for place in search_path if not self._outside.has(place)]
            folders = folders or open_to_others
            for name, number in before.items():
                earlier = [place for place in search_path[:number] if place in open_to_others]
                if folders == open_to_others:
                    names[name] = max(names.get(name, 0), len(earlier))
                else:  # a compiler with another search path
                    for place in earlier:
                        self.beside.setdefault(place, set()).add(name)
        return Lookups.of(folders, {name: count for name, count in names.items() if count}, self.beside)
