"""Which accelerator a process uses, and what it logs about the choice."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

import anyaccel
from anyaccel.accelerator import real_accelerator
from anyaccel.accelerator.errors import SelectionError

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable


def test_the_same_object_every_time() -> None:
    assert anyaccel.get_accelerator() is anyaccel.get_accelerator()


def test_an_automatic_choice_is_logged_once_with_every_rejection(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    chosen = anyaccel.get_accelerator().device_name()
    anyaccel.get_accelerator()
    (message,) = [record.getMessage() for record in caplog.records if "chosen" in record.getMessage()]
    assert f"accelerator '{chosen}' (built in) chosen" in message
    if chosen == "cpu":
        assert "cuda: " in message
        assert "xpu: " in message


def test_environment_overrides_detection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    assert isinstance(anyaccel.get_accelerator(), anyaccel.CPU_Accelerator)


@pytest.mark.parametrize("name", ["nonsense", "CPU", "cuda", "xpu"])
def test_an_explicit_choice_that_cannot_be_served_lists_the_choices(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    if name in ("cuda", "xpu") and getattr(torch, name).is_available():
        pytest.skip(f"this machine has a {name} device")
    monkeypatch.setenv("DS_ACCELERATOR", name)
    with pytest.raises(ValueError, match=rf"DS_ACCELERATOR='{name}'.*cuda \(.*\), xpu \(.*\), .*cpu \(available\)"):
        anyaccel.get_accelerator()


def test_an_empty_variable_means_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DS_ACCELERATOR", "")
    assert anyaccel.get_accelerator() is not None


def test_set_accelerator_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DS_ACCELERATOR", "nonsense")
    chosen = anyaccel.CPU_Accelerator()
    anyaccel.set_accelerator(chosen)
    assert anyaccel.get_accelerator() is chosen


def test_use_accelerator_restores_also_after_an_exception() -> None:
    outer = anyaccel.get_accelerator()
    inner = anyaccel.CPU_Accelerator()
    with pytest.raises(KeyError), anyaccel.use_accelerator(inner) as given:
        assert anyaccel.get_accelerator() is inner is given
        raise KeyError
    assert anyaccel.get_accelerator() is outer


def test_use_accelerator_before_the_first_choice_leaves_it_open() -> None:
    with anyaccel.use_accelerator(anyaccel.CPU_Accelerator()) as inner:
        pass
    assert anyaccel.get_accelerator() is not inner


@pytest.mark.parametrize("wrong", [None, "cuda", 3, object(), anyaccel.CPU_Accelerator])
def test_set_accelerator_refuses_anything_else(wrong: Any) -> None:
    before = anyaccel.get_accelerator()
    with pytest.raises(TypeError, match="expected an instance of DeepSpeedAccelerator"):
        anyaccel.set_accelerator(wrong)
    assert anyaccel.get_accelerator() is before


def test_a_nearly_complete_object_is_told_what_it_lacks() -> None:
    members = dict.fromkeys(anyaccel.DeepSpeedAccelerator.__abstractmethods__ - {"Stream", "device_name"})
    with pytest.raises(TypeError, match="which lacks Stream, device_name;"):
        anyaccel.set_accelerator(type("Nearly", (), members)())  # type: ignore[arg-type]


def test_a_complete_object_of_no_class_of_ours_gets_the_later_members() -> None:
    older = type("Older", (), dict.fromkeys(anyaccel.DeepSpeedAccelerator.__abstractmethods__))()
    older.device_name = lambda device_index=None: "cpu"
    older.available_memory = lambda device_index=None: 1
    older.total_memory = lambda device_index=None: 2
    anyaccel.set_accelerator(older)
    assert anyaccel.get_accelerator() is older
    assert anyaccel.get_accelerator().mem_get_info() == (1, 2)
    assert anyaccel.get_accelerator().supports_nvtx_domain is False
    with anyaccel.get_accelerator().autocast(dtype=torch.bfloat16):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype is torch.bfloat16
    with pytest.raises(NotImplementedError, match="'cpu'"):
        anyaccel.get_accelerator().set_stream(None)


def test_deepspeeds_own_accelerator_is_taken(run_with_torch: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    run_with_torch("""
import warnings; warnings.simplefilter("ignore")
from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator
import anyaccel
theirs = CPU_Accelerator()
anyaccel.set_accelerator(theirs)
assert anyaccel.get_accelerator() is theirs
free, total = anyaccel.get_accelerator().mem_get_info()
assert 0 < free <= total
with anyaccel.get_accelerator().device_guard(0):
    pass
