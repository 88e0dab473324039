"""``anyaccel conformance --report``: torch's own cases on a device, in processes that may crash or hang."""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anyaccel import CPU_Accelerator
from anyaccel.cli import app
from anyaccel.cli.conformance_report import Conformance, write_report
from anyaccel.testing import Outcome, Result
from anyaccel.testing.target import TargetError, accelerator_of
from anyaccel.testing.torch_tests import TorchTest, TorchTestsError, run_torch_tests

from ..programs import run_command_line

TOY = Path(__file__).parents[2] / "examples" / "external_accelerator"

BROKEN = """
import os, time
import anyaccel_toy.device as device
from anyaccel_toy import ToyAccelerator

_right = device._run

def _run(op, args, kwargs):
    name = op.overloadpacket.__name__
    if name == "cos":
        raise NotImplementedError("Could not run 'aten::cos' with arguments from the 'toy' backend")
    if name == "exp":
        return _right(op, args, kwargs) + 1
    if name == "sin":
        print("the device is on fire", flush=True)
        os.abort()
    if name == "tan":
        time.sleep(1000)
    return _right(op, args, kwargs)

device._run = _run
"""
"""The example device with four faults: a missing kernel, a wrong result, a crash, and a call that never returns."""


def test_each_fault_of_a_device_is_named_and_ends_no_other_test(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(BROKEN)
    arguments = [
        "conformance", "broken:ToyAccelerator", "--limit", "8",
        "--tests", "test_compare_cpu_[acest][abixo][nps]_*", "--report", "out.html", "--report", "out.json",
    ]  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(tmp_path), str(TOY))), "COLUMNS": "200"}
    ended = run_command_line(arguments, environment, tmp_path)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    tests = json.loads((tmp_path / "out.json").read_text())["torch_tests"]
    assert {test["name"].split("_")[3]: test["outcome"] for test in tests} == {
        "abs": "ok", "cos": "unsupported", "exp": "wrong", "sin": "crashed", "tan": "timed out",
    }  # fmt: skip
    why = {test["name"].split("_")[3]: test["why"] for test in tests}
    assert "'aten::cos'" in why["cos"]
    assert "Mismatched elements" in why["exp"] or "not close" in why["exp"]
    signal, _, printed = why["sin"].partition("; ")
    assert signal == "the process was killed by SIGABRT"
    lines = printed.split(" / ")  # torch's own warnings may come before
    innermost_call = lines[lines.index("the device is on fire") + 1]
    assert innermost_call.startswith("File ")
    assert innermost_call.endswith("in _run")
    assert why["tan"] == "it ran longer than 8 s"
    page = (tmp_path / "out.html").read_text()
    assert "aten::cos" in page.split("Kernels that the device lacks")[2]
    assert "torch&#x27;s cases: 1 ok" not in page
    assert "torch's cases: 1 ok, 1 unsupported, 1 wrong, 1 crashed, 1 timed out, 0 skipped" in ended.stdout
    assert "crashed test_compare_cpu_sin_toy_float32: the process was killed by SIGABRT" in ended.stderr


MISJUDGING = """
import anyaccel_toy.device as device
from anyaccel_toy import ToyAccelerator

_right = device._run

def _run(op, args, kwargs):
    result, name = _right(op, args, kwargs), op.overloadpacket.__name__
    if name == "abs":
        return result * 0
    return result + 1 if name == "neg" and not args[0].is_contiguous() else result

device._run = _run
"""
"""The example device with a wrong result for tensors with gaps, and a kernel that makes its comparisons find no difference."""


def test_a_device_whose_comparisons_are_wrong_cannot_hide_wrong_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "misjudging.py").write_text(MISJUDGING)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), str(TOY))))
    [test] = run_torch_tests("misjudging:ToyAccelerator", pattern="test_noncontiguous_samples_neg_toy_float32")
    assert (test.outcome, "not close" in test.why) == ("wrong", True), test.why


WITHOUT_RANDOM_NUMBERS = """
import anyaccel_toy.device as device
from anyaccel_toy import ToyAccelerator

_right = device._run

def _run(op, args, kwargs):
    name = op.overloadpacket.__name__
    if name == "mul":
        return args[0] + args[1]
    result = _right(op, args, kwargs)
    return result.zero_() if name in ("uniform_", "normal_", "random_") else result

device._run = _run
"""
"""The example device with random numbers that are all zero, so that a sum of them is their product."""


