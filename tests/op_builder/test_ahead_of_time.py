"""Ops built ahead of time: for the right targets, included in a wheel, and checked before use."""

from __future__ import annotations

import importlib
import json
import logging
import platform
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from anyaccel.op_builder import OpError, ToolchainError
from anyaccel.op_builder.ahead_of_time import (
    all_targets,
    build_orders,
    buildable,
    copy_entry,
    named_builders,
    orders,
    wheel_targets,
)
from anyaccel.op_builder.all_ops import every_builder
from anyaccel.op_builder.cpu import CPUAdamBuilder
from anyaccel.op_builder.cpu.one_torch import OneTorchBuilder
from anyaccel.op_builder.cuda import LionBuilder as CudaLionBuilder
from anyaccel.op_builder.cuda.device import device_code
from anyaccel.op_builder.engine import cache as cache_module
from anyaccel.op_builder.engine import environment, prebuilt, targets
from anyaccel.op_builder.engine.fingerprint import cpu_flags
from anyaccel.op_builder.engine.targets import CPU_TARGETS, CUDA_TARGETS, host_cpu_targets, require_target
from anyaccel.op_builder.engine.toolchains import cxx
from anyaccel.op_builder.engine.toolchains.cxx import CxxCompiler
from anyaccel.op_builder.engine.toolchains.nvrtc import probe_nvrtc
from anyaccel.op_builder.engine.toolchains.probe import Probe
from anyaccel.op_builder.engine.toolchains.sycl import probe_dpcpp
from anyaccel.op_builder.engine.trace import Trace
from anyaccel.op_builder.op import CSRC
from anyaccel.op_builder.switches import switched_on
from anyaccel.op_builder.table import OPS
from anyaccel.op_builder.xpu.device_code import device_code_recipe

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from anyaccel.op_builder import CPUOpBuilder
    from anyaccel.op_builder.engine.cache import Cache, Entry

ON_X86 = pytest.mark.skipif(platform.machine() != "x86_64", reason="not an x86-64 machine")
BASELINE = {"x86_64": "x86-64", "aarch64": "armv8-a"}.get(platform.machine(), "")


def test_this_machine_runs_its_baseline_and_the_best_comes_first() -> None:
    mine = host_cpu_targets()
    assert mine[-1] == BASELINE
    assert mine == [target for target in CPU_TARGETS[platform.machine()] if target in mine]


@ON_X86
def test_a_machine_of_2013_does_not_get_avx_512(monkeypatch: pytest.MonkeyPatch) -> None:
    haswell = cpu_flags() - {flag for flag in cpu_flags() if flag.startswith("avx512")}
    monkeypatch.setattr(targets, "cpu_flags", lambda: haswell)
    assert host_cpu_targets()[0] == "x86-64-v3"


@pytest.mark.parametrize("target", ["native", "sm_90", "sm_90a", "compute_120", "gfx942", "gfx90a", BASELINE])
def test_targets_that_exist(target: str) -> None:
    assert require_target(target) == target


@pytest.mark.parametrize("target", ["gfx", "gfx942:xnack+", "sm90", "x86-64-v9", "", "-march=native"])
def test_targets_that_do_not_exist_list_those_that_do(target: str) -> None:
    with pytest.raises(OpError, match=r"choosing the target failed: got .* expected one of: native, .*sm_90"):
        require_target(target)


def test_a_wheel_serves_every_level_and_four_generations() -> None:
    expected = [*CPU_TARGETS[platform.machine()]]
    if probe_nvrtc().tool is not None:
        expected += CUDA_TARGETS
    assert wheel_targets() == expected


def test_a_wheel_serves_further_gpus_that_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    before = wheel_targets()
    monkeypatch.setenv("ANYACCEL_WHEEL_TARGETS", " gfx942  gfx1100 sm_90")
    assert wheel_targets() == list(dict.fromkeys([*before, "gfx942", "gfx1100", "sm_90"]))


def test_an_unknown_op_lists_the_ops() -> None:
    with pytest.raises(OpError, match=r"got the op 'nonsense'; expected one of: .*cpu_adam"):
        named_builders(["nonsense"])


