"""hipRTC as a compiler for AMD GPUs, against a stand-in for its library: calls, options, logs and errors.

docs/building.md says what has run with AMD's own library.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from anyaccel.op_builder import BuildError, ToolchainError
from anyaccel.op_builder.engine.build import ensure_built
from anyaccel.op_builder.engine.toolchains import amdgpu, hiprtc
from anyaccel.op_builder.engine.toolchains.amdgpu import AmdgpuClang, choose_amdgpu
from anyaccel.op_builder.engine.toolchains.hiprtc import Hiprtc, probe_hiprtc
from anyaccel.op_builder.hip.device_code import HiprtcCodeRecipe, device_code_recipe
from anyaccel.op_builder.table import OPS

from .conftest import stand_in_library

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from anyaccel.op_builder.engine.cache import Cache

(LION,) = (op for op in OPS if op.name == "lion")


@pytest.fixture
def torchs_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the libraries of a torch that brings the stand-in; there is no ziglang."""
    folder = tmp_path / "torch" / "lib"
    folder.mkdir(parents=True)
    for name in ("libhiprtc.so", "libamd_comgr.so"):
        stand_in_library(name, folder, "stand_in_hiprtc.c")
    spec = SimpleNamespace(submodule_search_locations=[str(folder.parent)])
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec if name == "torch" else found(name))
    monkeypatch.setattr(amdgpu, "zig_program", lambda: None)
    return folder


def _recipe(torchs_folder: Path, cache: Cache, source: str) -> HiprtcCodeRecipe:
    compiler = choose_amdgpu(cache.root)
    assert isinstance(compiler, Hiprtc)
    assert compiler.library == str(torchs_folder / "libhiprtc.so")
    file = torchs_folder.parent / "scale.hip"
    file.write_text(source)
    return HiprtcCodeRecipe(
        "scale", file, (file.parent,), "gfx942", compiler, ("--offload-arch=gfx942",), "scale.hsaco", ("A<1>", "A<2>")
    )


def test_the_program_its_options_and_its_kernels_are_handed_over(
    torchs_folder: Path, cache: Cache, capfd: pytest.CaptureFixture[str]
) -> None:
    recipe = _recipe(torchs_folder, cache, "// kernels\n")
    entry = ensure_built(recipe, cache)
    assert entry.binary.read_bytes() == b"\x7fELF code object"
    assert entry.facts["symbols"] == {"A<1>": "anyaccel_kernel_0", "A<2>": "anyaccel_kernel_1"}
    assert capfd.readouterr().out.splitlines() == [
        "create scale.hip headers 0 none none",
        "option --offload-arch=gfx942",
        f"option -I{torchs_folder.parent}",
        "// kernels",
        "",
        "ANYACCEL_HIP_KERNEL(anyaccel_kernel_0, A<1>)",
        "ANYACCEL_HIP_KERNEL(anyaccel_kernel_1, A<2>)",
        "destroy",
    ]


def test_a_rejected_source_is_its_error_with_the_log(
    torchs_folder: Path, cache: Cache, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(BuildError, match=r"scale\.hip:3:1: error: unknown type name 'broken'") as raised:
        ensure_built(_recipe(torchs_folder, cache, "broken\n"), cache)
    assert raised.value.command.startswith("hiprtc --offload-arch=gfx942")
    assert capfd.readouterr().out.splitlines()[-1] == "destroy"
    with pytest.raises(BuildError, match="HIPRTC_ERROR_COMPILATION without a message"):
        ensure_built(_recipe(torchs_folder, cache, "silent\n"), cache)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("no program", "hiprtcCreateProgram returned HIPRTC_ERROR_PROGRAM_CREATION_FAILURE"),
        ("lost", "hiprtcGetCodeSize returned HIPRTC_ERROR_UNKNOWN"),
    ],
)
def test_a_call_that_fails_is_named(torchs_folder: Path, cache: Cache, source: str, said: str) -> None:
    with pytest.raises(ToolchainError, match=rf"calling hipRTC failed: {said}.*Fix: "):
        ensure_built(_recipe(torchs_folder, cache, source), cache)


def test_without_its_compiler_hiprtc_is_not_called(
    torchs_folder: Path, cache: Cache, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """AMD's library ends the process there."""
    (torchs_folder / "libamd_comgr.so").unlink()
    monkeypatch.setattr(hiprtc, "_COMGR", ("libabsent.so",))  # other tests have loaded it by name
    with pytest.raises(ToolchainError, match=r"its compiler, libamd_comgr, cannot be loaded from .*Fix: "):
        ensure_built(_recipe(torchs_folder, cache, "// kernels\n"), cache)
    assert capfd.readouterr().out == ""


def test_an_ops_recipe_names_the_gpu_and_has_the_name_of_clangs_in_a_wheel(torchs_folder: Path, cache: Cache) -> None:
    recipe = device_code_recipe(LION, "gfx1100")
    assert isinstance(recipe, HiprtcCodeRecipe)
    assert recipe.options[-1] == "--offload-arch=gfx1100"
    assert "-target-cpu" not in recipe.options, "an option of clang's inner program"
    by_clang = device_code_recipe(LION, "gfx1100", any_compiler=True)
    assert recipe.key() == by_clang.key()
    assert recipe.fingerprint() != by_clang.fingerprint()


def test_another_library_is_another_compiler(torchs_folder: Path, cache: Cache) -> None:
    before = _recipe(torchs_folder, cache, "// kernels\n").fingerprint()
    with (torchs_folder / "libhiprtc.so").open("ab") as library:
        library.write(b"another release")
    assert _recipe(torchs_folder, cache, "// kernels\n").fingerprint() != before


def test_ziglang_is_preferred(torchs_folder: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    zig = torchs_folder / "zig"
    zig.write_text("#!/bin/sh\ncase $2 in --version) echo clang version 22.1;; *) echo amdgcn;; esac\n")
    zig.chmod(0o755)
    monkeypatch.setattr(amdgpu, "zig_program", lambda: str(zig))
    assert isinstance(choose_amdgpu(cache.root), AmdgpuClang)


def test_a_library_of_torchs_that_cannot_be_loaded_is_rejected_by_name(torchs_folder: Path, cache: Cache) -> None:
    (torchs_folder / "libhiprtc.so").write_bytes(b"not a library")
    probe = probe_hiprtc()
    assert probe.tool is None
    assert "lib/libhiprtc.so cannot be loaded" in probe.detail
    with pytest.raises(
        ToolchainError, match=r"ziglang is not installed, and .*libhiprtc.so cannot be loaded.* Fix: pip"
    ):
        choose_amdgpu(cache.root)


def test_a_library_without_the_functions_is_rejected(torchs_folder: Path) -> None:
    stand_in_library("libhiprtc.so", torchs_folder, "stand_in_hip.c")
    assert "hiprtcGetErrorString" in probe_hiprtc().detail


def test_without_rocms_torch_the_system_is_searched(
    tmp_path: Path, run_python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    stand_in_library("libhiprtc.so.6", tmp_path, "stand_in_hiprtc.c")
    code = "from anyaccel.op_builder.engine.toolchains.hiprtc import probe_hiprtc; print(probe_hiprtc().detail)"
    assert run_python(code, LD_LIBRARY_PATH=str(tmp_path)).stdout.strip() == str(tmp_path / "libhiprtc.so.6")


def test_where_there_is_none_it_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hiprtc, "_NAMES", ("libabsent.so",))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert probe_hiprtc().detail.startswith("no library libhiprtc in torch's folder")
