"""No kernel's machine code for sm_90 gets worse than in the table; ``make test-sass`` prints it next to the target."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from . import __main__ as command
from . import gate
from .facts import TARGET

if TYPE_CHECKING:
    from pathlib import Path

    from anyaccel.op_builder.op import Op

needs_tools = pytest.mark.skipif(bool(gate.unavailable()), reason=gate.unavailable())


@needs_tools
@pytest.mark.parametrize("op", gate.ops_with_kernels(), ids=lambda op: op.name)
def test_no_kernel_is_worse_than_in_the_table(op: Op) -> None:
    made_by, expected = gate.read_table("sm_90")
    if made_by != gate.release():
        pytest.skip(f"the table is of NVRTC {made_by}, and here is {gate.release()}, which makes other code")
    assert not gate.compared(expected, gate.measured(op, "sm_90")), "see python -m tests.sass --op " + op.name


@pytest.mark.parametrize("architecture", gate.ARCHITECTURES)
def test_a_table_holds_every_kernel_and_no_other(architecture: str) -> None:
    _, table = gate.read_table(architecture)
    assert list(table) == [(op.name, kernel) for op in gate.ops_with_kernels() for kernel in op.kernels]


def test_what_is_worse_or_unknown_is_told_by_kernel_and_fact() -> None:
    before = TARGET._replace(load_bits=64, emulated="")
    found = {("a", "Copy<Half>"): before._replace(load_bits=32, emulated="Half"), ("a", "New<float>"): TARGET}
    assert gate.compared({("a", "Copy<Half>"): before}, found) == [
        "a: Copy<Half>: load_bits was 64 and is 32",
        "a: Copy<Half>: emulated was none and is Half",
        "a: New<float> is not in the table",
    ]


def test_a_table_is_read_as_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "release", lambda: "13.5")
    table = {("a", "Copy<float, Half>"): TARGET._replace(emulated="Half"), ("b", "Sum"): TARGET._replace(load_bits=32)}
    gate.write_table("sm_90", table, tmp_path)
    assert gate.read_table("sm_90", tmp_path) == ("13.5", table)


def test_the_summary_counts_streaming_kernels_by_what_they_reach() -> None:
    table = {
        ("a", "Copy<float>"): TARGET,
        ("a", "Copy<Half>"): TARGET._replace(load_bits=16, in_flight_bytes=4096),
        ("a", "RootOfSums"): TARGET._replace(load_bits=32),
    }
    text = gate.summary(table)
    assert "| widest load: 128 bits | 1 of 2 |" in text
    assert "| widest store: 128 bits | 2 of 2 |" in text
    assert "| **all of them** | **1 of 2** |" in text
    assert "| `a` | 2 | 16 to 128 | 128 | 64 | 4 to 21 | 19 to 100 % | 0 |" in text


@needs_tools
def test_the_command_fails_where_a_fact_is_worse(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    op = next(op for op in gate.ops_with_kernels() if op.name == "softmax")
    found = gate.measured(op, "sm_90")
    gate.write_table("sm_90", {key: facts._replace(barriers=1, spills=30) for key, facts in found.items()}, tmp_path)
    monkeypatch.setattr(command, "read_table", lambda architecture: gate.read_table(architecture, tmp_path))
    assert command.main(["--op", op.name]) == 1
    printed = capsys.readouterr().out
    assert "sm_90: softmax: SoftmaxBackward<float>: barriers was 1 and is 4" in printed
    assert f"sm_90: {len(found)} facts are better than in the table" in printed
