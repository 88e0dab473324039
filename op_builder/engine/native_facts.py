"""The facts that decide a shared library: each kind of source has its own compiler, and the first compiler links."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .environment import compiler_variables
from .errors import OpError
from .fingerprint import fingerprint
from .flag_files import refuse_untracked_flags
from .scan import scan
from .toolchains.cxx import further_words, spelled
from .toolchains.identity import Identity

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Compiler", "NativeFacts", "deciding_variables"]


def deciding_variables(facts: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables that decide which build for other machines serves: all but ``SOURCE_DATE_EPOCH``."""
    return {name: value for name, value in facts.get("environment", {}).items() if name != "SOURCE_DATE_EPOCH"}


class Compiler(NamedTuple):
    """Compiles one kind of source to object files.

    Attributes:
        command: the compiler's command.
        version: its own version text.
        flags: the flags that affect the result.
        include_dirs: the op's own header directories; the headers' content counts, not their location.
        system_include_dirs: header directories of other software, which its version covers.
        other: further flags, which do not affect the result.
        names_headers: the flags that make it list the headers it read, before the list's file name.
        identity: the programs that it consists of.
    """

    command: tuple[str, ...]
    version: str
    flags: tuple[str, ...]
    include_dirs: tuple[Path, ...] = ()
    system_include_dirs: tuple[Path, ...] = ()
    other: tuple[str, ...] = ()
    names_headers: tuple[str, ...] = ("-MD", "-MF")
    identity: Identity = Identity()

    @property
    def is_nvcc(self) -> bool:
        """Whether it passes its flags on to another compiler."""
        return Path(self.command[0]).name == "nvcc"

    @property
    def lists_data(self) -> bool:
        """Whether its assembler lists the files that a source embeds."""
        return self.identity.has_gnu_assembler() and not self.is_nvcc

    def words(self, number: int, source: Path, output: str) -> tuple[str, ...]:
        """Return the command that compiles a source, and lists the headers it read and the data it embedded."""
        lists = [*self.names_headers, f"{number}.d"]
        if self.identity.is_gcc() and not self.is_nvcc:
            lists.append("-fno-canonical-system-headers")  # otherwise the list leaves out links that led to headers
        if self.lists_data:
            lists.append(f"-Wa,--MD,{number}.data.d")
        return (*self._begin(), *lists, "-c", str(source), "-o", output)

    def asking_for_search_path(self, suffix: str) -> tuple[str, ...]:
        """Return the command that prints the header search path for a kind of source to standard error."""
        if self.is_nvcc:
            return (*self._begin(), "-E", "-Xcompiler", "-v", "-x", "cu", os.devnull)
        is_c = suffix == ".c" and "++" not in os.path.basename(self.command[-1])
        return (*self._begin(), "-E", "-v", "-x", "c" if is_c else "c++", os.devnull)

    def asking_bare_for_search_path(self) -> tuple[str, ...]:
        """Return the command that prints the header search path without the op's and the user's flags."""
        program = self.command[: len(self.command) - len(further_words(self.command))]
        return (*program, *(("-E", "-Xcompiler") if self.is_nvcc else ("-E",)), "-v", "-x", "c++", os.devnull)

    def _begin(self) -> tuple[str, ...]:
        own = [word for folder in self.include_dirs for word in ("-I", str(folder))]
        others = [word for folder in self.system_include_dirs for word in ("-isystem", str(folder))]
        return (*self.command, *spelled(self.command, self.flags), *self.other, *own, *others)


@dataclass(eq=False, repr=False)  # each generated method costs 0.1 ms of a process's first call
class NativeFacts:
    """The facts that decide a shared library.

    Attributes:
        op: the op's name.
        sources: the source files.
        compilers: the compiler for each source suffix, such as ``".cpp"``.
        linker: the command that links, which is a C++ compiler's.
        link_flags: the linker flags that affect the result.
        link_paths: flags with library directories, and flags that strip symbols for debuggers.
        include_dirs: the op's own include directories; their headers are part of the fingerprint.
        facts: further facts for the fingerprint: the target, the ABI.
        output: the library's file name, in plain letters.
        is_portable: built for other machines: the key leaves out the compiler, which they may not have.
        note: why a build is slow, if it is.
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
                f"expected some of {sorted(self.compilers)}. Fix: return source files of these kinds from sources()."
            )
            raise OpError(msg)
        used = {suffix: self.compilers[suffix] for suffix in sorted({source.suffix for source in self.sources})}
        tools = {suffix: [list(one.command), one.version, one.identity.digest] for suffix, one in used.items()}
        given = [flag for one in used.values() for flag in (*one.command[1:], *one.flags)]
        refuse_untracked_flags(self.op, [*given, *self.link_flags])
        read = compiler_variables(name for one in used.values() for name in one.identity.variables)
        self.tools = {"compiler_version": next(iter(used.values())).version, "tools": tools, "variables": read}

    def all_facts(self) -> dict[str, Any]:
        """Return everything that decides the result, apart from the contents of files.

        Of the compiler, a build for other machines has only what follows the program in its command: the flags of ``CXX``, or
        the platform that ziglang compiles for. It is the same for every ``SOURCE_DATE_EPOCH``. The dates that a source may
        ask for are those of the first build.
        """
        facts = {**self._portable_facts(), **self._command()}
        if not self.is_portable:
            return {**facts, **self.tools}
        given = deciding_variables(facts)
        facts.pop("environment", None)
        return {**facts, "environment": given} if given else facts

    def described(self) -> dict[str, Any]:
        """Return the facts that the build's metadata keep; for other machines, without paths of this machine's compiler."""
        tools = {"compiler_version": self.tools["compiler_version"]} if self.is_portable else self.tools
        return {**self._portable_facts(), **tools, **self._command(), "key": self.key()}

    def fingerprint(self) -> str:
        """Return the name of the result."""
        return fingerprint(self.sources, self.include_dirs, self.all_facts(), names_places=not self.is_portable)

    def key(self) -> str:
        """Return the name of the result without compiler and environment: the same for all of them."""
        facts = {name: fact for name, fact in self._portable_facts().items() if name != "environment"}
        return fingerprint(self.sources, self.include_dirs, facts)

    def _command(self) -> dict[str, Any]:
        """Return what follows the program in the compiler's command, of a build for other machines."""
        words = [further_words(one.command) for one in self.compilers.values()] if self.is_portable else []
        return next(({"command": list(each)} for each in words if each), {})

    def _portable_facts(self) -> dict[str, Any]:
        return {
            **self.facts,
            "op": self.op,
            "flags": {suffix: list(self.compilers[suffix].flags) for suffix in {file.suffix for file in self.sources}},
            "link_flags": list(self.link_flags),
            "output": self.output,
        }

    def covered(self) -> list[str]:
        """Return the files whose content is part of the fingerprint."""
        return [file.path for file in scan(self.sources, self.include_dirs)]

    def places(self) -> tuple[str, ...]:
        """Return the directories of this checkout's sources and headers."""
        return (*map(str, self.sources), *map(str, self.include_dirs))
