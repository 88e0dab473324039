"""Collects the inputs of a finished build that are not in its fingerprint.

The compilers list the headers they read, the assembler the data it embeds, the linker its libraries and scripts, and the drivers
the programs they start. Where they looked first follows from the search paths that they report.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from .errors import OpError
from .flag_files import expanded, files_named_by, folders_of_assembler
from .headers import HeaderLookups, Outside, search_path_of, without_others
from .inputs import ChangedMeanwhile, Inputs
from .linked import LINK_LIST, SYSTEM_LIBRARIES, linked_files
from .scan import content_of, directives
from .toolchains.identity import started_by

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from .build import Workplace
    from .native_facts import Compiler, NativeFacts

__all__ = ["inputs_of"]

_SYSTEM = ("/usr/include", *SYSTEM_LIBRARIES)
_EMBEDDED = re.compile(rb'\.inc(?:bin|lude)(?:\s|\\[tn]|\\)*"([^"\\]+)\\?"', re.IGNORECASE)
_EMBEDS = re.compile(rb'\.incbin\b|\.include\b(?=(?:\s|\\[tn]|\\)*")', re.IGNORECASE)


def inputs_of(recipe: NativeFacts, workplace: Workplace, covered: set[str]) -> Inputs:
    """Return the files that decided a library, after the build.

    Args:
        recipe: the recipe.
        workplace: the place of the build.
        covered: the files that are part of the fingerprint.

    Raises:
        ChangedMeanwhile: when a file has changed since the compiler read it.
        OpError: when a file cannot be determined.
    """
    folder, environment = workplace.folder, workplace.environment
    opened = {path for file in folder.glob("*.d") if file.name != LINK_LIST for path in _listed(file)}
    used = {suffix: recipe.compilers[suffix] for suffix in sorted({source.suffix for source in recipe.sources})}
    bare = [
        search_path_of(one.asking_bare_for_search_path(), without_others(environment), folder)
        for one in {one.command: one for one in used.values()}.values()
    ]
    theirs = [place for path in bare for place in path.places]
    outside = Outside(recipe, used.values(), theirs, _SYSTEM if recipe.is_portable else ())
    tracked = {path for path in opened if not outside.covers(path) and not _is_scanned(path, recipe, covered)}
    gone = next((path for path in sorted(tracked | covered) if not os.path.exists(path)), "")
    if gone:
        raise ChangedMeanwhile(gone)
    is_bound = any(_is_own(path, recipe) for path in tracked - _absolutely_named(opened))
    told = expanded(word for one in used.values() for word in (*one.command[1:], *one.flags))
    told += expanded((*recipe.linker[1:], *recipe.link_flags))
    is_gcc = any(one.identity.is_gcc() for one in used.values())
    lookups = HeaderLookups(outside, opened, workplace.began_ns, told, lambda path: _is_own(path, recipe), is_gcc)
    lookups.add_folders_of_programs(environment.get("COMPILER_PATH", ""), theirs)
    absent = {place for path in bare for place in path.absent}
    _add_headers(lookups, recipe, used, workplace, absent, theirs if recipe.is_portable else ())
    tracked |= lookups.precompiled | files_named_by(told) | _programs(recipe, used.values(), environment, folder)
    tracked |= files_named_by(word for one in used.values() for word in one.flags)
    tracked |= _embedded_data(recipe, used.values(), {path for path in opened if not outside.covers(path)} | covered)
    linked, earlier = linked_files(recipe, folder, environment, outside)
    for place, names in earlier.items():
        lookups.beside.setdefault(place, set()).update(names)
    try:
        return Inputs.of(tracked | linked, lookups.found(), recipe.places() if is_bound else ())
    except ValueError as error:
        msg = (
            f"building the op '{recipe.op}' failed: {error}, and its inputs are listed one per line. "
            f"Fix: rename that file or folder."
        )
        raise OpError(msg) from error


def _add_headers(
    lookups: HeaderLookups,
    recipe: NativeFacts,
    compilers: Mapping[str, Compiler],
    workplace: Workplace,
    absent: set[str],
    others: Collection[str],
) -> None:
    """Add where each compiler looked for headers.

    Args:
        lookups: gets the names and the directories.
        recipe: the recipe.
        compilers: its compilers, by the suffix of sources.
        workplace: the place of the build.
        absent: the compilers' own directories that do not exist.
        others: directories that other machines fill in their own way, in a build that serves them.

    Raises:
        ChangedMeanwhile: when a header appeared during the compilation.
        OpError: when it is not known which header a source looks for.
    """
    for suffix, one in compilers.items():
        path = search_path_of(one.asking_for_search_path(suffix), workplace.environment, workplace.folder)
        try:
            places = path.places or [str(place) for place in (*one.include_dirs, *one.system_include_dirs)]
            places = [place for place in places if place not in others]
            lookups.add_headers(places, sorted(set(path.absent) - absent))
            if assemblers := folders_of_assembler((*one.command[1:], *one.flags)):
                lookups.add_headers(assemblers, ())
        except ValueError as error:
            msg = (
                f"building the op '{recipe.op}' failed: {error}, so a header that appears would go unnoticed. "
                f"Fix: name the header itself in __has_include, or define the macro as nothing else than its name."
            )
            raise OpError(msg) from error


def _is_scanned(path: str, recipe: NativeFacts, covered: set[str]) -> bool:
    """Return whether a file counts in the fingerprint by this path; behind a link of others, another file may be next time."""
    real = os.path.realpath(path)
    return real in covered and (os.path.normpath(path) == real or _is_own(path, recipe))


def _is_own(path: str, recipe: NativeFacts) -> bool:
    """Return whether a file was found relative to this checkout."""
    own = {str(place) for place in (*recipe.include_dirs, *(file.parent for file in recipe.sources))}
    return any(path.startswith(f"{place}/") for place in own)


def _absolutely_named(opened: Iterable[str]) -> set[str]:
    """Return the headers that are included by absolute paths, which are the same for every checkout."""
    return {asked.name for path in opened for asked in directives(content_of(path)) if os.path.isabs(asked.name)}


def _programs(
    recipe: NativeFacts, compilers: Iterable[Compiler], environment: Mapping[str, str], folder: Path
) -> set[str]:
    """Return the programs that the recipe's flags select, such as with -B and -fuse-ld."""
    found: set[str] = set()
    known: set[str] = set()
    for one in compilers:
        known |= set(one.identity.programs)
        if one.identity.is_gcc() and not one.is_nvcc:
            flags = expanded((*one.command[1:], *one.flags))
            linking = expanded((*recipe.linker[1:], *recipe.link_flags))
            asked = [
                (*flags, "-###", "-c", "trial.cpp", "-o", "trial.o"), (*flags, "-print-prog-name=as"),
                (*linking, "-###", "-shared", "trial.o", "-o", "trial.so"), (*linking, "-print-prog-name=ld"),
                *((flag, f"-print-prog-name=ld.{flag[9:]}") for flag in linking if flag.startswith("-fuse-ld=")),
            ]  # fmt: skip
            found |= started_by(one.command[:1], environment, asked, folder)
    return found - known