def test_a_device_whose_random_numbers_are_zero_cannot_hide_wrong_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "constant.py").write_text(WITHOUT_RANDOM_NUMBERS)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(tmp_path), str(TOY))))
    [test] = run_torch_tests("constant:ToyAccelerator", pattern="test_compare_cpu_mul_toy_float32")
    assert (test.outcome, "not close" in test.why) == ("wrong", True), test.why


def test_a_case_that_compares_nothing_is_skipped() -> None:
    """``x.eq_(y)`` leaves truth values in a tensor of numbers, which are no result of ``x.eq(y)``."""
    patterns = ("test_variant_consistency_eager_eq_cpu_float32", "test_variant_consistency_eager_abs_cpu_float32")
    tests = [run_torch_tests("anyaccel:CPU_Accelerator", pattern=pattern)[0] for pattern in patterns]
    assert [(test.outcome, test.why) for test in tests] == [
        ("skipped", "none of the samples can be compared in this way"), ("ok", ""),
    ]  # fmt: skip


HANGING = """
import os, time
from anyaccel import CPU_Accelerator

class Accelerator(CPU_Accelerator):
    def get_arch_list(self):
        time.sleep(1000)

    def utilization(self, device_index=None):
        os.abort()

    def export_envs(self):
        raise NotImplementedError

    def pin_memory_alignment(self):
        return "64"
"""
"""Members that only their own checks call: each further check that hangs would take its whole limit."""


def test_a_member_that_hangs_crashes_or_is_wrong_ends_no_other_check(tmp_path: Path) -> None:
    (tmp_path / "hanging.py").write_text(HANGING)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "COLUMNS": "200"}
    ended = run_command_line(["conformance", "hanging:Accelerator", "--limit", "8"], environment, tmp_path)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    outcomes = {line.split("│")[1].strip(): line.split("│")[2:4] for line in ended.stdout.splitlines() if "│" in line}
    assert [outcomes[name][0].strip() for name in ("get_arch_list", "utilization")] == ["timed out", "crashed"]
    assert outcomes["get_arch_list"][1].strip() == "it ran longer than 8 s"
    assert outcomes["utilization"][1].startswith(" the process was killed by SIGABRT")
    assert outcomes["export_envs"][0].strip() == outcomes["pin_memory_alignment"][0].strip() == "wrong"
    assert outcomes["export_envs"][1].startswith(" raises without naming the device")
    assert "pin_memory_alignment() is '64', of type str; expected int" in outcomes["pin_memory_alignment"][1]
    assert outcomes["device_count"][0].strip() == outcomes["synchronize"][0].strip() == "ok"


