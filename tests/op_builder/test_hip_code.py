"""Device code for AMD's GPUs by pip's ziglang, for machines that are elsewhere: neither a GPU nor ROCm is needed.

That every op's kernels compile is tested in tests/amdgpu.
"""

from __future__ import annotations

import dataclasses
import stat
from typing import TYPE_CHECKING

import pytest

from anyaccel.op_builder import BuildError, ToolchainError
from anyaccel.op_builder.engine import environment
from anyaccel.op_builder.engine.build import ensure_built
from anyaccel.op_builder.engine.cache import open_cache
from anyaccel.op_builder.engine.targets import HIP_TARGETS, is_cuda_target, is_hip_target, wave_lanes
from anyaccel.op_builder.engine.toolchains import amdgpu
from anyaccel.op_builder.engine.toolchains.amdgpu import AmdgpuClang, choose_amdgpu, probe_amdgpu
from anyaccel.op_builder.hip.device_code import HipCodeRecipe, device_code_recipe
from anyaccel.op_builder.op import CSRC
from anyaccel.op_builder.table import OPS

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from anyaccel.op_builder.engine.cache import Cache

EM_AMDGPU = 224
ELFOSABI_AMDGPU_HSA = 64
ABI_OF_CODE_OBJECT_5 = 3
_PROBE = probe_amdgpu(open_cache(environment.cache_dir()).root)
needs_ziglang = pytest.mark.skipif(_PROBE.tool is None, reason=f"no ziglang: {_PROBE.detail}")

SOURCE = """
#include "twice.h"
template <int> struct Twice { int* x; };
#define ANYACCEL_HIP_KERNEL(name, ...) \\
  extern "C" __global__ void name(const __VA_ARGS__ kernel) { kernel.x[threadIdx.x] = TWICE(kernel.x[threadIdx.x]); }
"""
KERNELS = tuple(f"Twice<{number}>" for number in range(7))


@pytest.fixture
def recipe(tmp_path: Path, cache: Cache) -> HipCodeRecipe:
    """A source of a line, with more kernels than one part has."""
    (tmp_path / "twice.hip").write_text(SOURCE)
    (tmp_path / "twice.h").write_text("#define TWICE(x) (2 * (x))\n")
    options = ("-O3", "-std=c++20", "-mcode-object-version=5", "-include", "hip_language.h", "-target-cpu", "gfx942")
    compiler = choose_amdgpu(cache.root)
    assert isinstance(compiler, AmdgpuClang)
    return HipCodeRecipe(
        "twice",
        tmp_path / "twice.hip",
        (tmp_path, CSRC / "runtime"),
        "gfx942",
        compiler,
        options,
        "twice.hsaco",
        KERNELS,
    )


@needs_ziglang
def test_it_is_a_code_object_of_version_5_with_every_kernel(cache: Cache, recipe: HipCodeRecipe) -> None:
    entry = ensure_built(recipe, cache)
    content = entry.binary.read_bytes()
    assert content.startswith(b"\x7fELF\x02")
    assert (content[7], content[8]) == (ELFOSABI_AMDGPU_HSA, ABI_OF_CODE_OBJECT_5)
    assert int.from_bytes(content[18:20], "little") == EM_AMDGPU
    assert b"amdgcn-amd-amdhsa--gfx942" in content
    assert set(entry.facts["symbols"]) == set(KERNELS)
    for symbol in entry.facts["symbols"].values():
        assert f"{symbol}.kd\0".encode() in content  # the descriptor, by which a kernel is found


