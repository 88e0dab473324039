"""CUDA's and HIP's kernels on the CPU: all of them, in an emulator of blocks that rejects what is undefined on a GPU.

Each test starts a process, as the emulator replaces torch's allocator, and SYCL on the CPU.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from anyaccel.op_builder.table import OPS

from .library import LANES, preloaded, preloaded_with_tsan
from .mutants import OF_ONE_NUMBER, mutants

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(
    platform.system() != "Linux" or shutil.which("g++") is None, reason="the emulator needs Linux and g++"
)

SAID = {
    "Correct": r"\[64\.0, 64\.0\]",
    "BarrierInABranch": "divergence .* thread 0 is at __syncthreads .* thread 32 at the kernel's end",
    "TwoBarriers": "divergence .* thread 0 is at __syncthreads at .* thread 7 at __syncthreads at",
    "ShuffleInABranch": "divergence .* thread 1 is at __shfl_xor_sync .* thread 0 at the kernel's end",
    "ShuffleAgainstABarrier": "divergence .* thread 0 is at __shfl_sync .* thread 3 at __syncthreads",
    "RaceInABlock": "race: 4 bytes written .* by thread 1 of block 0",
    "RaceOfBlocks": "race: 4 bytes written .* by thread 0 of block 1",
    "RaceOfSizes": "race: 4 bytes written .* by thread 1 of block 0",
    "BehindTheEnd": "access out of bounds: 4 bytes written",
    "BeforeTheBeginning": "access out of bounds: 4 bytes read",
    "Misaligned": "misaligned access: 8 bytes written",
    "Uninitialised": "uninitialised shared memory: 4 bytes read .* by thread 11 of block 0",
}
"""The expected verdict on each kernel in faults.h."""


def _run(*arguments: str, timeout: float = 280, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(
        command,
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def _lines(*arguments: str, group: str = "cuda") -> dict[str, str]:
    done = _run(*arguments, **preloaded(group))
    assert done.returncode == 0, done.stderr
    return dict(line.rsplit("\t", 1) for line in done.stdout.splitlines())


def _run_ops(ran: Path, environment: dict[str, str], *options: str, timeout: float = 280) -> dict[str, list[int]]:
    """Run tests/ops in the emulator; return the block sizes with which each kernel was started."""
    done = _run(
        "pytest", "-q", "-k", "emulated", "-p", "no:cacheprovider", "-p", "no:xdist", *options, "tests/ops",
        timeout=timeout, ANYACCEL_TEST_EMULATED=str(ran), **environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-4000:]
    started: dict[str, list[int]] = json.loads(ran.read_text())
    return started


def _assert_all_ran(started: dict[str, list[int]], group: str = "cuda") -> None:
    smaller = [LANES[group], 2 * LANES[group]]
    sizes = ([*smaller, 512], [*smaller, 1024])  # the second for kernels that keep totals
    missing = {
        op.name: names
        for op in OPS
        if (names := [one for one in op.kernels_for(group.rstrip("0123456789")) if started.get(one) not in sizes])
    }
    said = (
        f"in the table, and not run in blocks of {sizes[0]} or {sizes[1]} threads: {missing}. "
        f"Fix: add cases to tests/ops, with a word of _FOR_BLOCKS (tests/ops/conftest.py) in the test's name."
    )
    assert not missing, said


@pytest.mark.parametrize(
    "group", ["cuda", *(pytest.param(one, marks=pytest.mark.slow) for one in ("hip32", "hip64", "sycl"))]
)
def test_every_kernel_of_the_table_agrees_with_its_reference(tmp_path: Path, group: str) -> None:
    """With SYCL's group too: OpenCL's CPU device reports no divergence, no race and no access out of bounds."""
    _assert_all_ran(_run_ops(tmp_path / "ran.json", preloaded(group)), group)


def test_what_lanes_exchange_is_right_in_waves_of_64() -> None:
    """By one kernel for each way; the table above has all kernels."""
    agree = _lines("tests.emulator.mutants", "unchanged", group="hip64")
    assert {name.partition(" ")[0] for name in agree} == {
        "softmax",
        "quantization",
        "layer_norm",
        "moe",
        "multi_tensor",
    }
    assert set(agree.values()) == {"agrees"}, agree


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_kernel_agrees_in_every_case(tmp_path: Path) -> None:
    _assert_all_ran(_run_ops(tmp_path / "ran.json", preloaded(), "-m", "slow or not slow", timeout=1800))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_thread_sanitizer_finds_no_race(tmp_path: Path) -> None:
    _assert_all_ran(_run_ops(tmp_path / "ran.json", preloaded_with_tsan(), timeout=1800))


def test_each_fault_is_named_and_none_hangs() -> None:
    said = _lines("tests.emulator.faults")
    assert list(said) == list(SAID)
    assert not {name: text for name, text in said.items() if not re.fullmatch(SAID[name] + ".*", text)}


@pytest.mark.slow
def test_thread_sanitizer_sees_a_block_as_threads() -> None:
    """It reports nothing that barriers order: in the correct kernel, threads read shared memory written by others."""
    done = _run("tests.emulator.faults", **preloaded_with_tsan())
    assert done.returncode == 66
    assert re.search(r"data race.*?\n.*?\n\s+#0 void RaceInABlock::operator", done.stderr)
    assert not re.search(r"#0 void Correct::operator", done.stderr)


@pytest.mark.parametrize("group", ["cuda", "sycl", pytest.param("hip64", marks=pytest.mark.slow)])
def test_each_change_of_a_barrier_or_a_shuffle_is_noticed(group: str) -> None:
    noticed = _lines("tests.emulator.mutants", group=group)
    made = mutants(group)
    assert list(noticed) == [f"{mutant.file}:{mutant.line}\t{mutant.name}" for mutant in made]
    assert not [name for name, by in noticed.items() if by == "survived"]


def test_no_source_synchronises_in_a_way_that_is_not_changed() -> None:
    """The mutants cover every barrier and shuffle in the sources."""
    places = 0
    for file in [*(ROOT / "csrc" / "includes").glob("*.h"), *(ROOT / "csrc" / "runtime").glob("*_group.h")]:
        text = re.sub(r"//.*", "", file.read_text()).replace(OF_ONE_NUMBER, "")
        places += len(re.findall(r"__sync\w+|__shfl\w+|group_?\.wait\b|sycl::\w+_barrier|sycl::\w+_over_group", text))
    changed = {
        (mutant.file, mutant.line)
        for mutant in [*mutants("cuda"), *mutants("sycl")]
        if re.search("__s|wait|sycl::", mutant.name)
    }
    assert len(changed) == places