def _listed(file: Path) -> set[str]:
    """Return the files in a list in make's syntax, with their paths as written, without the build's own files."""
    text = os.fsdecode(file.read_bytes()).replace("\\\n", " ")
    named = text.partition(": ")[2].partition("\n")[0]
    words = (_unescaped(word) for word in re.findall(r"(?:\\+[ \t]|[^ \t])+", named))
    return {word for word in words if os.path.isabs(word) and not word.startswith(f"{file.parent}/")}


def _unescaped(word: str) -> str:
    """Return a path without make's escapes: a space or tab, and the backslashes before it, have one more backslash each."""
    word = re.sub(r"(\\+)([ \t])", lambda found: "\\" * (len(found[1]) // 2) + found[2], word)
    return word.replace("$$", "$").replace("\\#", "#")


def _embedded_data(recipe: NativeFacts, compilers: Iterable[Compiler], read: set[str]) -> set[str]:
    """Return the files that the assembler embeds, if it does not list them itself.

    Raises:
        OpError: naming a source whose embedded file cannot be determined.
    """
    found: set[str] = set()
    if all(one.lists_data for one in compilers):
        return found
    for path in sorted(read):
        content = content_of(path)
        named = [os.fsdecode(name) for name in _EMBEDDED.findall(content)]
        if len(_EMBEDS.findall(content)) > len(named) or not all(map(os.path.isfile, named)):
            msg = (
                f"building the op '{recipe.op}' failed: this compiler does not list the file of .include or .incbin in {path}, "
                f"so changes to it would go unnoticed. Fix: use an absolute path there, or compile with g++."
            )
            raise OpError(msg)
        found |= set(named)
    return found