@needs_ziglang
def test_any_number_of_jobs_makes_the_same_bytes(
    tmp_path: Path, cache: Cache, recipe: HipCodeRecipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = ensure_built(recipe, cache, jobs=1).binary.read_bytes()
    monkeypatch.setenv("ANYACCEL_CACHE_DIR", str(tmp_path / "other"))
    assert ensure_built(recipe, open_cache(environment.cache_dir()), jobs=4).binary.read_bytes() == first
    assert str(tmp_path).encode() not in first


@needs_ziglang
def test_what_decides_it_is_seen(cache: Cache, recipe: HipCodeRecipe, tmp_path: Path) -> None:
    def name(changed: HipCodeRecipe) -> str:
        return changed.fingerprint()

    newer = dataclasses.replace(recipe, compiler=dataclasses.replace(recipe.compiler, version="99.0"))
    names = {name(recipe), name(newer), name(dataclasses.replace(recipe, options=(*recipe.options, "-DX=1")))}
    (tmp_path / "twice.h").write_text("#define TWICE(x) ((x) << 1)\n")
    names.add(name(recipe))
    own = tmp_path / "own"
    own.mkdir()
    (own / "hip_language.h").write_text((CSRC / "runtime" / "hip_language.h").read_text() + "// another\n")
    (own / "hip_math.h").write_text((CSRC / "runtime" / "hip_math.h").read_text())
    names.add(name(dataclasses.replace(recipe, include_dirs=(tmp_path, own))))
    assert len(names) == 5
    assert newer.key() == recipe.key()  # which identifies the code in a wheel, on any machine
    covered = {file.rpartition("/")[2] for file in recipe.covered()}
    assert covered == {"twice.hip", "twice.h", "hip_language.h", "hip_math.h"}


def test_an_ops_recipe_covers_every_header_of_its_own() -> None:
    op = next(op for op in OPS if op.name == "rms_norm")
    recipe = device_code_recipe(op, "gfx942", any_compiler=True)
    covered = {file.rpartition("/")[2] for file in recipe.covered()}
    assert covered >= {
        "kernels.hip", "hip_group.h", "block_bounds.h", "block_group.h", "block_row.h", "hip_language.h", "hip_math.h",
        "rms_norm.h",
        "column_sum.h", "cmath", "cstdint", "cstring",
    }  # fmt: skip
    others = {device_code_recipe(op, target, any_compiler=True).key() for target in HIP_TARGETS}
    assert len(others) == len(HIP_TARGETS)


@needs_ziglang
def test_an_error_names_the_line_the_command_and_the_log(cache: Cache, recipe: HipCodeRecipe) -> None:
    recipe.source.write_text(SOURCE.replace("int* x;", "broken* x;"))
    with pytest.raises(BuildError, match=r"twice\.hip:3:\d+: error: unknown type name 'broken'") as raised:
        ensure_built(recipe, cache)
    assert "zig clang -cc1 -triple amdgcn-amd-amdhsa" in raised.value.command
    assert "unknown type name" in raised.value.log.read_text()


@needs_ziglang
def test_a_gpu_that_clang_does_not_know_is_its_error(cache: Cache, recipe: HipCodeRecipe) -> None:
    with pytest.raises(BuildError, match="unknown target CPU 'gfx9999'"):
        ensure_built(dataclasses.replace(recipe, options=(*recipe.options[:-1], "gfx9999")), cache)


@needs_ziglang
def test_no_device_library_no_program_in_path_and_no_torch_is_needed(
    tmp_path: Path, run_python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    code = """
from anyaccel.op_builder.ahead_of_time import build_orders, named_builders, orders
(outcome,) = build_orders(orders(named_builders(["lion"]), ["gfx1100"]))
assert outcome.was_built and outcome.order.target == "gfx1100"
maps = open("/proc/self/maps").read()
assert "libamdhip64" not in maps and "libcuda.so" not in maps
import sys
assert "torch" not in sys.modules  # its import takes as long as the compilation
"""
    run_python(code, ANYACCEL_CACHE_DIR=str(tmp_path / "cache"), PATH=str(tmp_path))


def test_no_ziglang_is_a_rejection_with_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amdgpu, "zig_program", lambda: None)
    assert probe_amdgpu(tmp_path).detail == "ziglang is not installed"
    with pytest.raises(ToolchainError, match=r"ziglang is not installed, and .*Fix: pip install 'anyaccel\[rocm\]'"):
        choose_amdgpu(tmp_path)


def test_a_clang_without_amds_target_is_rejected_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zig = tmp_path / "zig"
    zig.write_text("#!/bin/sh\ncase $2 in --version) echo clang version 7.0;; *) echo '    x86 - X86';; esac\n")
    zig.chmod(zig.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(amdgpu, "zig_program", lambda: str(zig))
    probe = probe_amdgpu(tmp_path)
    assert probe.tool is None
    assert "clang version 7.0 was built without the target amdgcn" in probe.detail


def test_a_compiler_is_known_by_its_version_and_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    zig = tmp_path / "zig"
    monkeypatch.setattr(amdgpu, "zig_program", lambda: str(zig))
    found = []
    for words in ("one", "another"):
        zig.write_text(f"#!/bin/sh\n# {words}\ncase $2 in --version) echo clang version 22.1;; *) echo amdgcn;; esac\n")
        zig.chmod(0o755)
        found.append(choose_amdgpu(tmp_path))
    assert [tool.version.partition(",")[0] for tool in found] == ["22.1", "22.1"]
    assert found[0].version != found[1].version


def test_targets_are_told_from_nvidias_and_have_their_waves() -> None:
    assert all(is_hip_target(target) and not is_cuda_target(target) for target in HIP_TARGETS)
    assert [wave_lanes(target) for target in HIP_TARGETS] == [64, 64, 64, 32, 32]
    assert not any(is_hip_target(target) for target in ("gfx", "sm_90", "gfx942:xnack+", "gfx803", "gfx12", "native"))


def test_commands_name_what_they_make() -> None:
    clang = AmdgpuClang("22", "zig")
    assert clang.compiling("0.hip", ["-O3"], "0.o")[-4:] == ("-O3", "0.hip", "-o", "0.o")
    assert "-S" in clang.compiling("0.hip", [], "0.s")
    assert clang.linking(["0.o", "1.o"], "a.hsaco")[:2] == ("zig", "ld.lld")
