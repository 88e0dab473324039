"""Facts about small listings, each written by hand for one fact."""

from __future__ import annotations

import pytest

from .facts import TARGET, Facts, facts_of, is_streaming, missed, regressed, worse
from .listing import Usage, parse_listing

FULL = Usage(32, 0, 0)  # 2048 threads of an SM of sm_90


def _facts(code: str, instance: str = "Copy<float>", usage: Usage = FULL) -> Facts:
    """Return the facts about instructions, one per line; a line that ends with a colon is a label."""
    lines = [".text.kernel:"]
    address = 0
    for line in filter(None, map(str.strip, code.splitlines())):
        if line.endswith(":"):
            lines.append(line)
            continue
        lines.append(f"        /*{address:04x}*/                   {line} ;")
        address += 16
    return facts_of(instance, "sm_90", parse_listing("\n".join(lines))["kernel"], usage)


@pytest.mark.parametrize(
    ("opcode", "bits"),
    [("E", 32), ("E.64", 64), ("E.128.CONSTANT", 128), ("E.U16", 16), ("E.S8", 8), ("E.ENL2.256", 256)],
)
def test_the_widest_access_counts(opcode: str, bits: int) -> None:
    facts = _facts(
        f"LDG.E.U8 R2, desc[UR4][R4.64]\nLDG.{opcode} R8, desc[UR4][R4.64]\nSTG.{opcode} desc[UR4][R6.64], R8"
    )
    assert (facts.load_bits, facts.store_bits) == (max(bits, 8), bits)


def test_narrow_accesses_beside_a_wide_one_count() -> None:
    wide = "LDG.E.128 R4, desc[UR4][R20.64]"
    split = "\n".join(f"STG.E.U16 desc[UR4][R22.64+{2 * n:#x}], R4" for n in range(8))
    assert _facts(f"{wide}\n{split}").narrow == 8
    assert _facts(f"{wide}\n.L_x_1:\n{split}").narrow == 0
    assert _facts(f"{wide}\nLDG.E.U8 R9, desc[UR4][R24.64]").narrow == 1
    assert _facts(f"{wide}\nLDG.E.U8 R9, desc[UR4][R24.64]", "SoftmaxForward<float>").narrow == 0
    assert _facts(f"{wide}\nSTG.E desc[UR4][R24.64], R4", "SoftmaxForward<float>").narrow == 1


def test_shared_and_local_memory_are_not_global() -> None:
    facts = _facts("LDS.128 R4, [R2]\nSTS.128 [R2], R4\nSTL [R1], R4\nLDL R4, [R1]")
    assert (facts.load_bits, facts.store_bits, facts.spills, facts.in_flight_bytes) == (0, 0, 2, 0)


def test_loads_are_in_flight_until_the_first_is_needed() -> None:
    four = "\n".join(f"LDG.E R{n}, desc[UR4][R20.64]" for n in range(4))
    assert _facts(f"{four}\nFADD R9, R0, R1").in_flight_bytes == 4 * 4 * 2048
    one_by_one = "\n".join(f"LDG.E R{n}, desc[UR4][R20.64]\nFADD R9, R9, R{n}" for n in range(4))
    assert _facts(one_by_one).in_flight_bytes == 4 * 2048


def test_every_register_of_a_wide_load_is_waited_for() -> None:
    code = "LDG.E.128 R4, desc[UR4][R20.64]\nFADD R9, R9, R7\nLDG.E R12, desc[UR4][R20.64]\nFADD R9, R9, R12"
    assert _facts(code).in_flight_bytes == 16 * 2048


def test_an_address_that_was_loaded_is_waited_for() -> None:
    code = "LDG.E.64 R4, desc[UR4][R20.64]\nLDG.E R8, desc[UR4][R4.64]\nFADD R9, R9, R8"
    assert _facts(code).in_flight_bytes == 8 * 2048


def test_a_uniform_register_of_the_same_number_is_another() -> None:
    code = "LDG.E R4, desc[UR6][R20.64]\nIMAD.U32 R9, RZ, RZ, UR4\nLDG.E R5, desc[UR6][R20.64]\nFADD R9, R4, R5"
    assert _facts(code).in_flight_bytes == 8 * 2048


def test_what_a_jump_separates_is_not_in_flight_together() -> None:
    apart = "LDG.E R4, desc[UR6][R20.64]\nBRA `(.L_x_1)\nLDG.E R5, desc[UR6][R20.64]\n.L_x_1:\nFADD R9, R4, R5"
    assert _facts(apart).in_flight_bytes == 4 * 2048
    perhaps = apart.replace("BRA", "@P0 BRA")
    assert _facts(perhaps).in_flight_bytes == 8 * 2048


def test_registers_and_shared_memory_lower_what_is_in_flight() -> None:
    code = "LDG.E.128 R4, desc[UR4][R20.64]\nFADD R9, R9, R7"
    assert _facts(code, usage=Usage(64, 0, 0)).in_flight_bytes == 16 * 1024
    assert _facts(code, usage=Usage(32, 0, 100 * 1024)).in_flight_bytes == 16 * 1024


