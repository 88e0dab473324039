"""The recipe of a shared library: what decides it, and how it is compiled and linked."""

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
    """Everything that decides a shared library, and the steps that make it; modules that only builds need wait for one."""

    def produce(self, workplace: Workplace) -> dict[str, Any]:
        """Compile and link in a workplace; there is nothing more to say of the result.

        Raises:
            BuildError: when the compiler or linker fails.
        """
        from .linked import LINK_LIST
        from .ninja_file import Command, run_ninja, write_ninja

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
        from .ninja_file import Command

        output = f"{number}.o"
        return Command(self.compilers[source.suffix].words(number, source, output), output)

    def inputs(self, workplace: Workplace) -> Inputs:
        """Return the files that decided the result and that the fingerprint does not cover.

        Raises:
            OpError: when one cannot be known.
        """
        from .opened import inputs_of

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
