"""Reads the machine code of every kernel and compares it with the table: ``make test-sass``.

Examples:
    python -m tests.sass                     every kernel for sm_90; exit status 1 when any fact is worse than in the table
    python -m tests.sass --all               for every architecture in a wheel
    python -m tests.sass --write             write the current facts to the table
    python -m tests.sass --op rms_norm       one op, printed next to the target
"""

from __future__ import annotations

import argparse
import sys

from .facts import TARGET, Facts, is_streaming, missed, worse
from .gate import (
    ARCHITECTURES,
    Table,
    compared,
    measured,
    ops_with_kernels,
    read_table,
    release,
    unavailable,
    write_table,
)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.sass", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--all", action="store_true", help=f"all of {', '.join(ARCHITECTURES)}")
    parser.add_argument("--write", action="store_true", help="write the tables in place of comparing with them")
    parser.add_argument("--op", action="append", default=[], help="an op; may be given several times")
    options = parser.parse_args(arguments)
    problem = unavailable()
    if problem:
        sys.exit(f"reading machine code failed: got {problem}")
    ops = [op for op in ops_with_kernels() if not options.op or op.name in options.op]
    lines = []
    for architecture in ARCHITECTURES if options.all else ARCHITECTURES[:1]:
        found: Table = {}
        for op in ops:
            found |= measured(op, architecture)
        _print(architecture, found)
        if options.write and not options.op:
            write_table(architecture, found)
            continue
        by, expected = read_table(architecture)
        if options.write and by == release():
            write_table(architecture, {**expected, **found})
            continue
        if by != release():
            sys.exit(
                f"comparing {architecture} failed: got NVRTC {release()}; expected {by}, which made the table. "
                f"Fix: pip install 'nvidia-cuda-nvrtc=={by}.*', or write a new table with --write."
            )
        lines += [f"{architecture}: {line}" for line in compared(expected, found)]
        better = sum(len(worse(facts, expected[key])) for key, facts in found.items() if key in expected)
        if better:
            print(f"{architecture}: {better} facts are better than in the table; --write holds them")
    print("\n".join(lines) if lines else "no kernel is worse than in the table")
    return 1 if lines else 0


def _print(architecture: str, found: Table) -> None:
    print(f"{architecture:55} {'  '.join(Facts._fields)}")
    print(f"{'target':55} {_values(TARGET)}")
    for (op, kernel), facts in found.items():
        short = missed(facts, kernel) if is_streaming(kernel) else []
        print(f"{f'{op}: {kernel}':55} {_values(facts)}  {'misses ' + ', '.join(short) if short else ''}")


def _values(facts: Facts) -> str:
    return "  ".join(f"{value!s:>{len(name)}}" for name, value in zip(Facts._fields, facts, strict=True))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
