"""The files that the linker read because of the user's flags, and where it looked for libraries first."""

from __future__ import annotations

import itertools
import os
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import OpError
from .flag_files import expanded, files_named_by
from .headers import lies_in
from .spawn import run

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from .headers import Outside
    from .native_facts import NativeFacts

__all__ = ["LINK_LIST", "SYSTEM_LIBRARIES", "linked_files"]

LINK_LIST = "link.d"
"""The linker's list of the files it read, in the build folder."""

SYSTEM_LIBRARIES = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/lib32")
_LIBRARY = re.compile(r"lib(.+)\.(so|a)")
_SEARCH_DIR = re.compile(rb"\bSEARCH_DIR\s*\(([^()\n]+)\)")
_SYSROOT = re.compile(r"^(=|\$SYSROOT)")
_TIMEOUT_SECONDS = 60.0


def linked_files(
    recipe: NativeFacts, folder: Path, environment: Mapping[str, str], outside: Outside
) -> tuple[set[str], dict[str, set[str]]]:
    """Return the linked files of the user, and by folder the names of libraries that were not found there.

    Raises:
        OpError: when an archive does not contain its members.
    """
    flags = expanded((*recipe.linker[1:], *recipe.link_flags, *recipe.link_paths))
    listed = _listed(folder / LINK_LIST)
    read = {path for path in listed if not outside.covers(path) and not lies_in(path, SYSTEM_LIBRARIES)}
    scripts = _unresolved(folder / LINK_LIST)
    places = _library_path(recipe, folder, environment, flags)
    while more := [place for place in _named_by_scripts(read | _first_of(scripts, places)) if place not in places]:
        places += more
    read |= _first_of(scripts, places)
    libraries, earlier = _looked_up(_names(flags, read, places), places, {os.path.realpath(path) for path in listed})
    for name in scripts:
        for place in itertools.takewhile(lambda each: not os.path.isfile(f"{each}/{name}"), places):  # noqa: B023
            earlier.setdefault(place, set()).add(name)
    found = {path for path in read | libraries if not outside.covers(path)}
    _refuse_thin_archives(recipe.op, found)
    missing = {place: choices for place, choices in earlier.items() if not outside.has(place)}
    return found | files_named_by((*recipe.linker[1:], *recipe.link_flags)), missing


def _names(flags: Sequence[str], read: set[str], places: Sequence[str]) -> list[str]:
    """Return the names by which the linker may have looked for libraries: those of flags, and those of what it read."""
    names = [
        *_libraries(flags),
        *(f":{os.path.basename(path)}" for path in read if _LIBRARY.fullmatch(os.path.basename(path))),
        *(f":{path.removeprefix(place)[1:]}" for path in read for place in places if path.startswith(f"{place}/")),
    ]
    return list(dict.fromkeys(names))


def _looked_up(
    names: Sequence[str], places: Sequence[str], used: Collection[str]
) -> tuple[set[str], dict[str, set[str]]]:
    """Return the used libraries of some names, by the paths at which they are found, and by folder what is not there."""
    found: set[str] = set()
    absent: dict[str, set[str]] = {}
    for name, place in itertools.product(names, places):
        for choice in _choices(name):
            path = f"{place}/{choice}"
            if not os.path.isfile(path):
                absent.setdefault(place, set()).add(choice)
            elif os.path.realpath(path) in used or not used:
                found.add(path)
    return found, absent


def _first_of(names: Sequence[str], places: Sequence[str]) -> set[str]:
    """Return the first file of each name in some directories."""
    paths = ((f"{place}/{name}" for place in places) for name in names)
    return {found for each in paths if (found := next(filter(os.path.isfile, each), ""))}


def _named_by_scripts(files: set[str]) -> list[str]:
    """Return the directories that linker scripts add to the search path."""
    texts = (Path(file).read_bytes() for file in sorted(files) if not _is_binary(file))
    named = (os.fsdecode(name).strip(' \t"') for text in texts for name in _SEARCH_DIR.findall(text))
    return [os.path.normpath(name) for name in named if os.path.isabs(name)]