def test_an_op_without_code_for_the_target_is_refused(cache: Cache) -> None:
    with pytest.raises(OpError, match="building ahead of time failed: cpu_adam has no code for sm_90"):
        orders(named_builders(["cpu_adam"]), ["sm_90"])


def test_one_target_of_several_may_have_nothing_which_is_said(cache: Cache, caplog: pytest.LogCaptureFixture) -> None:
    (order,) = orders(named_builders(["cpu_adam"]), ["sm_90", BASELINE])
    assert order.target == BASELINE
    assert "sm_90: cpu_adam has no device code; nothing is built for it" in caplog.text


@pytest.mark.parametrize("name", ["async_io", "cuda_runtime", "hip_runtime"])
def test_a_library_without_loops_is_built_once_for_every_cpu_level(cache: Cache, name: str) -> None:
    """On Arm, its builds for two levels were the same file twice, which check-wheel-contents refuses."""
    (order,) = orders(named_builders([name]), [*CPU_TARGETS[platform.machine()]])
    assert order.target == BASELINE
    (order,) = orders(named_builders([name]), ["native", *CPU_TARGETS[platform.machine()]])
    assert order.target == BASELINE


@pytest.mark.skipif(len(host_cpu_targets()) == 1, reason="a CPU of the lowest level")
def test_a_library_without_loops_is_built_for_this_machine_if_its_baseline_was_not_named(cache: Cache) -> None:
    (order,) = orders(named_builders(["async_io"]), ["native", host_cpu_targets()[0]])
    assert order.target == "native"


def test_ops_that_share_a_library_share_the_build(cache: Cache) -> None:
    wanted = orders(named_builders(["cpu_adam", "fused_adam"]), [BASELINE])
    assert {(order.op, order.target) for order in wanted} == {("cpu_adam", BASELINE), ("multi_tensor_adam", BASELINE)}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache with ``cpu_adam`` for the baseline and for this machine."""
    folder = tmp_path_factory.mktemp("built")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANYACCEL_CACHE_DIR", str(folder))
        for target in (BASELINE, "native"):
            (outcome,) = build_orders(orders(named_builders(["cpu_adam"]), [target]))
            assert outcome.was_built
    yield folder
    cache_module._opened.clear()


@pytest.fixture
def filled(built: Path, cache: Cache) -> Cache:
    """A cache of its own for each test, with these two builds."""
    shutil.copytree(built, cache.root, dirs_exist_ok=True)
    return cache


def _remove_others(cache: Cache, kept: Entry) -> None:
    for folder in cache.root.glob("cpu_adam-*"):
        if folder.is_dir() and folder != kept.binary.parent:
            shutil.rmtree(folder)


@pytest.fixture
def carried(filled: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The content of a wheel: ``cpu_adam`` for the baseline, in the place where the package looks for it."""
    (outcome,) = build_orders(orders(named_builders(["cpu_adam"]), [BASELINE]))
    assert not outcome.was_built
    root = tmp_path / "_C"
    root.mkdir()
    folder = copy_entry(outcome, root)
    monkeypatch.setattr(prebuilt, "PREBUILT", root)
    assert [file.name for file in root.iterdir()] == [f"cpu_adam-{BASELINE}"]
    return folder


def _found() -> tuple[Path | None, str]:
    trace = Trace("the op 'cpu_adam'")
    return CPUAdamBuilder().prebuilt(trace), str(trace)


def test_what_was_carried_is_found(carried: Path) -> None:
    (binary,) = carried.glob("op-*.so")
    assert _found() == (binary, f"prebuilt {BASELINE}: accepted, {carried}")


class _Answers(OneTorchBuilder):
    """Like ``shm_comm``, a Python module that needs torch's and Python's headers of one version."""

    NAME = "answers"

    def sources(self) -> list[str]:
        return [str(Path(__file__).with_name("answers.cpp"))]