OF_A_VENDOR = {
    "a module that ends the program": ("import sys; sys.exit(0)", "SystemExit: 0"),
    "a driver's library that is missing": ("import ctypes; ctypes.CDLL('libof_no_vendor.so')", "OSError: libof_no_vendor.so"),
    "no Python": ("class", "SyntaxError: invalid syntax"),
    "a class that cannot be made": ("class A:\n  def __init__(self): {}['driver']", "KeyError: 'driver'"),
    "no class": ("", "module 'vendors' has no attribute 'A'"),
    "a class without the contract": ("class A: pass", "whether it is available raised AttributeError"),
    "a device without a name": (
        "class A:\n  def is_available(self): return True\n  def device_count(self): return 1",
        "whether it is available raised AttributeError",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_A_VENDOR)
def test_a_class_that_cannot_be_checked_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    code, said = OF_A_VENDOR[name]
    (tmp_path / "vendors.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "vendors", raising=False)
    with pytest.raises(TargetError, match=re.escape(said)) as error:
        accelerator_of("vendors:A")
    assert error.value.exit_code == 2


@pytest.mark.parametrize("target", ["nonsense", "nonsense:Class", "anyaccel:get_accelerator:x"])
def test_a_name_that_leads_to_no_class_is_an_error(target: str) -> None:
    with pytest.raises(TargetError, match="Fix: name an accelerator class"):
        accelerator_of(target)


ENDING = {
    "a driver that fails": (
        "import anyaccel\nclass A(anyaccel.CPU_Accelerator):\n  def is_available(self): raise OSError('no driver')",
        "whether it is available raised OSError: no driver",
    ),
    "a crash": (
        "import os\nclass A:\n  def __init__(self): os.abort()", "the process was killed by SIGABRT before a test began",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDING)
def test_the_command_ends_with_status_2_and_no_traceback(tmp_path: Path, name: str) -> None:
    code, said = ENDING[name]
    (tmp_path / "vendors.py").write_text(code)
    ended = run_command_line(["conformance", "vendors:A"], dict(os.environ), tmp_path)
    assert ended.returncode == 2, ended.stdout + ended.stderr
    assert said in " ".join(ended.stderr.split())
    assert "Traceback" not in ended.stderr


WITH_A_HELPER = """
import os, sys, time
from anyaccel import CPU_Accelerator
if any("torch_worker" in word for word in sys.orig_argv) and os.fork() == 0:
    os.setsid()
    time.sleep(280)
    os._exit(0)
class Accelerator(CPU_Accelerator):
    pass
"""


def test_a_process_that_a_driver_leaves_behind_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "helped.py").write_text(WITH_A_HELPER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    began = time.monotonic()
    tests = run_torch_tests("helped:Accelerator", pattern="test_compare_cpu_abs_cpu_float32")
    assert time.monotonic() - began < 240
    assert len(tests) == 1


def test_a_device_without_a_count_is_told_what_to_define(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CPU_Accelerator, "supports", lambda self, member: member != "device_count")
    with pytest.raises(TargetError, match=r"'cpu' does not support device_count.*Fix: define them in the module"):
        accelerator_of("anyaccel:CPU_Accelerator")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--report", "out.txt"), "ends in .html or .json"),
        (("--report", "nowhere/out.html"), "No such file"),
        (("--report", "out.html", "--dtype", "float31"), "got 'float31'"),
        (("--report", "out.html", "--limit", "0"), "--limit"),
    ],
)
def test_bad_arguments_are_refused_before_anything_runs(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, ["conformance", "anyaccel:CPU_Accelerator", *arguments])
    assert result.exit_code
    assert said in " ".join((result.output + str(result.exception)).split())
    assert "current_device" not in result.output
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("options", [["--tests", "add"], ["--dtype", "bfloat16"], ["--jobs", "2"]])
def test_what_is_for_torchs_cases_is_refused_without_a_report(options: list[str]) -> None:
    result = CliRunner().invoke(app, ["conformance", "anyaccel:CPU_Accelerator", *options])
    assert result.exit_code == 2


def test_a_module_in_the_current_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "of_this_folder.py").write_text("raise ValueError('it was imported')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [one for one in sys.path if one])
    result = CliRunner().invoke(app, ["conformance", "of_this_folder:Device"])
    assert "it was imported" in str(result.exception)


def test_a_reason_takes_a_few_lines_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "anyaccel.testing.torch_tests.check_members",
        lambda *_, **__: [
            Result("pin_memory", Outcome.WRONG, "Could not run 'aten::empty': " + "a backend, " * 200 + "\nCPU: here")
        ],
    )
    result = CliRunner().invoke(app, ["conformance", "anyaccel:CPU_Accelerator"])
    assert result.exit_code == 1
    assert "Could not run" in result.output
    assert len(result.output.splitlines()) < 20


def test_a_device_that_cannot_start_is_one_error_with_what_it_said() -> None:
    with pytest.raises(
        TorchTestsError, match=r"creating the accelerator 'json:nothing' failed: .* has no attribute 'nothing'. Fix: "
    ):
        run_torch_tests("json:nothing")


def test_the_page_shows_what_a_device_says_as_text(tmp_path: Path) -> None:
    tests = [
        TorchTest("test_compare_cpu_abs_toy_float32", "ok", seconds=0.5),
        TorchTest("test_compare_cpu_sin_toy_float32", "wrong", "<script>alert(1)</script>"),
        TorchTest("test_fn_grad_sin_toy_float32", "unsupported", "Could not run 'aten::sin.out' with arguments"),
        TorchTest("test_fn_grad_tan_toy_float32", "unsupported", "it has none"),
    ]
    found = Conformance("my:Device", "toy", [Result("device_name", Outcome.OK)], tests)
    assert found.is_wrong
    assert not Conformance("my:Device", "toy", found.members, tests[:1]).is_wrong
    write_report(tmp_path / "out.html", found)
    page = (tmp_path / "out.html").read_text()
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert "<td>aten::sin.out</td>" in page
    assert "<td>not named</td>" in page
    write_report(tmp_path / "out.json", found)
    assert json.loads((tmp_path / "out.json").read_text())["torch_tests"][1]["why"] == "<script>alert(1)</script>"
