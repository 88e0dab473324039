"""Parsing the output of nvdisasm and cuobjdump."""

from __future__ import annotations

from .listing import Instruction, Usage, parse_listing, parse_usage

LISTING = """
	.target	sm_90
//--------------------- .text.first --------------------------
	.section	.text.first,"ax",@progbits
.text.first:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
.L_x_0:
.L_x_1:
        /*0010*/               @P0 LDG.E.128 R4, desc[UR4][R2.64] ;
        /*0020*/              @!P1 BRA `(.L_x_0) ;
        /*0030*/                   CALL.REL.NOINC `($__internal_0_$__cuda_sm20_div_s64) ;
        /*0040*/                   EXIT ;
        .weak           $__internal_0_$__cuda_sm20_div_s64
$__internal_0_$__cuda_sm20_div_s64:
        /*0050*/                   STL [R1], R0 ;
.L_x_2:
        /*0060*/                   BRA `(.L_x_2);
.text.second:
        /*0000*/                   EXIT ;
"""
USAGE = """
Resource usage:
 Common:
  GLOBAL:4 CONSTANT[4]:8
 Function first:
  REG:32 STACK:0 SHARED:128 LOCAL:0 CONSTANT[0]:3768 TEXTURE:0 SURFACE:0 SAMPLER:0
 Function second:
  REG:255 STACK:16 SHARED:0 LOCAL:0 CONSTANT[0]:560 TEXTURE:0 SURFACE:0 SAMPLER:0
"""


def test_a_kernel_is_its_section_without_the_subroutines_in_it() -> None:
    kernels = parse_listing(LISTING)
    assert list(kernels) == ["first", "second"]
    first = kernels["first"]
    assert [one.opcode for one in first.body] == ["LDC", "LDG.E.128", "BRA", "CALL.REL.NOINC", "EXIT"]
    assert [one.name for one in first.subroutines] == ["STL", "BRA"]
    assert [one.opcode for one in kernels["second"].body] == ["EXIT"]
    assert not kernels["second"].subroutines


def test_an_instruction_has_its_predicate_and_operands() -> None:
    first = parse_listing(LISTING)["first"]
    assert first.body[1] == Instruction(0x10, "P0", "LDG.E.128", "R4, desc[UR4][R2.64]")
    assert first.body[2] == Instruction(0x20, "!P1", "BRA", "`(.L_x_0)")


def test_labels_stand_before_the_next_instruction() -> None:
    labels = parse_listing(LISTING)["first"].labels
    assert labels[".L_x_0"] == labels[".L_x_1"] == 0x10
    assert labels[".L_x_2"] == 0x60


def test_what_a_function_takes_is_read_by_its_symbol() -> None:
    assert parse_usage(USAGE) == {"first": Usage(32, 0, 128), "second": Usage(255, 16, 0)}
