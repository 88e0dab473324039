"""Facts about a kernel's machine code that affect its speed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from .occupancy import LIMITS, NEEDED_BYTES, threads_of_an_sm

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .listing import Instruction, Kernel, Usage

__all__ = ["TARGET", "Facts", "facts_of", "is_streaming", "missed", "regressed", "worse"]

_LOADS = ("LDG", "LD")
_STORES = ("STG", "ST")
_WIDTHS = {"256": 256, "128": 128, "64": 64, "U16": 16, "S16": 16, "U8": 8, "S8": 8}
_REGISTER = re.compile(r"(?<![A-Z])R(\d+)(\.64)?")
_TRANSFERS = ("BRA", "EXIT", "RET", "BRX", "JMP", "BREAK")

_HARDWARE = {
    "Half": re.compile(r"F2FP?\.(\w+\.)*F16|F2FP\.PACK_AB|HADD2\.F32|F2F\.F32\.F16"),
    "BFloat16": re.compile(r"F2FP?\.(\w+\.)*BF16"),
    "E4M3": re.compile(r"F2FP?\.(\w+\.)*E4M3"),
    "E5M2": re.compile(r"F2FP?\.(\w+\.)*E5M2"),
}
"""The instructions that convert to and from a narrow type; bfloat16 to float is a shift by 16, and needs none."""
_READS_BFLOAT16_ONLY = re.compile(
    r"(SquaredSums|ExtremesOfParts|Quantize|QuantizeFloat8|CombineWeightsBackward|LambUpdate)<|TensorStep<\w+, (float|Half),|"
    r"AdamStep<(float|Half),|ScaleTensors<BFloat16, (float|Half)>"
)
"""Instances that store no bfloat16: for the optimizers, those where only gradients are bfloat16."""
_THREADS_OF_ROWS = 512  # for rows of 2048 columns and more
_THREADS = {
    "ColumnSum": 256,
    "TensorStep": 256,
    "AdamStep": 256,
    "LambUpdate": 256,
    "LambApply": 256,
    "RotaryEmbedding": 256,
}
"""Threads per block in csrc/runtime/device_kernels.cpp, if they differ from those of wide rows: 256 for kernels over elements
and for 32 heads of 128 columns."""
_KEEPS_TOTALS = ("RmsNormBackward", "LayerNormBackward", "BiasedBackward", "BiasSigmoidBackward")
"""They keep column totals in registers from row to row, and no more than 1024 threads of an SM are launched
(device_groups_with_partials in csrc/runtime/launch_shape.h)."""
_THREADS_WITH_TOTALS = 1024
_READS_BESIDE = ("SoftmaxForward", "CombineRows")
"""They read a mask of bytes, or one place and weight for a tile."""
_OF_CODES = {"Quantize": _STORES, "QuantizeFloat8": _STORES, "Dequantize": _LOADS, "DequantizeFloat8": _LOADS}
"""They store, or load, the codes of 16 bytes of elements: 2 to 8 bytes. With 16 bytes of codes, a thread's elements would be
32 to 128 bytes, and each access to a part of them would leave gaps between neighbours; an H200 took 1.3 to 1.7 times as
long for float32."""
_REDUCTIONS = ("ColumnSum", "CombineWeightsBackward", "ExtremesOfParts", "SquaredSums")
"""They store one number per row, column or chunk."""
_NOT_STREAMING = ("ExtremesOfGroups", "RootOfSums", "TopkGating", "TopkGatingBackward")
"""They read partial results, or rows as short as the number of experts: a few kilobytes."""


class Facts(NamedTuple):
    """The facts that are checked about a kernel.

    Attributes:
        load_bits: the width of the widest load from global memory.
        store_bits: the width of the widest store to global memory.
        narrow: the number of accesses narrower than 128 bits in blocks of code that also have one of 128 bits: tiles
            that the compiler split. A single wide access elsewhere hid 16 stores of 16 bits from ``store_bits``.
        spills: the number of loads and stores of local memory, outside subroutines: those are 64-bit divisions, which
            only sizes of 2^32 or more reach, and what ``calls`` finds.
        stack_bytes: the stack of a thread.
        registers: the registers of a thread.
        in_flight_bytes: global loads in flight per SM, at the occupancy that the registers allow: the most bytes for
            which a thread has issued loads before it waits for one, times the resident threads.
        emulated: narrow types that integer instructions convert, joined by ``+``.
        calls: subroutine calls in innermost loops that load from global memory.
        barriers: the number of barrier instructions, not of executions.
    """

    load_bits: int
    store_bits: int
    narrow: int
    spills: int
    stack_bytes: int
    registers: int
    in_flight_bytes: int
    emulated: str
    calls: int
    barriers: int


TARGET = Facts(128, 128, 0, 0, 0, 64, NEEDED_BYTES, "", 0, 0)
"""The target of every streaming kernel; barriers have no target."""
_MORE_IS_BETTER = ("load_bits", "store_bits", "in_flight_bytes")
_WITHOUT_TARGET = ("barriers",)


@dataclass(frozen=True)
class _Loop:
    first: int
    last: int


def is_streaming(kernel: str) -> bool:
    """Return whether an instance such as ``TensorStep<Lion, float, Half>`` moves large tensors."""
    return kernel.partition("<")[0] not in _NOT_STREAMING


def facts_of(instance: str, target: str, kernel: Kernel, usage: Usage) -> Facts:
    """Return the facts of a kernel.

    Args:
        instance: its name in the table of ops, such as ``TensorStep<Lion, float, Half>``.
        target: the architecture, such as ``sm_90``.
        kernel: its instructions.
        usage: its registers and memory.
    """
    every = [*kernel.body, *kernel.subroutines]
    kernel_name = instance.partition("<")[0]
    threads = _THREADS.get(kernel_name, _THREADS_OF_ROWS)
    if kernel_name in _KEEPS_TOTALS:
        threads = _THREADS_WITH_TOTALS
    resident = threads_of_an_sm(LIMITS[target], threads, usage.registers, usage.shared_bytes)
    if kernel_name in _KEEPS_TOTALS:
        resident = min(resident, _THREADS_WITH_TOTALS)
    return Facts(
        load_bits=max((_bits(one) for one in every if one.name in _LOADS), default=0),
        store_bits=max((_bits(one) for one in every if one.name in _STORES), default=0),
        narrow=_narrow_beside_wide(kernel, _tiles_of(kernel_name)),
        spills=sum(one.name in ("STL", "LDL") for one in kernel.body),
        stack_bytes=usage.stack_bytes,
        registers=usage.registers,
        in_flight_bytes=_bytes_before_a_wait(kernel.body) * resident,
        emulated="+".join(_emulated(instance, every)),
        calls=_calls_between_loads(kernel),
        barriers=sum(one.name == "BAR" for one in every),
    )


def missed(facts: Facts, kernel: str = "") -> list[str]:
    """Return the names of an instance's facts that miss the target; numbers of a row, and codes, need not be wide."""
    name = kernel.partition("<")[0]
    without = list(_WITHOUT_TARGET)
    if name in _REDUCTIONS or _OF_CODES.get(name) == _STORES:
        without.append("store_bits")
    elif name in _OF_CODES:  # most of what they move are stores
        without += ["load_bits", "in_flight_bytes"]
    return [fact for fact in worse(TARGET, facts) if fact not in without]


