"""Reads clang's assembly of every kernel for AMD's GPUs and compares it with the tables.

Examples:
    python -m tests.amdgpu            every kernel for every GPU; exit status 1 when a fact is worse than in the table
    python -m tests.amdgpu --write    takes today's facts for the tables
"""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from anyaccel.op_builder.engine.targets import HIP_TARGETS

from .facts import WITH_KERNELS, Facts, compared, measured, missed, read_table, release, write_table


def main(arguments: list[str]) -> int:
    lines = []
    for target in HIP_TARGETS:
        with ThreadPoolExecutor() as pool:
            tables = pool.map(lambda op: measured(op, target, op.kernels), WITH_KERNELS)  # noqa: B023
            found = {key: facts for table in tables for key, facts in table.items()}
        print(f"{target:50} {'  '.join(Facts._fields)}")
        for (op, kernel), facts in found.items():
            values = "  ".join(f"{value:>{len(name)}}" for name, value in facts._asdict().items())
            short = missed(facts, kernel)
            print(f"{f'{op}: {kernel}':50} {values}  {'misses ' + ', '.join(short) if short else ''}")
        if "--write" in arguments:
            write_table(target, found)
            continue
        made_by, expected = read_table(target)
        if made_by != release():
            sys.exit(
                f"comparing {target} failed: got clang {release()}; expected {made_by}, which made the table. "
                f"Fix: install its ziglang, or write a new table with --write."
            )
        lines += [f"{target}: {line}" for line in compared(expected, found)]
    print("\n".join(lines) if lines else "no kernel is worse than in the table")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