def _is_binary(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(4).startswith((b"\x7fELF", b"!<", b"BC"))  # the last are LLVM's own objects


def _choices(name: str) -> list[str]:
    """Return the files that can satisfy a library name, shared or static, whichever the linker prefers."""
    library = _LIBRARY.fullmatch(name[1:]) if name.startswith(":") else None
    if name.startswith(":") and library is None:
        return [name[1:]]
    stem = library[1] if library else name
    return [f"lib{stem}.so", f"lib{stem}.a"]


def _refuse_thin_archives(op: str, files: set[str]) -> None:
    for path in sorted(files):
        with open(path, "rb") as file:
            is_thin = file.read(7) == b"!<thin>"
        if is_thin:
            msg = (
                f"building the op '{op}' failed: the thin archive {path} does not contain its members, so changes to "
                f"them would go unnoticed. Fix: create it with ar rcs, without T."
            )
            raise OpError(msg)


def _named(file: Path) -> list[str]:
    """Return the names in the linker's list, which has one per line, unescaped."""
    if not file.is_file():
        return []
    first, _, _ = os.fsdecode(file.read_bytes()).partition("\n\n")
    return [line.strip(" ").removesuffix("\\").strip(" ") for line in first.partition(":")[2].split("\n")]


def _listed(file: Path) -> set[str]:
    """Return the files that the linker read."""
    return {path for path in _named(file) if os.path.isabs(path) and not path.startswith(f"{file.parent}/")}


def _unresolved(file: Path) -> list[str]:
    """Return the scripts that the linker found on its search path; it lists them as they were named."""
    names = (name for name in dict.fromkeys(_named(file)) if name and not os.path.isabs(name))
    return [name for name in names if not (file.parent / name).exists()]


def _pieces(words: Sequence[str]) -> list[str]:
    """Return flags, with each of those that are passed to the linker itself for one, also by a response file."""
    return [piece for word in words for piece in (expanded(word.split(",")[1:]) if word.startswith("-Wl,") else [word])]


def _directories(words: Sequence[str]) -> list[str]:
    """Return the directories of -L flags in each of their spellings."""
    found = []
    root = ""
    pieces = _pieces(words)
    for word, following in itertools.pairwise([*pieces, ""]):
        name, _, value = word.partition("=")
        if word == "-L" or name in ("--library-path", "-library-path", "--library-directory"):
            found.append(value or following)
        elif word.startswith("-L"):
            found.append(word[2:])
        elif name == "--sysroot":
            root = value or following
    return [_SYSROOT.sub(lambda _: root, place) for place in found]


def _libraries(words: Sequence[str]) -> list[str]:
    """Return the names in -l flags, including flags passed to the linker itself."""
    pieces = _pieces(words)
    apart = [following for word, following in itertools.pairwise(pieces) if word == "-l"]
    return [*(word[2:] for word in pieces if word.startswith("-l") and len(word) > 2), *apart]


def _library_path(recipe: NativeFacts, folder: Path, environment: Mapping[str, str], flags: Sequence[str]) -> list[str]:
    """Return the directories in which the linker looks for libraries, in order, as the driver reports them."""
    command = [recipe.linker[0], "-###", "-shared", *flags, "-o", recipe.output]
    asked = run(command, timeout=_TIMEOUT_SECONDS, env=environment, cwd=folder)
    lines = [line for line in asked.stderr.splitlines() if " -L" in line and line.startswith((" ", '"'))]
    try:
        words = shlex.split(lines[-1]) if lines else list(flags)
    except ValueError:
        words = list(flags)
    listed = environment.get("LIBRARY_PATH", "").split(os.pathsep)
    places = [place for place in listed if lines and not os.path.isdir(place)]  # the driver leaves these out
    places += _directories([*words, *flags])
    places += listed if not lines else []
    return list(dict.fromkeys(os.path.normpath(place) for place in places if os.path.isabs(place)))
