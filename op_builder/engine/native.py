"""The recipe for a shared library: the facts that decide it, and the compile and link steps."""

from __future__ import annotations

import shlex
import struct
from typing import TYPE_CHECKING, Any

from .errors import OpError
from .native_facts import Compiler, NativeFacts

if TYPE_CHECKING:
    from pathlib import Path

    from .build import Workplace
    from .inputs import Inputs
    from .ninja_file import Command

__all__ = ["Compiler", "NativeRecipe"]


class NativeRecipe(NativeFacts):
    """The facts and steps to build a shared library; imports that only builds need wait until a build."""

    def produce(self, workplace: Workplace) -> dict[str, Any]:
        """Compile and link in a workplace; returns no further facts.

        Raises:
            BuildError: when the compiler or linker fails.
        """
        from .linked import LINK_LIST
        from .ninja_file import Command, run_ninja, write_ninja

        for lists in ((f"-Wl,--dependency-file={LINK_LIST}",), ()):  # some linkers do not have the option
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
        from .ninja_file import Command

        output = f"{number}.o"
        return Command(self.compilers[source.suffix].words(number, source, output), output)

    def inputs(self, workplace: Workplace) -> Inputs:
        """Return the files that decided the result and are not part of the fingerprint.

        Raises:
            OpError: when a file cannot be determined.
        """
        from .opened import inputs_of

        return inputs_of(self, workplace, set(self.covered()))

    def verify(self, built: Path) -> None:
        """Reject a file that is not a complete shared library, such as one cut short by a full disk: loading it would crash.

        Raises:
            OpError: with the problem of the file.
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
                f"expected a shared library. Fix: check this linker and the free disk space."
            )
            raise OpError(msg)


def _elf_bytes(content: bytes) -> int:
    """Return the required size of a 64-bit ELF file: its section headers come last."""
    if len(content) < 64:
        return 64
    (offset,) = struct.unpack_from("<Q", content, 0x28)
    size, count = struct.unpack_from("<HH", content, 0x3A)
    return int(offset + size * count)
