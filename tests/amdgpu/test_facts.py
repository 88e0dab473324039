"""Every op compiles for AMD's GPUs by pip's ziglang alone, and no kernel's machine code is worse than the tables say."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from anyaccel.op_builder.engine import environment
from anyaccel.op_builder.engine.build import ensure_built, find_built
from anyaccel.op_builder.engine.cache import open_cache
from anyaccel.op_builder.engine.targets import HIP_TARGETS, wave_lanes
from anyaccel.op_builder.hip.device_code import device_code_recipe

from . import facts
from .facts import TARGET, WITH_KERNELS

if TYPE_CHECKING:
    from pathlib import Path

    from anyaccel.op_builder.op import Op

needs_ziglang = pytest.mark.skipif(bool(facts.unavailable()), reason=facts.unavailable())
BY_NAME = {"ids": lambda op: op.name}
OF_EACH_WIDTH = ("gfx942", "gfx1100")
"""Waves of 64 lanes and of 32; the other GPUs' machine code differs little."""
EVERY_TARGET = [pytest.param(one, marks=() if one in OF_EACH_WIDTH else pytest.mark.slow) for one in HIP_TARGETS]


def _assert_none_is_worse(op: Op, target: str, kernels: list[str]) -> None:
    made_by, expected = facts.read_table(target)
    found = facts.measured(op, target, kernels)
    assert [kernel for _, kernel in found] == kernels
    assert all(one.scratch_bytes == one.spills == 0 for one in found.values())
    if made_by == facts.release():
        assert not facts.compared(expected, found), "see python -m tests.amdgpu"


@needs_ziglang
@pytest.mark.parametrize("target", EVERY_TARGET)
@pytest.mark.parametrize("op", WITH_KERNELS, **BY_NAME)
def test_one_of_each_template_compiles_and_is_not_worse_than_in_the_table(op: Op, target: str) -> None:
    _assert_none_is_worse(op, target, facts.one_of_each(op))


@needs_ziglang
@pytest.mark.parametrize("target", OF_EACH_WIDTH)
def test_float16_is_converted_by_instructions(target: str) -> None:
    """Device code also sees the host's macros, and on an x86 CPU without F16C these select a conversion by integers."""
    (rms_norm,) = (op for op in WITH_KERNELS if op.name == "rms_norm")
    text = facts.assembly(rms_norm, target, ["RmsNormForward<Half, Half>"])
    assert "v_cvt_f32_f16" in text
    assert "v_cvt_f16_f32" in text or "v_fma_mixlo_f16" in text  # the second also multiplies


@needs_ziglang
def test_bfloat16_is_converted_by_an_instruction_where_there_is_one() -> None:
    (rms_norm,) = (op for op in WITH_KERNELS if op.name == "rms_norm")
    assert "v_cvt_pk_bf16_f32" in facts.assembly(rms_norm, "gfx950", ["RmsNormForward<BFloat16, BFloat16>"])


@needs_ziglang
@pytest.mark.slow
@pytest.mark.parametrize("target", HIP_TARGETS)
@pytest.mark.parametrize("op", WITH_KERNELS, **BY_NAME)
def test_no_kernel_is_worse_than_in_the_table(op: Op, target: str) -> None:
    _assert_none_is_worse(op, target, list(op.kernels))


@needs_ziglang
@pytest.mark.slow
@pytest.mark.parametrize("target", HIP_TARGETS)
@pytest.mark.parametrize("op", WITH_KERNELS, **BY_NAME)
def test_every_kernel_compiles_for_every_gpu(op: Op, target: str) -> None:
    cache = open_cache(environment.cache_dir())
    recipe = device_code_recipe(op, target)
    entry = ensure_built(recipe, cache)
    assert find_built(recipe, cache) == entry
    assert set(entry.facts["symbols"]) == set(op.kernels_for("hip"))
    content = entry.binary.read_bytes()
    assert all(f"{symbol}.kd".encode() in content for symbol in entry.facts["symbols"].values())


def test_a_table_holds_every_kernel_and_no_other() -> None:
    for target in HIP_TARGETS:
        _, table = facts.read_table(target)
        assert list(table) == [(op.name, kernel) for op in WITH_KERNELS for kernel in op.kernels]


def test_both_widths_of_waves_are_checked() -> None:
    assert {wave_lanes(target) for target in OF_EACH_WIDTH} == {wave_lanes(target) for target in HIP_TARGETS}


def test_every_streaming_kernel_moves_16_bytes_at_once_and_has_no_memory_of_its_own() -> None:
    for target in HIP_TARGETS:
        _, table = facts.read_table(target)
        for (_, kernel), found in table.items():
            assert not {"load_bits", "store_bits", "scratch_bytes", "spills"} & set(facts.missed(found, kernel)), kernel


ASSEMBLY = """
kernel_0:
	global_load_dwordx4 v[2:5], v0, s[2:3]
	global_load_short_d16_hi v2, v0, s[2:3]
	ds_read_b128 v[2:5], v0
	scratch_store_dwordx4 off, v[2:5], s32
	flat_store_dwordx2 v[0:1], v[2:3]
	s_endpgm
.Lfunc_end0:
; Occupancy: {waves}
	.amdgpu_metadata
amdhsa.kernels:
  - .args: []
    .group_segment_fixed_size: 128
    .name:           kernel_0
    .private_segment_fixed_size: 16
    .vgpr_count:     64
    .vgpr_spill_count: 3
"""


@pytest.mark.parametrize(
    ("target", "waves", "blocks"),
    [("gfx942", 8, 4), ("gfx942", 7, 3), ("gfx942", 1, 0), ("gfx1100", 16, 4), ("gfx1100", 9, 2), ("gfx1100", 4, 1)],
)
def test_facts_are_read_from_assembly(target: str, waves: int, blocks: int) -> None:
    text = ASSEMBLY.format(waves=waves)
    assert facts._facts(text, "kernel_0", target) == (128, 64, 16, 3, 64, blocks, 128)


def test_what_is_worse_or_unknown_is_told_by_kernel_and_fact() -> None:
    before = TARGET._replace(load_bits=64)
    found = {("a", "Copy<Half>"): before._replace(load_bits=32, registers=9), ("a", "New<float>"): TARGET}
    assert facts.compared({("a", "Copy<Half>"): before}, found) == [
        "a: Copy<Half>: load_bits was 64 and is 32",
        "a: New<float> is not in the table",
    ]
    assert facts.missed(TARGET._replace(blocks=1), "SoftmaxForward<Half>") == ["blocks"]
    assert facts.missed(TARGET._replace(blocks=1), "RmsNormBackward<Half, Half>") == []
    assert facts.missed(TARGET._replace(scratch_bytes=8, load_bits=32), "RootOfSums") == ["scratch_bytes"]


def test_a_table_is_read_as_it_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "release", lambda: "22")
    table = {("a", "Copy<float, Half>"): TARGET, ("b", "Sum"): TARGET._replace(load_bits=32)}
    facts.write_table("gfx942", table, tmp_path)
    assert facts.read_table("gfx942", tmp_path) == ("22", table)