def _tiles_of(kernel_name: str) -> tuple[str, ...]:
    """Return the instructions by which a kernel moves tiles of 128 bits."""
    if kernel_name in _OF_CODES:
        return tuple(name for name in (*_LOADS, *_STORES) if name not in _OF_CODES[kernel_name])
    return _STORES if kernel_name in _READS_BESIDE else (*_LOADS, *_STORES)


def worse(before: Facts, now: Facts) -> list[str]:
    """Return the names of the facts that are worse than before."""
    names = []
    for name, old, new in zip(Facts._fields, before, now, strict=True):
        if name == "emulated":
            is_worse = not set(filter(None, str(new).split("+"))) <= set(str(old).split("+"))
        elif name in _MORE_IS_BETTER:
            is_worse = new < old  # type: ignore[operator]
        else:
            is_worse = new > old  # type: ignore[operator]
        if is_worse:
            names.append(name)
    return names


def regressed(before: Facts, now: Facts, kernel: str = "") -> list[str]:
    """Return the names of the facts that are worse than before and miss the target."""
    short = missed(now, kernel)
    return [name for name in worse(before, now) if name in short or name in _WITHOUT_TARGET]


def _bits(instruction: Instruction) -> int:
    return next((_WIDTHS[word] for word in instruction.opcode.split(".") if word in _WIDTHS), 32)


