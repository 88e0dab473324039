"""Parses the output of nvdisasm and cuobjdump."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

__all__ = ["Instruction", "Kernel", "Usage", "parse_listing", "parse_usage"]

_SECTION = re.compile(r"\.text\.(\S+):")
_LABEL = re.compile(r"(\.L_\w+|\$\S+):")
_INSTRUCTION = re.compile(r"\s*/\*([0-9a-f]+)\*/\s+(?:@(!?U?P[T\d]+)\s+)?([A-Z][A-Z0-9_.]*)\s*(.*?)\s*;")
_FUNCTION = re.compile(r"\s*Function (\S+):")
_USAGE = re.compile(r"\s*REG:(\d+) STACK:(\d+) SHARED:(\d+)")


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    Attributes:
        address: its offset in the kernel's section.
        predicate: such as ``P0`` or ``!P0``; empty if it is always executed.
        opcode: with its modifiers, such as ``LDG.E.128``.
        operands: as written.
    """

    address: int
    predicate: str
    opcode: str
    operands: str

    @property
    def name(self) -> str:
        """The opcode without its modifiers."""
        return self.opcode.partition(".")[0]


@dataclass
class Kernel:
    """A kernel's instructions.

    Attributes:
        body: the kernel's own code.
        subroutines: the subroutines that it calls: slow paths of division, square roots and 64-bit remainders.
        labels: the address after each label.
    """

    body: list[Instruction] = field(default_factory=list)
    subroutines: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Usage:
    """A kernel's resources: registers per thread, bytes of stack per thread, bytes of static shared memory per block."""

    registers: int
    stack_bytes: int
    shared_bytes: int


def parse_listing(text: str) -> dict[str, Kernel]:
    """Return every kernel in a listing from ``nvdisasm -c``, by symbol."""
    kernels: dict[str, Kernel] = {}
    kernel = Kernel()
    waiting: list[str] = []  # labels of the next instruction
    is_subroutine = False
    for line in text.splitlines():
        section, label, found = _SECTION.match(line), _LABEL.match(line), _INSTRUCTION.match(line)
        if section is not None:
            kernel = kernels[section[1]] = Kernel()
            is_subroutine = False
        elif label is not None:
            waiting.append(label[1])
            is_subroutine = is_subroutine or label[1].startswith("$")
        elif found is not None:
            instruction = Instruction(int(found[1], 16), found[2] or "", found[3], found[4])
            kernel.labels |= dict.fromkeys(waiting, instruction.address)
            waiting.clear()
            (kernel.subroutines if is_subroutine else kernel.body).append(instruction)
    return kernels


def parse_usage(text: str) -> dict[str, Usage]:
    """Return the resources of every function in the output of ``cuobjdump -res-usage``, by symbol."""
    usages: dict[str, Usage] = {}
    symbol = ""
    for line in text.splitlines():
        function, usage = _FUNCTION.match(line), _USAGE.match(line)
        if function is not None:
            symbol = function[1]
        elif usage is not None:
            usages[symbol] = Usage(int(usage[1]), int(usage[2]), int(usage[3]))
    return usages
