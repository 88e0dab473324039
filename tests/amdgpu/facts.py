"""Reads facts about each kernel from clang's assembly for AMD's GPUs: widths of accesses, registers, private memory."""

from __future__ import annotations

import csv
import io
import re
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from anyaccel.op_builder.engine import environment
from anyaccel.op_builder.engine.cache import open_cache
from anyaccel.op_builder.engine.targets import wave_lanes
from anyaccel.op_builder.engine.toolchains.amdgpu import choose_amdgpu, probe_amdgpu
from anyaccel.op_builder.hip.device_code import HipCodeRecipe, device_code_recipe
from anyaccel.op_builder.table import OPS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anyaccel.op_builder.op import Op

HERE = Path(__file__).parent
WITH_KERNELS = [op for op in OPS if op.kernels]

_BITS = {
    "dwordx4": 128, "b128": 128, "dwordx3": 96, "b96": 96, "dwordx2": 64, "b64": 64, "dword": 32, "b32": 32, "short": 16,
    "ushort": 16, "b16": 16, "u16": 16, "byte": 8, "ubyte": 8, "sbyte": 8, "b8": 8, "u8": 8, "i8": 8,
}  # fmt: skip
_ACCESS = re.compile(r"\b(?:global|flat)_(load|store)_(?:lds_)?(?:d16_)?(?:hi_)?([a-z]+\d*)")
_KEEPS_TOTALS = ("RmsNormBackward", "LayerNormBackward", "BiasedBackward", "BiasSigmoidBackward")
_REDUCTIONS = ("ColumnSum", "CombineWeightsBackward", "ExtremesOfParts", "SquaredSums")
_WRITE_CODES = ("Quantize", "QuantizeFloat8")
_READ_CODES = ("Dequantize", "DequantizeFloat8")
"""A thread moves the 2 to 8 bytes of codes of 16 bytes of elements."""
_NOT_STREAMING = ("ExtremesOfGroups", "RootOfSums", "TopkGating", "TopkGatingBackward")
"""As in tests/sass/facts.py: kernels that keep totals need one block only, and reductions store one number per row."""
_THREADS = 512
_SIMDS = 4


class Facts(NamedTuple):
    """The facts of a kernel that the table has.

    Attributes:
        load_bits: of the widest load from global memory.
        store_bits: of the widest store to global memory.
        scratch_bytes: of a thread, in memory: what does not fit in registers, and arrays that are indexed.
        spills: vector registers that were put there.
        registers: vector registers of a thread.
        blocks: of 512 threads, that the four SIMDs of a compute unit hold, or of a work-group processor of two.
        lds_bytes: shared memory of a block.
    """

    load_bits: int
    store_bits: int
    scratch_bytes: int
    spills: int
    registers: int
    blocks: int
    lds_bytes: int


TARGET = Facts(128, 128, 0, 0, 0, 2, 0)
"""The target of every streaming kernel; kernels that keep totals need one block only. Registers and LDS count as blocks."""
_MORE_IS_BETTER = ("load_bits", "store_bits", "blocks")
_COUNTED = ("registers", "lds_bytes")

Table = dict[tuple[str, str], Facts]


def unavailable() -> str:
    """Return why nothing can be compiled here, or an empty text."""
    probe = probe_amdgpu(open_cache(environment.cache_dir()).root)
    return "" if probe.tool is not None else probe.detail


def release() -> str:
    """Return clang's major version, because each generates different machine code."""
    return choose_amdgpu(open_cache(environment.cache_dir()).root).version.partition(".")[0]


def one_of_each(op: Op) -> list[str]:
    """Return the first instance of each of an op's kernel templates."""
    first: dict[str, str] = {}
    for kernel in op.kernels:
        first.setdefault(kernel.partition("<")[0], kernel)
    return list(first.values())


def measured(op: Op, target: str, kernels: Sequence[str]) -> Table:
    """Compile instances of an op's kernels to assembly, and return their facts."""
    text = assembly(op, target, kernels)
    return {(op.name, kernel): _facts(text, f"kernel_{number}", target) for number, kernel in enumerate(kernels)}


