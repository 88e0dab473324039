"""The binaries that users get hold whole kernels: a call in a loop keeps the compiler from vectorising it."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

from anyaccel.op_builder.all_ops import builder_class
from anyaccel.op_builder.op import CSRC, Op
from anyaccel.op_builder.table import OPS

IN_LOOPS = ("elementary.h", "float8.h", "precision.h", "tile.h")
"""The headers of functions that kernels call for each element."""


@pytest.mark.parametrize("op", [op for op in OPS if op.kernels], ids=lambda op: op.name)
def test_a_kernel_on_the_cpu_calls_no_function_of_its_own(op: Op) -> None:
    if shutil.which("nm") is None:
        pytest.skip("no nm, which lists a library's functions")
    functions = {
        name
        for header in IN_LOOPS
        for name in re.findall(r"^inline .*?(\w+)\(", (CSRC / "includes" / header).read_text(encoding="utf-8"), re.M)
    }
    assert {"load", "store", "to_float"} <= functions
    builder = builder_class(op.builder, "cpu")
    assert builder is not None
    listed = subprocess.check_output(["nm", "-C", builder().build().binary], text=True)
    symbols = [line.split(" ", 2)[2] for line in listed.splitlines() if re.match(r"\w+ [tTwW] ", line)]
    assert any(symbol.startswith("anyaccel") for symbol in symbols)  # the library was not stripped
    parts = re.compile(rf"CpuGroup|^(?:\w+ )*anyaccel::(?:{'|'.join(sorted(functions))})\b")
    assert [symbol for symbol in symbols if parts.search(symbol) and "kernel_name<" not in symbol] == []