@pytest.mark.parametrize(
    ("instance", "opcode", "emulated"),
    [
        ("Copy<Half>", "IADD3", "Half"),
        ("Copy<Half>", "HFMA2.MMA", "Half"),  # it also sets constants
        ("Copy<Half>", "HADD2.F32", ""),
        ("Copy<Half>", "F2FP.F16.F32.PACK_AB", ""),
        ("Copy<Half>", "F2FP.PACK_AB", ""),  # on sm_80
        ("Copy<Half>", "F2FP.BF16.F32.PACK_AB", "Half"),
        ("Copy<float, BFloat16>", "VIADD", "BFloat16"),
        ("Copy<float, BFloat16>", "F2FP.BF16.F32.PACK_AB", ""),
        ("Copy<BFloat16, Half>", "IADD3", "BFloat16+Half"),
        ("SquaredSums<BFloat16>", "SHL", ""),  # reading bfloat16 is a shift
        ("SquaredSums<Half>", "SHL", "Half"),
        ("QuantizeFloat8<float, E4M3>", "IADD3", "E4M3"),
        ("QuantizeFloat8<float, E4M3>", "F2FP.SATFINITE.E4M3.F32.PACK_AB_MERGE_C", ""),
        ("Copy<float>", "IADD3", ""),
    ],
)
def test_a_narrow_type_without_converting_instructions_is_emulated(instance: str, opcode: str, emulated: str) -> None:
    assert _facts(f"{opcode} R0, R1, R2, R3", instance).emulated == emulated


LOOP = """
.L_x_0:
LDG.E R4, desc[UR6][R20.64]
@P1 CALL.REL.NOINC `($slow)
STG.E desc[UR6][R22.64], R4
@P0 BRA `(.L_x_0)
"""


def test_calls_in_innermost_loops_with_loads_are_counted() -> None:
    end = "EXIT\n.L_x_9:\nBRA `(.L_x_9)"
    assert _facts(LOOP + end).calls == 1
    assert _facts(LOOP.replace("@P0 BRA", "@P0 EXIT") + end).calls == 0  # no loop
    assert _facts(LOOP.replace("LDG.E", "LDS") + end).calls == 0  # no load
    leaves = LOOP.replace("$slow", ".L_x_9")
    assert leaves != LOOP
    assert _facts(leaves + end).calls == 0
    outer = f".L_x_1:\nCALL.REL.NOINC `($slow)\n{LOOP}@P2 BRA `(.L_x_1)\n{end}"
    assert _facts(outer).calls == 1  # the call in the outer loop happens once per row


def test_barriers_and_stack_are_told() -> None:
    facts = _facts("BAR.SYNC.DEFER_BLOCKING 0x0\nBAR.SYNC.DEFER_BLOCKING 0x0", usage=Usage(40, 24, 0))
    assert (facts.barriers, facts.registers, facts.stack_bytes) == (2, 40, 24)


def test_the_target_is_reached_or_what_lacks_is_named() -> None:
    assert missed(TARGET) == []
    assert missed(TARGET._replace(barriers=12, load_bits=256, registers=20)) == []
    short = TARGET._replace(load_bits=64, spills=1, in_flight_bytes=21503, emulated="Half", calls=2, registers=65)
    assert missed(short) == ["load_bits", "spills", "registers", "in_flight_bytes", "emulated", "calls"]
    narrow = TARGET._replace(store_bits=32)
    assert missed(narrow, "RmsNormForward<float, float>") == ["store_bits"]
    assert missed(narrow, "Quantize<float, 8>") == []
    assert missed(narrow, "SquaredSums<float>") == []
    assert is_streaming("TensorStep<Lion, float, Half>")
    assert not is_streaming("RootOfSums")


@pytest.mark.parametrize("name", Facts._fields)
def test_each_fact_can_get_worse_and_better(name: str) -> None:
    before = Facts(64, 64, 2, 2, 16, 40, 8192, "Half", 2, 2)
    bad = Facts(32, 32, 3, 3, 24, 41, 8191, "E4M3", 3, 3)
    good = Facts(128, 128, 0, 0, 0, 32, 8193, "", 0, 0)
    assert worse(before, before) == []
    assert worse(before, before._replace(**{name: getattr(bad, name)})) == [name]
    assert worse(before, before._replace(**{name: getattr(good, name)})) == []


def test_what_still_reaches_the_target_has_not_regressed() -> None:
    before = TARGET._replace(load_bits=256, registers=20, in_flight_bytes=65536, barriers=1)
    assert regressed(before, TARGET._replace(registers=64, barriers=1)) == []
    assert regressed(before, TARGET._replace(registers=65, in_flight_bytes=21503, barriers=2)) == [
        "registers", "in_flight_bytes", "barriers",
    ]  # fmt: skip
