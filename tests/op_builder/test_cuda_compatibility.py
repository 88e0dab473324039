"""Drivers and NVRTC of different CUDA releases: the target for each pair, and the error when none fits."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anyaccel.op_builder import ToolchainError
from anyaccel.op_builder.cuda import compatibility
from anyaccel.op_builder.cuda.compatibility import choose_target, driver_refusal, driver_version, release_of
from anyaccel.op_builder.cuda.device_code import target_here
from anyaccel.op_builder.engine.toolchains.nvrtc import Nvrtc, probe_nvrtc

from .conftest import stand_in_library

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NVRTC_12_4 = (50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90)
NVRTC_13_5 = (75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121)


@pytest.mark.parametrize(
    ("capability", "architectures", "nvrtc", "driver", "target"),
    [
        pytest.param((9, 0), NVRTC_13_5, (13, 5), (13, 5), "sm_90", id="one release"),
        pytest.param((9, 0), NVRTC_13_5, (13, 5), (13, 0), "sm_90", id="older minor driver"),
        pytest.param((9, 0), NVRTC_12_4, (12, 4), (12, 0), "sm_90", id="oldest driver of the generation"),
        pytest.param((9, 0), NVRTC_12_4, (12, 4), (13, 5), "sm_90", id="newer major driver"),
        pytest.param((9, 0), NVRTC_13_5, (13, 5), None, "sm_90", id="no driver to ask"),
        pytest.param((8, 6), NVRTC_12_4, (12, 4), (12, 4), "sm_86", id="the GPU's own number"),
        pytest.param((10, 9), NVRTC_13_5, (13, 5), (13, 5), "sm_103", id="a later GPU of a generation"),
        pytest.param((12, 0), NVRTC_12_4, (12, 4), (12, 8), "compute_90", id="newer GPU, PTX for a newer minor driver"),
        pytest.param((12, 0), NVRTC_12_4, (12, 4), (13, 0), "compute_90", id="newer GPU, PTX for a newer major driver"),
    ],
)
def test_a_target_is_what_the_gpu_runs_and_the_driver_takes(
    capability: tuple[int, int],
    architectures: tuple[int, ...],
    nvrtc: tuple[int, int],
    driver: tuple[int, int] | None,
    target: str,
) -> None:
    assert choose_target(capability, architectures, nvrtc, driver) == target


@pytest.mark.parametrize(
    ("capability", "architectures", "nvrtc", "driver", "message"),
    [
        pytest.param(
            (9, 0), NVRTC_13_5, (13, 5), (12, 8),
            "choosing the code for a GPU of compute capability 9.0 failed: the driver is for CUDA 12.8, and machine code from a "
            "compiler of CUDA 13.5 needs a driver for CUDA 13.0 or newer. Fix: update NVIDIA's driver (branch 580 or newer), "
            "or pip install 'anyaccel[cuda12]'.",
            id="older major driver",
        ),
        pytest.param(
            (9, 0), NVRTC_12_4, (12, 4), (11, 8),
            "choosing the code for a GPU of compute capability 9.0 failed: the driver is for CUDA 11.8, and machine code from a "
            "compiler of CUDA 12.4 needs a driver for CUDA 12.0 or newer. Fix: update NVIDIA's driver (branch 525 or newer).",
            id="a driver that is too old for the runtime",
        ),
        pytest.param(
            (13, 0), NVRTC_13_5, (13, 5), (13, 4),
            "choosing the code for a GPU of compute capability 13.0 failed: the driver is for CUDA 13.4, and PTX from a compiler "
            "of CUDA 13.5 needs a driver for CUDA 13.5 or newer. Fix: update NVIDIA's driver, or pip install 'anyaccel[cuda]' "
            "in its newest version.",
            id="PTX for an older minor driver",
        ),
        pytest.param(
            (7, 0), NVRTC_13_5, (13, 5), (13, 0),
            "choosing the code for a GPU of compute capability 7.0 failed: NVRTC of CUDA 13.5 compiles for 7.5 and "
            "newer only. Fix: pip install 'anyaccel[cuda12]'.",
            id="a GPU that the compiler no longer knows",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_with_what_to_install(
    capability: tuple[int, int],
    architectures: tuple[int, ...],
    nvrtc: tuple[int, int],
    driver: tuple[int, int],
    message: str,
) -> None:
    with pytest.raises(ToolchainError) as raised:
        choose_target(capability, architectures, nvrtc, driver)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("target", "compiler", "driver", "is_taken"),
    [
        ("sm_90", "NVRTC 13.5.37", (13, 0), True),
        ("sm_90", "NVRTC 13.5.37", (12, 9), False),
        ("sm_90", "NVRTC 12.0.140", (13, 0), True),
        ("sm_90", "NVRTC 13.5.37", None, True),
        ("compute_120", "NVRTC 13.5.37", (13, 5), True),
        ("compute_120", "NVRTC 13.5.37", (13, 4), False),
        ("compute_120", "NVRTC 12.8.93", (13, 0), True),
        ("sm_90", "who knows", (13, 0), False),
        ("sm_90", "", None, False),
    ],
)
def test_prebuilt_code_is_held_to_the_driver_too(
    target: str, compiler: str, driver: tuple[int, int] | None, is_taken: bool
) -> None:
    assert bool(driver_refusal(target, compiler, driver)) is not is_taken


def test_a_release_is_read_from_any_version() -> None:
    assert release_of("NVRTC 13.0.88") == release_of("13.0") == (13, 0)
    with pytest.raises(ValueError, match="reading a compiler's version failed: got 'any'"):
        release_of("any")


def test_the_release_of_nvrtc_that_is_installed_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anyaccel.op_builder.cuda.device_code.driver_version", lambda: (12, 9))
    for version, architectures in (("12.9.86", [80, 90]), ("13.0.88", [80, 90])):
        monkeypatch.setattr("anyaccel.op_builder.cuda.device_code.choose_nvrtc", lambda of=version: Nvrtc(of))
        monkeypatch.setattr(Nvrtc, "architectures", lambda _, known=architectures: known)
        if version.startswith("12"):
            assert target_here((9, 0)) == "sm_90"
        else:
            with pytest.raises(ToolchainError, match=r"the driver is for CUDA 12.9, and machine code .* of CUDA 13.0"):
                target_here((9, 0))


@pytest.fixture
def no_memory() -> Iterator[None]:
    """Forget the driver's version, before and after this test."""
    driver_version.cache_clear()
    yield
    driver_version.cache_clear()