def test_a_wheel_carries_what_one_torch_needs_and_no_other_torch_loads_it(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    (outcome,) = build_orders(orders([_Answers()], ["native", BASELINE]))
    assert outcome.order.target == BASELINE  # it serves this machine too
    assert _Answers().find_built() == outcome.entry
    root = tmp_path / "_C"
    root.mkdir()
    folder = copy_entry(outcome, root)
    monkeypatch.setattr(prebuilt, "PREBUILT", root)
    monkeypatch.setenv("ANYACCEL_CACHE_DIR", str(tmp_path / "empty"))
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert _Answers().is_built()
    module = _Answers().load()
    assert module.answer() == 42
    assert Path(module.__file__).parent == folder
    caplog.clear()
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    assert not _Answers().is_compatible()
    assert "its sources, flags or ABI differ from this installation's; it is not used" in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    monkeypatch.setenv("ANYACCEL_PLATFORM", "manylinux_2_28_x86_64")
    assert not _Answers().recipes(BASELINE)  # this wheel is for every torch


@pytest.mark.skipif(probe_nvrtc().tool is None, reason=f"no NVRTC: {probe_nvrtc().detail}")
def test_device_code_that_was_carried_is_found_and_a_changed_one_is_not(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (outcome,) = build_orders(orders(named_builders(["lion"]), ["sm_90"]))
    root = tmp_path / "_C"
    root.mkdir()
    folder = copy_entry(outcome, root)
    monkeypatch.setattr(prebuilt, "PREBUILT", root)
    op = CudaLionBuilder.OP
    code = device_code(op, (9, 0))
    assert code.binary.parent == folder
    assert set(code.facts["symbols"]) == {f"run<{kernel}>" for kernel in op.kernels_for("cuda")}
    with monkeypatch.context() as patched:
        patched.setattr(
            "anyaccel.op_builder.cuda.device.driver_version", lambda: (1, 0)
        )  # rejects every compiler's code
        assert device_code(op, (9, 0)).binary.parent.parent == cache.root
    metadata = json.loads((folder / "metadata.jsonl").read_text().splitlines()[0])
    metadata["facts"]["key"] = "another"
    (folder / "metadata.jsonl").write_text(json.dumps(metadata))
    assert device_code(op, (9, 0)).binary.parent.parent == cache.root


@pytest.mark.parametrize("name", ["cuda", "hip"])
def test_device_code_has_one_key_wherever_the_package_lies(
    cache: Cache, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip builds a wheel in a folder of its own: with the sources' path in the key, no GPU code of a wheel would be used."""
    module = importlib.import_module(f"anyaccel.op_builder.{name}.device_code")
    target = {"cuda": "sm_90", "hip": "gfx942"}[name]
    here = module.device_code_recipe(CudaLionBuilder.OP, target, any_compiler=True)
    shutil.copytree(CSRC, tmp_path / "csrc")
    moved = [tmp_path / "csrc" / folder.relative_to(CSRC) for folder in here.include_dirs]
    elsewhere = replace(here, source=tmp_path / "csrc" / here.source.relative_to(CSRC), include_dirs=tuple(moved))
    assert elsewhere.key() == here.key()
    beside = elsewhere.source.parent / CudaLionBuilder.OP.header_macro().split('"')[1]
    beside.write_text("")  # this would be included instead
    assert elsewhere.key() != here.key()


def test_a_build_for_this_machine_only_is_not_carried(filled: Cache, tmp_path: Path) -> None:
    (outcome,) = build_orders(orders(named_builders(["cpu_adam"]), ["native"]))
    assert not outcome.was_built
    with pytest.raises(ToolchainError, match=r"builds for '.*' are for this machine only"):
        copy_entry(outcome, tmp_path)


def test_sycl_kernels_for_the_cpu_are_built_for_this_machine(tmp_path: Path) -> None:
    if probe_dpcpp().tool is None:
        with pytest.raises(ToolchainError, match="choosing DPC"):
            orders(named_builders(["lion"]), [targets.OPENCL_CPU])
        assert targets.OPENCL_CPU not in all_targets()
        return
    assert targets.OPENCL_CPU in all_targets()
    assert targets.OPENCL_CPU not in wheel_targets()
    (outcome,) = build_orders(orders(named_builders(["lion"]), [targets.OPENCL_CPU]))
    op = next(op for op in OPS if op.name == "lion")
    assert outcome.order.recipe.fingerprint() == device_code_recipe(op).fingerprint()  # what loading asks for
    assert set(outcome.entry.facts["symbols"]) == set(op.kernels)
    with pytest.raises(ToolchainError, match=r"builds for '.*' are for this machine only"):
        copy_entry(outcome, tmp_path)
    with pytest.raises(OpError, match="cpu_adam has no code for opencl-cpu"):
        orders(named_builders(["cpu_adam"]), [targets.OPENCL_CPU])


@pytest.mark.parametrize("defect", ["flipped", "no metadata", "other sources", "for another CPU"])
def test_what_does_not_fit_is_not_used_and_the_log_says_why(
    carried: Path, cache: Cache, defect: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    metadata = carried / "metadata.jsonl"
    if defect == "flipped":
        (binary,) = carried.glob("op-*.so")
        content = bytearray(binary.read_bytes())
        content[-1] ^= 1
        binary.write_bytes(content)
        reason = "its content differs from its metadata"
    elif defect == "no metadata":
        metadata.unlink()
        reason = "its metadata cannot be read"
    elif defect == "other sources":
        content = json.loads(metadata.read_text().splitlines()[0])
        content["facts"]["key"] = "another"
        metadata.write_text(json.dumps(content))
        reason = "its sources, flags or ABI differ from this installation's"
    else:
        carried.rename(carried.with_name("cpu_adam-another"))
        reason = "none of them for this CPU"
    found, trace = _found()
    assert found is None
    assert reason in trace
    assert reason in caplog.text
    if defect == "flipped":  # the others say the same to what builds
        assert CPUAdamBuilder().build().binary.is_relative_to(cache.root)


def test_a_level_built_elsewhere_serves_where_there_is_no_compiler(
    filled: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    (outcome,) = build_orders(orders(named_builders(["cpu_adam"]), [BASELINE]))
    assert not outcome.was_built
    _remove_others(filled, outcome.entry)
    monkeypatch.setenv("CXX", "no-such-compiler")
    builder = CPUAdamBuilder()
    assert builder.is_compatible()
    assert builder.find_built() == outcome.entry


@pytest.mark.parametrize(
    ("built_with", "used_with"),
    [
        ({"SOURCE_DATE_EPOCH": "1580601600"}, {}),
        ({"SOURCE_DATE_EPOCH": "1580601600"}, {"CXX": "no-such-compiler"}),
        ({"LIBRARY_PATH": "/opt/lib"}, {"LIBRARY_PATH": "/opt/lib"}),
        ({"LIBRARY_PATH": "/opt/lib"}, {"LIBRARY_PATH": "/opt/lib", "CXX": "no-such-compiler"}),
        ({"LIBRARY_PATH": "/opt/lib"}, {"CXX": "no-such-compiler"}),
        ({}, {"LIBRARY_PATH": "/opt/lib"}),
    ],
)
def test_a_level_serves_though_variables_of_compilers_were_set(
    cache: Cache,
    make_builder: Callable[..., CPUOpBuilder],
    monkeypatch: pytest.MonkeyPatch,
    built_with: dict[str, str],
    used_with: dict[str, str],
) -> None:
    for name, value in built_with.items():
        monkeypatch.setenv(name, value)
    entry = make_builder().build(BASELINE)
    for name in built_with:
        monkeypatch.delenv(name)
    for name, value in used_with.items():
        monkeypatch.setenv(name, value)
    assert make_builder().find_built() == entry


def test_of_two_builds_the_one_with_the_same_variables_serves_without_a_compiler(
    cache: Cache, make_builder: Callable[..., CPUOpBuilder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = {}
    for version in ("1", "2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "theirs.h").write_text(f"const int kTheirs = {version};")
        monkeypatch.setenv("CPATH", str(tmp_path / version))
        builder = make_builder(header="#include <theirs.h>\nconst int kAnswer = kTheirs;")
        entries[version] = builder.build()
    monkeypatch.setenv("CXX", "no-such-compiler")
    for version, entry in entries.items():
        monkeypatch.setenv("CPATH", str(tmp_path / version))
        assert make_builder(header="#include <theirs.h>\nconst int kAnswer = kTheirs;").find_built() == entry


def test_what_was_built_natively_serves_when_the_compiler_is_gone(
    filled: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = CPUAdamBuilder().build()
    _remove_others(filled, entry)
    monkeypatch.setenv("CXX", "no-such-compiler")
    builder = CPUAdamBuilder()
    assert builder.is_compatible()
    assert builder.find_built() == entry


def test_where_only_ziglang_compiles_all_ops_but_those_of_the_systems_cxx_library_are_built(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    every = every_builder()
    assert buildable(every) == every
    ziglang = Probe("C++", "ziglang", CxxCompiler(("zig", "c++"), "clang version 20"), "")
    monkeypatch.setattr(cxx, "_probes", lambda *_: iter([ziglang]))
    kept = buildable(every_builder())
    left_out = {builder.NAME for builder in every} - {builder.NAME for builder in kept}
    assert orders(kept, ["native"])
    assert left_out == {
        "autograd",
        "shm_comm",
        *(["sycl_runtime", "xpu_runtime"] if probe_dpcpp().tool is not None else []),
    }
    assert "the op 'shm_comm' is left out: choosing a C++ compiler failed" in caplog.text
    assert "Fix: apt-get install g++" in caplog.text


def test_without_any_compiler_building_every_op_is_refused(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ToolchainError, match="no compiler works: CXX=no-such-compiler"):
        buildable(every_builder())


def _ops(**switches: bool) -> set[str]:
    wanted = switched_on(every_builder(), {f"DS_BUILD_{name}": value for name, value in switches.items()})
    return {order.op for order in orders(wanted, [BASELINE])}


def test_without_a_switch_every_op_is_built_ahead_of_time() -> None:
    assert _ops() == _ops(OPS=True) == {order.op for order in orders(every_builder(), [BASELINE])}


def test_each_op_is_switched_by_its_name_and_by_deepspeeds(caplog: pytest.LogCaptureFixture) -> None:
    every = _ops()
    assert _ops(CPU_ADAM=False) == every - {"cpu_adam"}
    assert _ops(OPS=False, CPU_ADAM=True, AIO=True) == {"cpu_adam", "async_io"}
    assert _ops(OPS=False, FUSED_LION=True) == {"lion", "cuda_runtime", "hip_runtime"}
    assert _ops(OPS=False, FUSED_LION=True, CUDA_RUNTIME=False, HIP_RUNTIME=False) == {"lion"}
    runtimes = {"cuda_runtime", "hip_runtime"}
    assert _ops(OPS=False, INFERENCE_CORE_OPS=True) == {"rms_norm", "layer_norm", "activations", *runtimes}
    assert _ops(FP_QUANTIZER=False, QUANTIZER=True) == _ops(OPS=False, QUANTIZER=True) < every
    assert _ops(CPU_ADAM=True) == {"cpu_adam"}  # which is what it says for a wheel
    assert _ops(OPS=True, FP_QUANTIZER=False, QUANTIZER=True) == every
    assert not caplog.records
    assert _ops(EVOFORMER_ATTN=True, GDS=False) == every
    assert caplog.messages == ["DS_BUILD_EVOFORMER_ATTN is set, but anyaccel has no such op; nothing is built for it"]


def test_the_switches_that_are_set_to_a_number_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"AIO": "1", "LION": "0", "STRING": "20261129", "OPS": ""}.items():
        monkeypatch.setenv(f"DS_BUILD_{name}", value)
    assert environment.build_switches() == {"DS_BUILD_AIO": True, "DS_BUILD_LION": False}


def test_an_op_that_is_not_prebuilt_is_an_import_error_that_says_what_builds_it() -> None:
    with pytest.raises(
        ImportError, match=r"has none\. Fix: get_accelerator\(\)\.create_op_builder\('RMSNormBuilder'\)"
    ):
        from anyaccel._C import rms_norm  # noqa: F401
    with pytest.raises(ImportError, match="cannot import name 'no_such_op'"):
        from anyaccel._C import no_such_op  # noqa: F401


def test_a_switch_that_is_no_number_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    environment._tell_ignored.cache_clear()
    monkeypatch.setenv("DS_BUILD_LION", "ON")
    monkeypatch.setenv("DS_BUILD_LAMB", "0")
    monkeypatch.setenv("DS_BUILD_STRING", ".dev1")
    for _ in range(2):
        assert environment.build_switches() == {"DS_BUILD_LAMB": False}
    assert [record.getMessage() for record in caplog.records] == [
        "DS_BUILD_LION=ON is no number, and is ignored. Fix: DS_BUILD_LION=1, or 0"
    ]