supports = anyaccel.get_accelerator().supports
assert supports("autocast") and supports("device_guard") and not supports("set_stream")
""")


def test_detection_initialises_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a CUDA build: only functions that create no context may be called."""
    monkeypatch.setattr(torch.cuda, "_is_compiled", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    for forbidden in ("is_available", "current_device", "init", "get_device_properties"):
        monkeypatch.setattr(torch.cuda, forbidden, lambda: pytest.fail("detection touched the device"))
    (cuda,) = [candidate for candidate in real_accelerator.candidates() if candidate.name == "cuda"]
    assert "finds no device" in cuda.rejection
    assert not torch.cuda.is_initialized()


def test_a_machine_with_a_gpu_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "_is_compiled", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    assert isinstance(anyaccel.get_accelerator(), anyaccel.CUDA_Accelerator)


def test_sixteen_threads_get_one_object(run_with_torch: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    run_with_torch("""
import threading, anyaccel
barrier, found = threading.Barrier(16), []
def ask():
    barrier.wait()
    found.append(anyaccel.get_accelerator())
threads = [threading.Thread(target=ask) for _ in range(16)]
for thread in threads: thread.start()
for thread in threads: thread.join()
assert len(found) == 16 and len({id(one) for one in found}) == 1, found
""")


def test_a_child_forked_while_a_thread_makes_the_choice_works(
    run_with_torch: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """The thread is importing the accelerator's module then, and holds the lock that Python has for it."""
    run_with_torch("""
import os, signal, sys, threading, time
import anyaccel

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name.endswith(".cpu_accelerator"):
            begun.set()
            time.sleep(1)

begun = threading.Event()
sys.meta_path.insert(0, Slow())
thread = threading.Thread(target=anyaccel.get_accelerator)
thread.start()
begun.wait()
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(0 if anyaccel.get_accelerator().device_name() == "cpu" else 1)
_, status = os.waitpid(child, 0)
thread.join()
assert os.waitstatus_to_exitcode(status) == 0
""")


@pytest.mark.parametrize(
    "where",
    [
        "class Mine(CPU_Accelerator):\n    pass\nget_accelerator()",
        "class Mine(CPU_Accelerator):\n    def __init__(self):\n        get_accelerator()",
    ],
)
def test_a_plug_in_that_asks_for_the_accelerator_while_it_is_made_is_skipped_and_told(
    where: str, tmp_path: Path, run_with_torch: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    (tmp_path / "asking.py").write_text(f"from anyaccel import CPU_Accelerator, get_accelerator\n{where}\n")
    packed = tmp_path / "asking-1.dist-info"
    packed.mkdir()
    (packed / "METADATA").write_text("Metadata-Version: 2.1\nName: asking\nVersion: 1\n")
    (packed / "entry_points.txt").write_text("[anyaccel.accelerators]\nmine = asking:Mine\n")
    asks = "import logging\nlogging.basicConfig(level=logging.INFO)\nimport anyaccel\nprint(anyaccel.get_accelerator()._name)"
    done = run_with_torch(asks, PYTHONPATH=str(tmp_path), DS_ACCELERATOR="")
    assert done.stdout == f"{anyaccel.get_accelerator()._name}\n"
    why = "mine: SelectionError: choosing the accelerator failed: got a call of get_accelerator() while a plug-in is"
    assert done.stderr.count(f"chosen; not {why}") == 1
    assert done.stderr.count("'mine'") == 1


def _plug_in(folder: Path, code: str, name: str = "mine") -> dict[str, str]:
    """Write a package with a plug-in, and return the environment in which it is found."""
    (folder / f"{name}_plug_in.py").write_text(code)
    packed = folder / f"{name}-1.dist-info"
    packed.mkdir()
    (packed / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
    (packed / "entry_points.txt").write_text(f"[anyaccel.accelerators]\n{name} = {name}_plug_in:Mine\n")
    return {"PYTHONPATH": str(folder), "DS_ACCELERATOR": ""}


def test_a_plug_in_that_another_thread_imports_a_framework_for_stops_nobody(
    tmp_path: Path, run_with_torch: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """The framework asks for the accelerator while it is imported, and the plug-in imports the framework."""
    (tmp_path / "framework.py").write_text("import time, anyaccel\ntime.sleep(1)\nanyaccel.get_accelerator()\n")
    code = "import time\ntime.sleep(0.5)\nimport framework\nfrom anyaccel import CPU_Accelerator as Mine\n"
    run_with_torch(
        """
import faulthandler, threading, anyaccel
faulthandler.dump_traceback_later(60, exit=True)
found = []
thread = threading.Thread(target=lambda: found.append(anyaccel.get_accelerator()))
thread.start()
import framework
thread.join()
assert found == [anyaccel.get_accelerator()]
""",
        **_plug_in(tmp_path, code),
    )


def test_a_child_forked_while_a_plug_in_does_not_answer_chooses_for_itself(
    tmp_path: Path, run_with_torch: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    code = "import os, time, anyaccel\nparent = os.getpid()\ndef Mine():\n"
    code += "    if os.getpid() == parent: time.sleep(3)\n    return anyaccel.CPU_Accelerator()\n"
    run_with_torch(
        """
import os, signal, threading, time, anyaccel
from anyaccel.accelerator import real_accelerator
from anyaccel.accelerator.errors import SelectionError
real_accelerator._MOST_SECONDS_BEFORE_FORK = 0.1
thread = threading.Thread(target=anyaccel.get_accelerator)
thread.start()
time.sleep(0.5)
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(0 if anyaccel.get_accelerator().device_name() == "cpu" else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
thread.join()
""",
        **_plug_in(tmp_path, code),
    )


def test_no_thread_begins_to_choose_while_another_one_forks(
    tmp_path: Path, run_with_torch: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """Between the wait for a choice and the fork, hooks of others run; the child would hang on a module's lock."""
    code = "import time\ntime.sleep(1)\nfrom anyaccel import CPU_Accelerator as Mine\n"
    run_with_torch(
        """
import os, signal, threading, time
chooser = threading.Thread(target=lambda: get_accelerator())
def before():  # registered earlier, so it runs later
    if chooser.ident is None:
        chooser.start()
        time.sleep(0.5)
os.register_at_fork(before=before)
import torch, anyaccel.accelerator.cpu_accelerator
from anyaccel import get_accelerator
child = os.fork()
if child == 0:
    signal.alarm(60)
    os._exit(0 if get_accelerator().device_name() == "cpu" else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
chooser.join()
assert get_accelerator().device_name() == "cpu"
""",
        **_plug_in(tmp_path, code),
    )


def test_what_a_plug_in_raises_stops_no_program_but_what_a_user_sends_does(
    tmp_path: Path, run_with_torch: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    """As pyo3's panics, which derive from BaseException."""
    code = "class Panic(BaseException): pass\ndef Mine(): raise __import__('builtins').__dict__.get(kind) or Panic('lost')\n"
    code += "import os\nkind = os.environ['KIND']\n"
    environment = _plug_in(tmp_path, code)
    asks = "import anyaccel; print(anyaccel.get_accelerator()._name)"
    done = run_with_torch(asks, **environment, KIND="Panic")
    assert "failed and is skipped: Panic: lost" in done.stderr
    done = run_with_torch(asks, check=False, **environment, KIND="KeyboardInterrupt")
    assert done.returncode != 0
    assert done.stdout == ""


@pytest.mark.parametrize("name", ["undefined", "mpi"])
def test_a_backend_that_this_torch_is_built_without_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYACCEL_CPU_BACKEND", name)
    with pytest.raises(SelectionError, match=f"got ANYACCEL_CPU_BACKEND='{name}'; expected one of: .*gloo"):
        anyaccel.CPU_Accelerator().communication_backend_name()


@pytest.mark.parametrize("raised", ["OSError('libze is broken')", "SystemExit(127)", "AssertionError()"])
def test_a_driver_that_fails_stops_no_program_for_another_device(
    raised: str, run_with_torch: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = run_with_torch(f"""
import torch, anyaccel
def fails(*_): raise {raised}
torch.xpu._is_compiled, torch.xpu.device_count = (lambda: True), fails
torch.accelerator.current_accelerator = fails if {raised!r}[0] != "S" else torch.accelerator.current_accelerator
print(type(anyaccel.get_accelerator()).__name__)
""", DS_ACCELERATOR="cpu")  # fmt: skip
    assert done.stdout == "CPU_Accelerator\n"
    assert f"looking for the device 'xpu' failed, and it is skipped: {raised.partition('(')[0]}: " in done.stderr


def test_a_forked_child_works(run_with_torch: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    run_with_torch("""
import os, anyaccel
accelerator = anyaccel.get_accelerator()
child = os.fork()
before = accelerator.memory_allocated()
if child == 0:
    held = bytearray(os.urandom(1)) * (256 << 20)
    grown = accelerator.memory_allocated() > before + (200 << 20)
    os._exit(0 if grown and anyaccel.get_accelerator() is accelerator else 1)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0
assert accelerator.memory_allocated() < before + (200 << 20)
""")