@pytest.mark.usefixtures("no_memory")
def test_no_driver_and_one_that_fails_have_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise OSError(name)

    class Failing:
        @staticmethod
        def cuDriverGetVersion(version: object) -> int:
            return 999

    for library in (absent, lambda _: Failing(), lambda _: object()):
        monkeypatch.setattr(compatibility.ctypes, "CDLL", library)
        driver_version.cache_clear()
        assert driver_version() is None


BUILD = """
import os
from anyaccel.op_builder import ToolchainError
from anyaccel.op_builder.cuda.compatibility import driver_version, release_of
from anyaccel.op_builder.cuda.device import device_code
from anyaccel.op_builder.cuda.runtime import CudaRuntimeBuilder
from anyaccel.op_builder.engine.toolchains.nvrtc import choose_nvrtc
from anyaccel.op_builder.table import OPS
op = next(op for op in OPS if op.name == "dense")
major, minor = release_of(choose_nvrtc().version)
drivers = {"older major": (major - 1, 9), "oldest of the major": (major, 0), "the same": (major, minor), "newer": (major + 1, 0)}
for name, driver in drivers.items():
    os.environ["STAND_IN_DRIVER"] = str(1000 * driver[0] + 10 * driver[1])
    driver_version.cache_clear()
    assert driver_version() == driver
    for capability in ((9, 0), (99, 0)):
        try:
            entry = device_code(op, capability)
        except ToolchainError as error:
            print(name, capability, "refused:", str(error).partition("Fix: ")[2])
            continue
        assert CudaRuntimeBuilder().load().load(op.name, entry.binary.read_bytes())
        print(name, capability, entry.facts["target"])
"""


@pytest.mark.skipif(probe_nvrtc().tool is None, reason=f"no NVRTC: {probe_nvrtc().detail}")
def test_an_op_is_compiled_for_the_driver_that_is_there(
    tmp_path: Path, run_python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """With the installed NVRTC, and fake drivers around its release."""
    stand_in_library("libcuda.so.1", tmp_path)
    nvrtc = probe_nvrtc().tool
    assert nvrtc is not None
    minor = release_of(nvrtc.version)[1]
    newest = max(nvrtc.architectures())
    shown = run_python(BUILD, LD_LIBRARY_PATH=str(tmp_path)).stdout.splitlines()
    expected = [
        "older major (9, 0) refused: update NVIDIA's driver",
        "older major (99, 0) refused: update NVIDIA's driver",
        "oldest of the major (9, 0) sm_90",
        *(["oldest of the major (99, 0) refused: update NVIDIA's driver"] if minor else []),
        *([] if minor else [f"oldest of the major (99, 0) compute_{newest}"]),
        "the same (9, 0) sm_90",
        f"the same (99, 0) compute_{newest}",
        "newer (9, 0) sm_90",
        f"newer (99, 0) compute_{newest}",
    ]
    assert [line.startswith(begin) for line, begin in zip(shown, expected, strict=True)] == [True] * len(expected), (
        shown
    )
