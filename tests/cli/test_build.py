"""``anyaccel build``, as users type it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anyaccel.cli import app, build
from anyaccel.op_builder.engine import environment
from anyaccel.op_builder.engine.cache import Cache
from anyaccel.op_builder.engine.entry import read_entry
from anyaccel.op_builder.engine.toolchains.nvrtc import probe_nvrtc

from ..programs import run_command_line

NEEDS_NVRTC = pytest.mark.skipif(probe_nvrtc().tool is None, reason=f"no NVRTC: {probe_nvrtc().detail}")


def _build(folder: Path, *arguments: str | Path, check: bool = True, **env: str) -> str:
    environment = {**os.environ, "ANYACCEL_CACHE_DIR": str(folder / "cache"), "COLUMNS": "200", **env}
    finished = run_command_line(["build", *arguments], environment, folder)
    assert (finished.returncode == 0) is check, finished.stdout + finished.stderr
    return finished.stdout + finished.stderr


def _built(folder: Path) -> dict[str, str]:
    return {entry.facts["target"]: entry.op for entry in Cache(folder / "cache").entries()}


@NEEDS_NVRTC
def test_an_op_for_machines_that_are_elsewhere(tmp_path: Path) -> None:
    shown = _build(tmp_path, "dense", "--target", "compute_120", "--target", "x86-64-v3")
    assert shown.count("built") >= 2
    assert _built(tmp_path) == {"compute_120": "dense", "x86-64-v3": "dense"}
    assert _build(tmp_path, "dense", "--target", "compute_120").count("was there") == 1


def test_an_op_for_this_machine(tmp_path: Path) -> None:
    place = tmp_path / "cache [" / "b]"  # brackets are rich's markup
    shown = _build(tmp_path, "CudaRuntimeBuilder", ANYACCEL_CACHE_DIR=str(place))  # the fastest to build
    assert f"(cache:{place})".replace(" ", "") in "".join(shown.split())
    assert [entry.op for entry in Cache(place).entries()] == ["cuda_runtime"]


@NEEDS_NVRTC
def test_everything_into_a_folder(tmp_path: Path) -> None:
    shared = str(environment.cache_dir())  # `make test` has built them
    _build(tmp_path, "--all", "--target", "sm_90", "--output", "carried here", ANYACCEL_CACHE_DIR=shared)
    carried = {folder.name for folder in (tmp_path / "carried here").iterdir()}
    assert {"rms_norm-sm_90", "lion-sm_90", "moe-sm_90", "softmax-sm_90"} <= carried
    assert all(read_entry(tmp_path / "carried here" / name).is_intact() for name in carried)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "got no ops to build"),
        (("--all", "cpu_adam"), "got both --all and the names of ops"),
        (("nonsense",), "got the op 'nonsense'; expected one of: cpu_adam"),
        (("cpu_adam", "--target", "sm90"), "got 'sm90'; expected one of: native"),
        (("cpu_adam", "--target", "sm_90"), "cpu_adam has no code for sm_90"),
        (("cpu_adam", "--rocm", "7.1"), "got --rocm without --hub"),
        (("cpu_adam", "--target", "native", "--output", "here"), "builds for 'native' are for this machine only"),
    ],
)
def test_a_wrong_request_is_refused_with_the_choices(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    assert said in _build(tmp_path, *arguments, check=False)
    assert not _built(tmp_path)


def test_no_compiler_is_one_readable_error(tmp_path: Path) -> None:
    shown = _build(tmp_path, "cpu_adam", check=False, CXX="no-such-compiler")
    assert "error: choosing a C++ compiler failed: no compiler works: CXX=no-such-compiler: not found" in shown
    assert "Traceback" not in shown


def test_a_cache_that_keeps_nothing_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file in its place")
    shown = _build(tmp_path, "cuda_runtime", check=False)
    assert "error: building ahead of time failed: the cache at" in shown


@pytest.mark.parametrize("switch", ["OPS=0", "UTILS=1", "EVOFORMER_ATTN=1", "STRING=20261129"])
def test_variables_for_ops_of_deepspeeds_alone_build_nothing_and_fail_nothing(tmp_path: Path, switch: str) -> None:
    """An environment for deepspeed has them also while pip installs anyaccel."""
    name, _, value = switch.partition("=")
    switches = {"DS_BUILD_OPS": "0", f"DS_BUILD_{name}": value}
    shown = _build(tmp_path, "--all", "--output", "carried here", **switches)
    assert "the DS_BUILD_… variables select no op that anyaccel builds for" in shown
    assert ":  has no" not in shown
    assert not list((tmp_path / "carried here").iterdir())


def test_an_op_that_is_copied_is_built_for_the_targets_of_a_wheel(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A build for this machine only cannot be copied."""
    asked: list[list[str]] = []
    monkeypatch.setattr(build, "build_orders", lambda orders: [])
    monkeypatch.setattr(build, "orders", lambda builders, targets: asked.append(targets) or [])
    result = CliRunner().invoke(app, ["build", "rms_norm", "--output", str(tmp_path / "out")])
    assert result.exit_code == 0, result.output
    assert "native" not in asked[0]


@pytest.mark.parametrize("option", ["--output", "--hub"])
def test_a_file_in_place_of_the_folder_is_an_error_before_anything_is_built(tmp_path: Path, option: str) -> None:
    (tmp_path / "file").touch()
    result = CliRunner().invoke(app, ["build", "rms_norm", "--target", "x86-64", option, str(tmp_path / "file")])
    assert "creating the folder" in str(result.exception)
    assert f"Fix: pass another one to {option}" in str(result.exception)
