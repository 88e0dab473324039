"""The recipe of a shared library: each kind of source with its own compiler, linked by the first."""

from __future__ import annotations

import os
import shlex
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .entry import sha256_of
from .errors import OpError
from .fingerprint import fingerprint, included_files
from .ninja_file import Command, run_ninja, write_ninja

if TYPE_CHECKING:
    from .build import Workplace

__all__ = ["Compiler", "NativeRecipe"]


@dataclass(frozen=True)
class Compiler:
    """How one kind of source becomes an object file.

    Attributes:
        command: the compiler's command.
        version: what it says of itself.
        flags: the flags, which decide the result.
        include_dirs: where the op's own headers lie; their content counts, not their place.
        system_include_dirs: where others' headers lie, which their versions cover.
        other: further flags that do not decide the result.
        names_headers: the flags that make it list the headers it read, before the list's file name.
    """

    command: tuple[str, ...]
    version: str
    flags: tuple[str, ...]
    include_dirs: tuple[Path, ...] = ()
    system_include_dirs: tuple[Path, ...] = ()
    other: tuple[str, ...] = ()
    names_headers: tuple[str, ...] = ("-MMD", "-MF")

    def words(self, listed: str, source: Path, output: str) -> tuple[str, ...]:
        """Return the command that compiles a source, and lists the headers that it read."""
        own = [word for folder in self.include_dirs for word in ("-I", str(folder))]
        others = [word for folder in self.system_include_dirs for word in ("-isystem", str(folder))]
        lists = (*self.names_headers, listed)
        return (*self.command, *self.flags, *self.other, *own, *others, *lists, "-c", str(source), "-o", output)


