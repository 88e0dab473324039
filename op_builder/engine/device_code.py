"""The recipe for device code: a compiler turns a source into a binary for one kind of device."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from .environment import header_folders
from .errors import OpError
from .failure import Failure
from .fingerprint import fingerprint
from .flag_files import headers_defined_by
from .inputs import Inputs
from .scan import directives, headers_defined_in, scan
from .spawn import ProgramTimeout

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from .build import Workplace

__all__ = ["DeviceCodeFacts", "DeviceCodeRecipe", "DeviceCompiler", "DeviceTool"]

_FOLDER = re.compile(r"(?:-I|--include-path=?|-isystem|-iquote|-idirafter)=?(.*)")
_INCLUDED = re.compile(r"(?:--pre-include|-include)=?(.*)")
_UNTRACKED = re.compile(
    r"@|-optf|--options-file|-imacros|-include-pch|-fmodule|-fplugin|-specs|--config|-X(clang|preprocessor|arch)|-Wp,|-cxx-isystem|-c-isystem"
    r"|-iwith|-isysroot|--sysroot|-ivfsoverlay|-working-directory|--?(use|create)-pch|--?pch(-dir)?\b"
    r"|(--ptxas-options|-Xptxas|--nvlink-options|-Xlinker)[=,].*(@|-optf|options-file)"
)


class DeviceTool(Protocol):
    """A compiler of device code.

    Attributes:
        name: the compiler's name, such as ``"NVRTC"``.
        version: its version, and everything else outside the sources that decides its output.
    """

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...


class DeviceCompiler(DeviceTool, Protocol):
    """A run-time compiler, which compiles in this process."""

    def compile(
        self, source: str, name: str, options: Sequence[str], kernels: Sequence[str]
    ) -> tuple[bytes, dict[str, str], str]:
        """Return the binary, the symbol of each kernel, and the log; on failure an empty binary, and errors in the log."""


@dataclass(frozen=True)
class DeviceCodeFacts:
    """The facts that decide the build of device code.

    Attributes:
        op: the op's name.
        source: the file with the kernels; its includes must not need a library of the host.
        include_dirs: the op's include directories.
        target: the device to compile for: ``sm_90``, ``compute_120``, or a SYCL device.
        compiler: the compiler.
        options: the compiler's options, without include directories.
        output: the binary's file name.
        kernels: the template instances to compile; the metadata keep their symbols.
    """

    op: str
    source: Path
    include_dirs: tuple[Path, ...]
    target: str
    compiler: DeviceTool
    options: tuple[str, ...]
    output: str
    kernels: tuple[str, ...] = ()
    note: str = field(default="", init=False)

    def described(self) -> dict[str, Any]:
        """Return the facts that the build's metadata keep."""
        version = f"{self.compiler.name} {self.compiler.version}"
        return {**self._facts(), "compiler_version": version, "key": self.key()}

    def _facts(self) -> dict[str, Any]:
        return {"op": self.op, "target": self.target, "options": list(self.options), "kernels": list(self.kernels)}

    def fingerprint(self) -> str:
        """Return the name of the result."""
        return self._fingerprint({**self._facts(), "compiler": f"{self.compiler.name} {self.compiler.version}"})

    def key(self) -> str:
        """Return the name of the result without the compiler's version: the same whichever version builds it."""
        return self._fingerprint(self._facts())

    def _fingerprint(self, facts: dict[str, Any]) -> str:
        folders, named = self._told()
        # A wheel's code is used elsewhere than it was built: the source's path must not count if its headers are known.
        known = {macro for macro, header in self._macros() if not (self.source.parent / header).exists()}
        return fingerprint([self.source], folders, facts, named, known)

    def covered(self) -> list[str]:
        """Return the files whose content is part of the fingerprint.

        Raises:
            OpError: when an included header cannot be determined.
        """
        folders, named = self._told()
        files = list(scan([self.source], folders, named))
        known = {macro for macro, _ in self._macros()} | headers_defined_in(file.content for file in files)[1]
        for file in files:
            for asked in directives(file.content):
                if asked.macro and asked.macro not in known:
                    raise self._untracked(
                        f"a header named by the macro {asked.macro} in {file.path}", "name the header itself"
                    )
        return [file.path for file in files]

    def places(self) -> tuple[str, ...]:
        """Return the directories of the source and its headers."""
        return (str(self.source), *map(str, self.include_dirs))

    def inputs(self, workplace: Workplace) -> Inputs:
        """Return no inputs: the fingerprint covers every header, and the compiler's version covers its own files."""
        return Inputs()

    def _told(self) -> tuple[list[Path | str], list[str]]:
        """Return the header search directories, and the headers that options include.

        Raises:
            OpError: when the files that an option names cannot be determined.
        """
        folders: list[str] = []
        named: list[str] = []
        words = iter(self.options)
        for option in words:
            if _UNTRACKED.match(option):
                raise self._untracked(f"the option {option!r}", "pass the options that it stands for")
            folder, included = _FOLDER.fullmatch(option), _INCLUDED.fullmatch(option)
            if folder is not None:
                folders.append(os.path.abspath(folder[1] or next(words, "")))
            elif included is not None:
                named.append(included[1] or next(words, ""))
        named += [header for _, header in self._macros()]
        every: list[Path | str] = [*folders, *self.include_dirs, *header_folders()]
        for file in scan([self.source], every, named):
            named += [name for names in headers_defined_in([file.content])[0].values() for name, _ in names]
        return every, named

    def _macros(self) -> Iterator[tuple[str, str]]:
        """Yield the macros that options define as a header's name."""
        return ((macro, value[1:-1]) for macro, value in headers_defined_by(self.options))

    def _untracked(self, got: str, fix: str) -> OpError:
        msg = (
            f"compiling the op '{self.op}' failed: got {got}. {self.compiler.name} does not list the files it reads, "
            f"so a change to this file would go unnoticed. Fix: {fix}."
        )
        return OpError(msg)

    def verify(self, built: Path) -> None:
        """Reject a file that is neither machine code, PTX nor SPIR-V; Intel's OpenCL also wraps machine code.

        Raises:
            OpError: with the first bytes of the file.
        """
        content = built.read_bytes()
        if not (content.startswith((b"\x7fELF", b"\x03\x02\x23\x07")) or b".target" in content):
            msg = (
                f"verifying the op '{self.op}' failed: got {content[:16]!r} from {self.compiler.name}; "
                f"expected device code. Fix: report it as a bug."
            )
            raise OpError(msg)


@dataclass(frozen=True)
class DeviceCodeRecipe(DeviceCodeFacts):
    """Device code that a run-time compiler builds in one call."""

    compiler: DeviceCompiler

    def produce(self, workplace: Workplace) -> dict[str, Any]:
        """Compile in a workplace, and return the kernels' symbols.

        Raises:
            BuildError: when the compiler rejects the source.
        """
        options = [*self.options, *(f"-I{folder}" for folder in self.include_dirs)]
        source = self.source.read_text(encoding="utf-8")
        command = (self.compiler.name.lower(), *options, str(self.source))
        try:
            binary, symbols, log = self.compiler.compile(source, str(self.source), options, self.kernels)
        except ProgramTimeout as error:
            raise workplace.error(self.op, Failure(command, "", {"timeout": error.timeout}, error.pid)) from None
        if not binary:
            raise workplace.error(self.op, Failure(command, log))
        (workplace.folder / self.output).write_bytes(binary)
        return {"symbols": symbols}
