"""A wheel, an editable install and a checkout provide the same package, and add no other top-level names."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

ROOT = Path(__file__).parents[1]

LOADS_AN_OP = """
import torch, anyaccel
from anyaccel.op_builder.op import CSRC
assert (CSRC / "adam" / "adam.cpp").is_file(), CSRC
param, state = torch.ones(3), [torch.zeros(3), torch.zeros(3), torch.zeros(())]
op = anyaccel.get_accelerator().create_op_builder("CPUAdamBuilder").load()
op.adam_step([param], [torch.ones(3)], [state[0]], [state[1]], [state[2]], lr=0.5)
assert param.tolist() == [0.5, 0.5, 0.5], param
print(anyaccel.__file__)
"""


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"anyaccel", wheel.name.rsplit("-", 3)[0] + ".dist-info"}
    assert {"anyaccel/py.typed", "anyaccel/csrc/adam/adam.cpp", "anyaccel/csrc/includes/adam.h"} <= set(names)


def test_no_two_files_of_a_wheel_are_equal(wheel: Path) -> None:
    """As check-wheel-contents wants it, which only `make dist` runs."""
    with zipfile.ZipFile(wheel) as content:
        named: dict[bytes, list[str]] = {}
        for one in content.infolist():
            if one.file_size:
                named.setdefault(content.read(one), []).append(one.filename)
    assert [names for names in named.values() if len(names) > 1] == []


def test_an_op_builds_from_a_wheel(
    installed_wheel: Path, run_python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    finished = run_python(LOADS_AN_OP, PYTHONPATH=str(installed_wheel))
    assert str(installed_wheel) in finished.stdout


def test_an_op_builds_from_this_install(run_python: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    assert str(ROOT) in run_python(LOADS_AN_OP).stdout


def test_an_op_builds_in_a_checkout_that_is_not_installed(
    run_python: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    not_installed = "import sys; sys.meta_path[:] = [one for one in sys.meta_path if 'editable' not in repr(one)]\n"
    assert "anyaccel" in run_python(not_installed + LOADS_AN_OP, PYTHONPATH=str(ROOT)).stdout


@pytest.mark.parametrize("name", ["accelerator", "op_builder", "csrc", "kernels"])
def test_bare_import_fails(name: str, run_python: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    finished = run_python(f"import {name}", check=False)
    assert "ModuleNotFoundError" in finished.stderr


@pytest.mark.parametrize("name", ["accelerator", "op_builder"])
def test_bare_import_fails_inside_the_checkout_too(
    name: str, run_python: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    finished = run_python(f"import {name}", check=False, PYTHONPATH=str(ROOT))
    assert f"Fix: import anyaccel.{name}." in finished.stderr


def test_import_of_anyaccel_imports_no_torch(run_python: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    run_python("import sys, anyaccel; anyaccel.get_accelerator; assert 'torch' not in sys.modules")


def test_public_names_are_these() -> None:
    import anyaccel

    assert sorted(anyaccel.__all__) == [
        "AnyaccelError",
        "CPU_Accelerator",
        "CUDA_Accelerator",
        "DeepSpeedAccelerator",
        "TorchAccelerator",
        "XPU_Accelerator",
        "get_accelerator",
        "load_op",
        "set_accelerator",
        "use_accelerator",
    ]
    for name in anyaccel.__all__:
        assert getattr(anyaccel, name) is not None
        assert name in dir(anyaccel)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        anyaccel.nothing  # noqa: B018


def test_no_installation_by_make_can_replace_the_torch_that_was_asked_for() -> None:
    """pip replaces an installed torch, without an error, if something that it installs does not fit to it."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    with_dependencies = [
        line
        for line in text.splitlines()
        if re.search(r"-m pip install|call install,", line)
        and re.search(r"--editable|\.whl", line)
        and "--no-deps" not in line
    ]
    assert len(with_dependencies) == 3  # for tests, for an old torch, and of a wheel
    assert not [
        line for line in with_dependencies if not re.search(r'"\$(\(TORCH\)|\(OLD_TORCH\)|\$\{on#\*:\})"', line)
    ]