def _narrow_beside_wide(kernel: Kernel, names: tuple[str, ...]) -> int:
    """Return the number of accesses with these names, narrower than 128 bits, in straight code with a wider one."""
    starts = set(kernel.labels.values())
    count = 0
    widths: list[int] = []  # of the accesses in the current piece of straight code
    checked: list[int] = []
    for one in [*kernel.body, None]:
        if one is None or one.address in starts:
            count += sum(width < 128 for width in checked) if any(width >= 128 for width in widths) else 0
            widths, checked = [], []
        if one is not None and one.name in (*_LOADS, *_STORES):
            widths.append(_bits(one))
            checked += [_bits(one)] if one.name in names else []
    return count


def _bytes_before_a_wait(body: list[Instruction]) -> int:
    """Return the most bytes of global loads that are issued before an instruction needs one of them.

    The code is read in order; loads separated by an unconditional jump do not count together. A wait for one load counts
    as a wait for all, as they return in about the order in which they were issued.
    """
    most = 0
    waited_for: set[int] = set()  # registers that loads will fill
    issued = 0
    for one in body:
        registers = list(_registers(one))
        is_load = one.name in _LOADS and bool(registers)
        count = max(1, _bits(one) // 32)
        filled = range(registers[0], registers[0] + count) if is_load else range(0)
        needed = registers[1:] if is_load else registers
        if not waited_for.isdisjoint((*needed, *filled)):
            waited_for, issued = set(), 0
        if is_load:
            waited_for |= set(filled)
            issued += _bits(one) // 8
            most = max(most, issued)
        if one.name in _TRANSFERS and not one.predicate:
            waited_for, issued = set(), 0
    return most


def _registers(instruction: Instruction) -> Iterator[int]:
    for found in _REGISTER.finditer(instruction.operands):
        yield int(found[1])
        if found[2]:
            yield int(found[1]) + 1


def _emulated(instance: str, instructions: list[Instruction]) -> list[str]:
    """Return the narrow types among a kernel's parameters for which it has no converting instruction."""
    parameters = instance.partition("<")[2]
    found = []
    for narrow in re.findall(r"\w+", parameters):
        is_shift_only = narrow == "BFloat16" and _READS_BFLOAT16_ONLY.match(instance)
        if narrow not in _HARDWARE or narrow in found or is_shift_only:
            continue
        if not any(_HARDWARE[narrow].match(one.opcode) for one in instructions):
            found.append(narrow)
    return found


def _calls_between_loads(kernel: Kernel) -> int:
    """Return the number of subroutine calls in innermost loops that load from global memory."""
    loops = set(_loops(kernel))
    innermost = [
        loop
        for loop in loops
        if not any(other != loop and loop.first <= other.first and other.last <= loop.last for other in loops)
    ]
    calls = 0
    for loop in innermost:
        inside = [one for one in kernel.body if loop.first <= one.address <= loop.last]
        if any(one.name in _LOADS for one in inside):
            # a call to one of the kernel's own labels is a jump; sm_80 leaves loops this way
            calls += sum(one.name == "CALL" and "(.L_" not in one.operands for one in inside)
    return calls


def _loops(kernel: Kernel) -> Iterator[_Loop]:
    """Yield the range of every backward jump, except a jump to itself, which ends every kernel."""
    for one in kernel.body:
        label = re.search(r"\((\.L_\w+)\)", one.operands)
        if one.name == "BRA" and label is not None and kernel.labels.get(label[1], one.address) < one.address:
            yield _Loop(kernel.labels[label[1]], one.address)
