"""A wheel with prebuilt ops: its content, and that it needs no compiler where it is installed.

``make test-wheel`` installs one such wheel under several Pythons and torches.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anyaccel.op_builder.ahead_of_time import named_builders, orders, wheel_targets
from anyaccel.op_builder.all_ops import every_builder
from anyaccel.op_builder.engine.targets import is_cuda_target
from anyaccel.op_builder.engine.toolchains.nvrtc import probe_nvrtc

from .quick_compiler import quick_compiler
from .scratch_copy import copied_sources

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]

LOADS = """
import logging
logging.basicConfig(level=logging.INFO)
import torch, anyaccel
builder = anyaccel.get_accelerator().create_op_builder("RotaryEmbeddingBuilder")
assert builder.is_compatible()
x, cos, sin = torch.arange(8.0).view(1, 1, 1, 8), torch.ones(1, 4), torch.zeros(1, 4)
assert builder.load().rotary_embedding(x, cos, sin).equal(x)
from anyaccel._C import rotary_embedding
assert rotary_embedding is builder.load()
try:
    from anyaccel._C import rms_norm
except ImportError as error:
    assert "this installation has other ops, but not this one" in str(error), error
"""

FINDS = """
import sys
from anyaccel.op_builder.cuda.device_code import device_code_recipe
from anyaccel.op_builder.engine import prebuilt
from anyaccel.op_builder.engine.trace import Trace
from anyaccel.op_builder.table import OPS
op = next(op for op in OPS if op.name == "rotary_embedding")
for target in sys.argv[1:]:
    trace = Trace(target)
    found = prebuilt.find_device_code(op.name, target, device_code_recipe(op, target, any_compiler=True).key, lambda _: "", trace)
    assert found is not None, str(trace)
"""

CHOSEN = {"DS_BUILD_ROTARY_EMBEDDING": "1", "DS_BUILD_NO_SUCH_OP": "1"}


def prebuilt(folder: Path, switches: dict[str, str]) -> Path:
    """Build a wheel in a folder in which another one was built before, which left an op there."""
    copied_sources(ROOT, folder / "source")
    for name in ("lib", f"lib.{sysconfig.get_platform()}-{sys.implementation.cache_tag}"):
        left = folder / "source" / "build" / name / "anyaccel" / "_C" / "left_behind-x86-64"
        left.mkdir(parents=True)
        (left / "op.so").touch()
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", folder]
    subprocess.run([*pip, folder / "source"], check=True, env={**os.environ, **quick_compiler(folder), **switches})
    (built,) = folder.glob("*.whl")
    with zipfile.ZipFile(built) as archive:
        assert not [name for name in archive.namelist() if "left_behind" in name]
    return built


@pytest.fixture(scope="module")
def prebuilt_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prebuilt(tmp_path_factory.mktemp("prebuilt wheel"), CHOSEN)


@pytest.fixture(scope="module")
def site(prebuilt_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the wheel is installed, which is not where pip built it."""
    folder = tmp_path_factory.mktemp("installed") / "site"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "-t", folder, prebuilt_wheel], check=True
    )
    return folder


def carried_by(wheel: Path) -> set[str]:
    return {name.split("/")[2] for name in zipfile.ZipFile(wheel).namelist() if "/_C/" in name}


def test_it_serves_every_python_and_carries_every_target_of_what_was_chosen(prebuilt_wheel: Path) -> None:
    assert "-py3-none-linux_" in prebuilt_wheel.name
    chosen = named_builders(["rotary_embedding", "cuda_runtime", "hip_runtime"])
    assert carried_by(prebuilt_wheel) == {f"{order.op}-{order.target}" for order in orders(chosen, wheel_targets())}


@pytest.mark.slow
def test_it_carries_every_op(tmp_path: Path) -> None:
    carried = carried_by(prebuilt(tmp_path, {"BUILD_EXT": "1"}))
    assert carried == {f"{order.op}-{order.target}" for order in orders(every_builder(), wheel_targets())}
    assert {"rms_norm-sm_90", "rms_norm-compute_120", "cuda_runtime-x86-64"} <= carried or "rms_norm-armv8-a" in carried


def test_a_variable_for_an_op_of_deepspeeds_alone_leaves_a_wheel_for_every_platform(tmp_path: Path) -> None:
    built = prebuilt(tmp_path, {"DS_BUILD_UTILS": "1", "DS_BUILD_EVOFORMER_ATTN": "1"})
    assert built.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(built).namelist()
    assert not carried_by(built)
    assert "anyaccel/__init__.py" in names


def test_its_ops_load_where_there_is_neither_compiler_nor_cache(
    site: Path, tmp_path: Path, run_python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    nothing = {"PATH": str(tmp_path), "CXX": "no-such-compiler", "ANYACCEL_CACHE_DIR": str(tmp_path / "cache")}
    finished = run_python(LOADS, PYTHONPATH=str(site), **nothing)
    assert "the op 'rotary_embedding': prebuilt x86-64" in finished.stderr or "prebuilt armv8" in finished.stderr
    assert "building" not in finished.stderr
    assert not list(tmp_path.glob("cache/*-*"))


def test_its_gpu_code_is_found_where_it_is_installed(
    prebuilt_wheel: Path, site: Path, run_python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    carried = {
        name.removeprefix("rotary_embedding-")
        for name in carried_by(prebuilt_wheel)
        if name.startswith("rotary_embedding-")
    }
    targets = sorted(target for target in carried if is_cuda_target(target))
    assert targets or probe_nvrtc().tool is None
    run_python(FINDS, *targets, PYTHONPATH=str(site))


def test_without_the_switch_a_wheel_is_pure(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    assert not [name for name in zipfile.ZipFile(wheel).namelist() if "_C/" in name]