@dataclass(frozen=True)
class NativeRecipe:
    """Everything that decides a shared library.

    Attributes:
        op: the op's name.
        sources: the source files.
        compilers: for each suffix of the sources, such as ``".cpp"``.
        linker: the command that links, a C++ compiler's.
        link_flags: the linker's flags, which decide the result.
        link_paths: flags that only say where libraries lie.
        include_dirs: the op's own include directories, whose headers count in the fingerprint.
        facts: further facts for the fingerprint: the target, the ABI.
        output: the library's file name, of plain letters.
        is_portable: for other machines: which compiler built it does not count, as they may have none.
        note: what makes a build slow, where that is known.
    """

    op: str
    sources: tuple[Path, ...]
    compilers: dict[str, Compiler]
    linker: tuple[str, ...]
    link_flags: tuple[str, ...]
    link_paths: tuple[str, ...]
    include_dirs: tuple[Path, ...]
    facts: dict[str, Any]
    output: str
    is_portable: bool = False
    note: str = ""
    tools: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        missing = {source.suffix for source in self.sources} - set(self.compilers)
        if missing or not self.sources:
            msg = (
                f"building the op '{self.op}' failed: got {sorted(missing) or 'no'} sources; "
                f"expected some of {sorted(self.compilers)}. Fix: correct sources()."
            )
            raise OpError(msg)
        used = {suffix: self.compilers[suffix] for suffix in sorted({source.suffix for source in self.sources})}
        tools = {suffix: [list(one.command), one.version] for suffix, one in used.items()}
        object.__setattr__(self, "tools", {"compiler_version": next(iter(used.values())).version, "tools": tools})

    def all_facts(self) -> dict[str, Any]:
        """Return everything that decides the result, besides the contents of files."""
        return {**self._portable_facts(), **({} if self.is_portable else self.tools)}

    def described(self) -> dict[str, Any]:
        """Return what the metadata of a build keep."""
        return {**self._portable_facts(), **self.tools, "key": self.key()}

    def fingerprint(self) -> str:
        """Return the name of the result."""
        return fingerprint(self.sources, self.include_dirs, self.all_facts())

    def key(self) -> str:
        """Return the name that the result has whichever compiler builds it."""
        return fingerprint(self.sources, self.include_dirs, self._portable_facts())

    def _portable_facts(self) -> dict[str, Any]:
        return {
            **self.facts,
            "op": self.op,
            "flags": {suffix: list(self.compilers[suffix].flags) for suffix in {file.suffix for file in self.sources}},
            "link_flags": list(self.link_flags),
            "linked": _digests(self.link_flags),
            "output": self.output,
        }

    def produce(self, workplace: Workplace) -> dict[str, Any]:
        """Compile and link in a workplace; there is nothing more to say of the result.

        Raises:
            BuildError: when the compiler or linker fails.
        """
        commands = [self._compile(number, source) for number, source in enumerate(self.sources)]
        objects = tuple(command.output for command in commands)
        link = (*self.linker, "-shared", *objects, *self.link_paths, *self.link_flags, "-o", self.output)
        commands.append(Command(link, self.output, objects))
        write_ninja(commands, workplace.folder, workplace.limit_seconds)
        failure = run_ninja(commands, workplace.folder, workplace.jobs, workplace.environment, workplace.tick)
        if failure is not None:
            raise workplace.error(self.op, failure)
        return {}

    def _compile(self, number: int, source: Path) -> Command:
        output = f"{number}.o"
        return Command(self.compilers[source.suffix].words(f"{number}.d", source, output), output)

    def unseen_headers(self, folder: Path) -> dict[str, str]:
        """Return the digest of every header that the compilers read and the fingerprint does not cover."""
        seen = {str(file) for file in included_files(self.sources, self.include_dirs)}
        outside = {str(Path(place).resolve()) for one in self.compilers.values() for place in one.system_include_dirs}
        read = {header for listed in folder.glob("*.d") for header in _headers(os.fsdecode(listed.read_bytes()))}
        return {
            header: sha256_of(Path(header))
            for header in sorted(read - seen)
            if not any(header.startswith(f"{place}/") for place in (*outside, "/usr"))
        }

    def verify(self, built: Path) -> None:
        """Refuse a file that is no whole shared library, such as one that a full disk cut short: loading it would be fatal.

        Raises:
            OpError: saying what it is instead.
        """
        content = built.read_bytes()
        problem = ""
        if content[:4] not in (b"\x7fELF", b"\xcf\xfa\xed\xfe"):
            problem = f"a file that begins with {content[:4]!r}"
        elif content[:5] == b"\x7fELF\x02" and len(content) < _elf_bytes(content):
            problem = f"{len(content)} of {_elf_bytes(content)} bytes"
        if problem:
            msg = (
                f"verifying the op '{self.op}' failed: got {problem} from {shlex.join(self.linker)}; "
                f"expected a shared library. Fix: check it."
            )
            raise OpError(msg)


def _digests(link_flags: tuple[str, ...]) -> dict[str, str]:
    """Return the digests of the files that are linked by name, or by -l from the folders that -L names."""
    folders = [Path(flag[2:]) for flag in link_flags if flag.startswith("-L")]
    names = [flag[2:] for flag in link_flags if flag.startswith("-l")]
    named = [Path(flag) for flag in link_flags if not flag.startswith("-")]
    files = [*named, *(folder / f"lib{name}{end}" for folder in folders for name in names for end in (".so", ".a"))]
    return {str(file): sha256_of(file) for file in files if file.is_file()}


def _headers(listed: str) -> set[str]:
    """Return the files in a list in make's syntax, resolved, the source itself among them."""
    _, _, files = listed.replace("\\\n", " ").partition(": ")
    escaped = files.replace("\\ ", "\0").replace("$$", "$").replace("\\#", "#")
    return {str(Path(word.replace("\0", " ")).resolve()) for word in escaped.split()}


def _elf_bytes(content: bytes) -> int:
    """Return how long a 64-bit ELF file must be: its section headers come last."""
    if len(content) < 64:
        return 64
    (offset,) = struct.unpack_from("<Q", content, 0x28)
    size, count = struct.unpack_from("<HH", content, 0x3A)
    return int(offset + size * count)
