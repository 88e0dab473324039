"""The recipe of a shared library: each kind of source with its own compiler, linked by the first."""

from __future__ import annotations

import os
import shlex
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..environment import compiler_variables
from .errors import OpError
from .fingerprint import fingerprint
from .flag_files import refuse_untracked_flags
from .linked import LINK_LIST
from .ninja_file import Command, run_ninja, write_ninja
from .opened import inputs_of
from .scan import scan
from .toolchains.identity import Identity

if TYPE_CHECKING:
    from .build import Workplace
    from .inputs import Inputs

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
        identity: the programs that it is made of.
    """

    command: tuple[str, ...]
    version: str
    flags: tuple[str, ...]
    include_dirs: tuple[Path, ...] = ()
    system_include_dirs: tuple[Path, ...] = ()
    other: tuple[str, ...] = ()
    names_headers: tuple[str, ...] = ("-MD", "-MF")
    identity: Identity = field(default_factory=Identity)

    @property
    def is_nvcc(self) -> bool:
        """Whether it hands its flags to another compiler."""
        return Path(self.command[0]).name == "nvcc"

    @property
    def lists_data(self) -> bool:
        """Whether its assembler lists the files that a source embeds."""
        return self.identity.has_gnu_assembler() and not self.is_nvcc

    def words(self, number: int, source: Path, output: str) -> tuple[str, ...]:
        """Return the command that compiles a source, and lists the headers that it read and the data that it embeds."""
        lists = [*self.names_headers, f"{number}.d"]
        if self.identity.is_gcc() and not self.is_nvcc:
            lists.append("-fno-canonical-system-headers")  # else a link that led to a header is not in the list
        if self.lists_data:
            lists.append(f"-Wa,--MD,{number}.data.d")
        return (*self._begin(), *lists, "-c", str(source), "-o", output)

    def asking_for_search_path(self, suffix: str) -> tuple[str, ...]:
        """Return the command that tells, on its standard error, where headers of a kind of source are looked for."""
        if self.is_nvcc:
            return (*self._begin(), "-E", "-Xcompiler", "-v", "-x", "cu", os.devnull)
        is_c = suffix == ".c" and "++" not in os.path.basename(self.command[-1])
        return (*self._begin(), "-E", "-v", "-x", "c" if is_c else "c++", os.devnull)

    def asking_bare_for_search_path(self) -> tuple[str, ...]:
        """Return the command that tells where headers are looked for without the op's and the user's flags."""
        program = self.command[:2] if Path(self.command[0]).name == "zig" else self.command[:1]
        return (*program, *(("-E", "-Xcompiler") if self.is_nvcc else ("-E",)), "-v", "-x", "c++", os.devnull)

    def _begin(self) -> tuple[str, ...]:
        own = [word for folder in self.include_dirs for word in ("-I", str(folder))]
        others = [word for folder in self.system_include_dirs for word in ("-isystem", str(folder))]
        return (*self.command, *self.flags, *self.other, *own, *others)


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
        tools = {suffix: [list(one.command), one.version, one.identity.digest] for suffix, one in used.items()}
        refuse_untracked_flags(self.op, [*(flag for one in used.values() for flag in one.flags), *self.link_flags])
        read = compiler_variables(name for one in used.values() for name in one.identity.variables)
        known = {"compiler_version": next(iter(used.values())).version, "tools": tools, "variables": read}
        object.__setattr__(self, "tools", known)

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
            "output": self.output,
        }

    def produce(self, workplace: Workplace) -> dict[str, Any]:
        """Compile and link in a workplace; there is nothing more to say of the result.

        Raises:
            BuildError: when the compiler or linker fails.
        """
        for lists in ((f"-Wl,--dependency-file={LINK_LIST}",), ()):  # some linkers do not know the option
            commands = [self._compile(number, source) for number, source in enumerate(self.sources)]
            objects = tuple(command.output for command in commands)
            link = (*self.linker, "-shared", *objects, *self.link_paths, *self.link_flags, *lists, "-o", self.output)
            commands.append(Command(link, self.output, objects))
            write_ninja(commands, workplace.folder, workplace.limit_seconds)
            failure = run_ninja(commands, workplace.folder, workplace.jobs, workplace.environment, workplace.tick)
            if failure is None or "dependency-file" not in failure.said:
                break
        if failure is not None:
            raise workplace.error(self.op, failure)
        return {}

    def _compile(self, number: int, source: Path) -> Command:
        output = f"{number}.o"
        return Command(self.compilers[source.suffix].words(number, source, output), output)

    def covered(self) -> list[str]:
        """Return the files whose content is in the fingerprint."""
        return [file.path for file in scan(self.sources, self.include_dirs)]

    def places(self) -> tuple[str, ...]:
        """Return where this checkout's sources and headers are."""
        return (*map(str, self.sources), *map(str, self.include_dirs))

    def inputs(self, workplace: Workplace) -> Inputs:
        """Return the files that decided the result and that the fingerprint does not cover.

        Raises:
            OpError: when one cannot be known.
        """
        return inputs_of(self, workplace, set(self.covered()))

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


def _elf_bytes(content: bytes) -> int:
    """Return how long a 64-bit ELF file must be: its section headers come last."""
    if len(content) < 64:
        return 64
    (offset,) = struct.unpack_from("<Q", content, 0x28)
    size, count = struct.unpack_from("<HH", content, 0x3A)
    return int(offset + size * count)