def assembly(op: Op, target: str, kernels: Sequence[str]) -> str:
    """Return the assembly of instances of an op's kernels, ``kernel_0`` and so on."""
    recipe = device_code_recipe(op, target)
    assert isinstance(recipe, HipCodeRecipe)
    lines = [f"ANYACCEL_HIP_KERNEL(kernel_{number}, {kernel})" for number, kernel in enumerate(kernels)]
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "kernels.hip").write_text("\n".join([f'#include "{recipe.source}"', *lines, ""]))
        options = [*recipe.options, *(f"-I{included}" for included in recipe.include_dirs)]
        subprocess.run(recipe.compiler.compiling("kernels.hip", options, "kernels.s"), check=True, cwd=folder)
        return (Path(folder) / "kernels.s").read_text()


def _facts(text: str, symbol: str, target: str) -> Facts:
    body = text[text.index(f"\n{symbol}:") :]
    widths: dict[str, list[int]] = {"load": [0], "store": [0]}
    for kind, width in _ACCESS.findall(body[: body.index(".Lfunc_end")]):
        widths[kind].append(_BITS[width])
    (told,) = (
        part
        for part in text[text.index(".amdgpu_metadata") :].split("\n  - ")
        if re.search(rf"\.name: +{symbol}\n", part)
    )

    def said(name: str) -> int:
        found = re.search(rf"\.{name}: +(\d+)", told)
        assert found is not None, name
        return int(found[1])

    waves = re.search(r"^; Occupancy: (\d+)", body, re.MULTILINE)  # of a SIMD, by registers and shared memory
    assert waves is not None
    return Facts(
        max(widths["load"]), max(widths["store"]), said("private_segment_fixed_size"), said("vgpr_spill_count"),
        said("vgpr_count"), int(waves[1]) * _SIMDS * wave_lanes(target) // _THREADS, said("group_segment_fixed_size"),
    )  # fmt: skip


def missed(facts: Facts, kernel: str) -> list[str]:
    """Return the names of the facts of a streaming instance that do not reach the target."""
    name = kernel.partition("<")[0]
    if name in _NOT_STREAMING:
        return [fact for fact in ("scratch_bytes", "spills") if getattr(facts, fact)]
    target = TARGET._replace(blocks=1) if name in _KEEPS_TOTALS else TARGET
    without = list(_COUNTED)
    if name in (*_REDUCTIONS, *_WRITE_CODES):
        without.append("store_bits")
    elif name in _READ_CODES:
        without.append("load_bits")
    return [fact for fact in worse(target, facts) if fact not in without]


def worse(before: Facts, now: Facts) -> list[str]:
    """Return the names of the facts that are worse than before."""
    pairs = zip(Facts._fields, before, now, strict=True)
    return [name for name, old, new in pairs if (new < old if name in _MORE_IS_BETTER else new > old)]


def compared(expected: Table, found: Table) -> list[str]:
    """Return a line for each fact that is worse than before and misses the target, and for each kernel without a row."""
    lines = []
    for (op, kernel), now in found.items():
        before = expected.get((op, kernel))
        if before is None:
            lines.append(f"{op}: {kernel} is not in the table")
            continue
        short = missed(now, kernel)
        lines += [
            f"{op}: {kernel}: {name} was {getattr(before, name)} and is {getattr(now, name)}"
            for name in worse(before, now)
            if name in short
        ]
    return lines


def read_table(target: str, folder: Path = HERE) -> tuple[str, Table]:
    """Return the major version of the clang that a table was made with, and the table."""
    first, _, rest = (folder / f"{target}.csv").read_text(encoding="utf-8").partition("\n")
    rows = csv.DictReader(io.StringIO(rest))
    table = {(row["op"], row["kernel"]): Facts(*(int(row[name]) for name in Facts._fields)) for row in rows}
    return first.removeprefix("# clang ").partition(";")[0], table


def write_table(target: str, table: Table, folder: Path = HERE) -> None:
    """Write a table: which clang made it, and a row for each kernel."""
    text = io.StringIO()
    text.write(f"# clang {release()}; written by python -m tests.amdgpu --write\n")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["op", "kernel", *Facts._fields])
    for key, facts in table.items():
        writer.writerow([*key, *facts])
    (folder / f"{target}.csv").write_text(text.getvalue(), encoding="utf-8")
