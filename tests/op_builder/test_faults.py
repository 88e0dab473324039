"""Faults of real machines, reproduced for real: killed builders, many at once, disks that are full or read-only."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from anyaccel.op_builder import BuildError, torch_libraries
from anyaccel.op_builder.engine import build

from ..programs import Program, program_server
from ..quick_compiler import quick_compiler

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyaccel.op_builder import CPUOpBuilder
    from anyaccel.op_builder.engine.cache import Cache

BUILDING = "engine.build:building the op"

LOAD = """
import logging
logging.basicConfig(level=logging.INFO)
import torch, anyaccel
op = anyaccel.load_op("cpu_adam")
param = torch.ones(1)
op.adam_step([param], [torch.ones(1)], [torch.zeros(1)], [torch.zeros(1)], [torch.zeros(())], lr=0.5)
assert param.item() == 0.5
"""


BUILD = """
import logging
logging.basicConfig(level=logging.INFO)
from anyaccel.op_builder import CPUOpBuilder
class Builder(CPUOpBuilder):
    NAME, STABLE_ABI, SOURCES = "answer", True, ({source!r},)
assert Builder().build().binary.is_file()
"""
"""Builds a one-line op: the process needs no torch, and a compiler that sleeps makes all others meet it at work."""


def _build(tmp_path: Path) -> str:
    """Return a program that builds an op."""
    source = tmp_path / "answer.cpp"
    source.write_text('extern "C" int answer() { return 42; }')
    return BUILD.format(source=str(source))


def _slow_build(tmp_path: Path, seconds: int) -> tuple[str, str]:
    """Return a program that builds an op, and its compiler, which takes some seconds."""
    return _build(tmp_path), str(_compiler(tmp_path / "bin", f"sleep {seconds}"))


def _start(cache_dir: Path, code: str = LOAD, **env: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "ANYACCEL_CACHE_DIR": str(cache_dir), "DS_ACCELERATOR": "cpu", **env}
    return subprocess.Popen(
        [sys.executable, "-c", code], env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def _finish(processes: list[subprocess.Popen[str]]) -> list[str]:
    logs = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), logs
    return logs


def _compiler(folder: Path, on_compile: str, version: str = "") -> Path:
    """Write a compiler that wraps the system's, but acts differently when it compiles an op."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "c++"
    file.unlink(missing_ok=True)  # a link may be to the system's own
    said = f"*--version*) echo '{version}'; exit ;; " if version else ""
    file.write_text(
        f'#!/bin/sh\ncase "$*" in {said}*"-o 0.o"*) {on_compile} ;; esac\nexec {shutil.which("c++")} "$@"\n'
    )
    file.chmod(0o755)
    return file


def test_eight_processes_build_a_cold_op_once(tmp_path: Path) -> None:
    code, compiler = _slow_build(tmp_path, 3)
    environment = {**os.environ, "ANYACCEL_CACHE_DIR": str(tmp_path / "cache"), "CXX": compiler}
    logs = [tmp_path / f"log{number}" for number in range(8)]
    programs = [Program(code, (), environment, str(tmp_path), errors=str(log)) for log in logs]
    assert program_server().statuses(programs, 120) == [0] * 8, [log.read_text() for log in logs]
    said = [log.read_text() for log in logs]
    assert sum(text.count(BUILDING) for text in said) == 1, said


def test_sixteen_threads_load_a_cold_op_once(tmp_path: Path) -> None:
    code = f"""
import threading
from concurrent.futures import ThreadPoolExecutor
import anyaccel
barrier = threading.Barrier(16)
def load(_):
    barrier.wait()
    return anyaccel.load_op("cpu_adam")
with ThreadPoolExecutor(16) as pool:
    assert len(set(map(id, pool.map(load, range(16))))) == 1
{LOAD}
"""
    code = "import logging; logging.basicConfig(level=logging.INFO)\n" + code
    (log,) = _finish([_start(tmp_path / "cache", code, **quick_compiler(tmp_path / "bin"))])
    assert log.count(BUILDING) == 1, log


def test_two_different_ops_are_built_at_the_same_time(cache: Cache, tmp_path: Path) -> None:
    """Each compiler waits, up to a minute, until the other has begun."""
    meet = 'touch begun-$$; n=0; while [ $(ls "{0}" | wc -l) -lt 2 ] && [ $n -lt 600 ]; do sleep 0.1; n=$((n+1)); done'
    meeting = tmp_path / "meeting"
    meeting.mkdir()
    wait = meet.replace("begun-$$", f"{meeting}/$$").format(meeting)
    compiler = _compiler(tmp_path / "bin", f"{wait}; ls '{meeting}' | wc -l > \"{tmp_path}/met-$$\"")
    code = """
import sys
from anyaccel.op_builder import CPUOpBuilder
class Builder(CPUOpBuilder):
    NAME, STABLE_ABI, SOURCES = sys.argv[1], True, (sys.argv[2],)
Builder().build()
"""
    (tmp_path / "one.cpp").write_text('extern "C" int one() { return 1; }')
    environment = {**os.environ, "ANYACCEL_CACHE_DIR": str(cache.root), "CXX": str(compiler)}
    processes = [
        subprocess.Popen([sys.executable, "-c", code, name, str(tmp_path / "one.cpp")], env=environment)
        for name in ("first", "second")
    ]
    assert [process.wait() for process in processes] == [0, 0]
    assert [file.read_text().strip() for file in tmp_path.glob("met-*")] == ["2", "2"]


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (2, 3, 4))])
def test_a_builder_killed_at_a_random_moment_stops_nobody(tmp_path: Path, seed: int) -> None:
    delay_seconds = random.Random(seed).uniform(0, 2.5)  # noqa: S311
    code, compiler = _slow_build(tmp_path, 2)
    victim = _start(tmp_path / "cache", code, CXX=compiler)
    assert victim.stderr is not None
    while BUILDING not in victim.stderr.readline():
        assert victim.poll() is None
    time.sleep(delay_seconds)
    if seed % 2:
        victim.send_signal(signal.SIGKILL)  # its ninja and compilers run for a while
    else:
        os.killpg(victim.pid, signal.SIGKILL)
    victim.wait()
    victim.stderr.close()
    (log,) = _finish([_start(tmp_path / "cache", code, CXX=compiler)])
    assert "waiting for" not in log
    assert not list((tmp_path / "cache").glob("staging-*"))


def _with_mount(options: str, place: Path, code: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run Python code with a tmpfs mounted for it alone."""
    unshare = ["unshare", "--mount"] if os.getuid() == 0 else ["unshare", "--mount", "--map-root-user"]
    place.mkdir(mode=0o700, exist_ok=True)
    mount = f"mount -t tmpfs -o {options} none '{place}'"
    if shutil.which("unshare") is None or subprocess.run([*unshare, "sh", "-c", mount], check=False).returncode != 0:
        pytest.skip("this machine lets nobody mount a tmpfs")
    return subprocess.run(
        [*unshare, "sh", "-c", f'{mount} && exec "$0" -c "$1"', sys.executable, code],
        env={**os.environ, "DS_ACCELERATOR": "cpu", **env},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_read_only_home(tmp_path: Path) -> None:
    home = tmp_path / "home"
    without = {"ANYACCEL_CACHE_DIR": "", "XDG_CACHE_HOME": ""}
    done = _with_mount("ro,mode=0700", home, _build(tmp_path), HOME=str(home), TMPDIR=str(tmp_path), **without)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("cannot be written (Read-only file system)") == 1
    assert done.stderr.count("Fix: set ANYACCEL_CACHE_DIR.") == 1
    assert not list(tmp_path.glob("anyaccel-*"))  # the temporary cache was removed with its process


def test_a_cache_of_one_megabyte_is_too_small_for_the_build(tmp_path: Path) -> None:
    place = tmp_path / "small"
    fill = f"open({str(place / 'fill')!r}, 'wb').write(bytes(1_030_000))\n"
    done = _with_mount(
        "size=1m,mode=0700", place, fill + _build(tmp_path), ANYACCEL_CACHE_DIR=str(place), TMPDIR=str(tmp_path)
    )
    assert done.returncode == 0, done.stderr
    assert "No space left on device" in done.stderr
    assert done.stderr.count("Fix: set ANYACCEL_CACHE_DIR.") == 1


def test_no_disk_with_room_is_one_clear_error(tmp_path: Path) -> None:
    place = tmp_path / "small"
    fill = f"open({str(place / 'fill')!r}, 'wb').write(bytes(1_000_000))\n"
    done = _with_mount(
        "size=1m,mode=0700", place, fill + _build(tmp_path), ANYACCEL_CACHE_DIR=str(place), TMPDIR=str(place)
    )
    assert done.returncode == 1
    assert "CacheError" in done.stderr.splitlines()[-1]
    assert "Fix: set ANYACCEL_CACHE_DIR to a disk with room" in done.stderr


def test_a_compiler_that_is_killed_is_named(
    cache: Cache, make_builder: Callable[..., CPUOpBuilder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = _compiler(tmp_path / "bin", "kill -9 $$")
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(BuildError, match=r"was ended by SIGKILL; if memory ran out, set ANYACCEL_BUILD_JOBS=1"):
        make_builder().build()
    monkeypatch.delenv("CXX")
    assert make_builder().build().binary.is_file()


def test_a_compiler_that_fails_without_a_word(
    cache: Cache, make_builder: Callable[..., CPUOpBuilder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", str(_compiler(tmp_path / "bin", "exit 3")))
    with pytest.raises(BuildError, match="no line of its output contains 'error'") as raised:
        make_builder().build()
    assert str(tmp_path / "bin" / "c++") in raised.value.command


def test_a_compiler_that_vanishes_is_named(
    cache: Cache, make_builder: Callable[..., CPUOpBuilder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = _compiler(tmp_path / "bin", "true")
    monkeypatch.setenv("CXX", str(compiler))
    builder = make_builder()
    assert builder.is_compatible()
    compiler.unlink()
    with pytest.raises(BuildError, match=r"error: .*c\+\+ cannot be run"):
        builder.build()


def test_a_compiler_of_another_version_builds_again(
    cache: Cache, make_builder: Callable[..., CPUOpBuilder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CXX", str(_compiler(tmp_path / "bin", "true", "fake 1.0")))
    first = make_builder().build()
    _compiler(tmp_path / "bin", "true", "fake 1.0.1")
    second = make_builder().build()
    assert (first.facts["compiler_version"], second.facts["compiler_version"]) == ("fake 1.0", "fake 1.0.1")
    assert first.binary != second.binary


def test_a_header_that_only_the_compiler_sees_is_watched(
    cache: Cache, make_builder: Callable[..., CPUOpBuilder], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its name is a macro, so only the compiler's list of files shows it."""
    source = '#include "answer.h"\n#define WHICH(x) #x\n#include WHICH(hidden.h)\nextern "C" int answer() { return kHidden; }'
    builder = make_builder(source=source)
    hidden = tmp_path / "sources" / "hidden.h"
    hidden.write_text("const int kHidden = 1;")
    first = builder.build()
    assert str(hidden) in first.inputs.paths()
    assert make_builder(source=source).is_built()
    hidden.write_text("const int kHidden = 2;")
    assert not make_builder(source=source).is_built()
    assert make_builder(source=source).build().sha256 != first.sha256


def test_ninja_need_not_be_in_path(
    tmp_path: Path, run_with_torch: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    for tool in ("c++", "as", "ld"):
        (folder / tool).symlink_to(shutil.which(tool) or pytest.skip(f"no {tool}"))
    code = f"import shutil; assert shutil.which('ninja') is None\n{_build(tmp_path)}"
    finished = run_with_torch(code, PATH=str(folder), ANYACCEL_CACHE_DIR=str(tmp_path / "cache"))
    assert BUILDING in finished.stderr


def test_a_clock_that_stepped_back_changes_nothing(
    cache: Cache, make_builder: Callable[..., CPUOpBuilder], tmp_path: Path
) -> None:
    """For the file's clock, all of them come from the future."""
    first = make_builder().build()
    in_ten_years = time.time() + 10 * 365 * 86400
    for file in [*cache.root.rglob("*"), *(tmp_path / "sources").rglob("*")]:
        os.utime(file, (in_ten_years, in_ten_years))
    assert make_builder().build() == first
    edited = make_builder(header="const int kAnswer = 43;")
    os.utime(tmp_path / "sources" / "answer.h", (1, 1))
    assert edited.build().sha256 != first.sha256


@pytest.mark.parametrize("place", ["own", "of others"])
def test_sources_that_a_clock_behind_the_disks_finds_in_the_future_are_built(
    make_builder: Callable[..., CPUOpBuilder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """A clock has stepped back, or the sources are on a server whose clock is ahead. Headers of others cost a second build."""
    monkeypatch.setattr(build, "_clock_of", lambda _: time.time_ns() - 3600 * 10**9)
    builder = make_builder()
    if place == "of others":
        (tmp_path / "others").mkdir()
        (tmp_path / "others" / "theirs.h").write_text("")
        source = tmp_path / "sources" / "answer.cpp"
        source.write_text(f"#include <theirs.h>\n{source.read_text()}")
        monkeypatch.setenv("CPATH", str(tmp_path / "others"))
    assert builder.build().binary.exists()


def test_one_cache_serves_two_torch_versions_and_two_isas(
    cache: Cache, make_builder: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    import torch

    stable = make_builder()
    module = make_builder()
    type(module).STABLE_ABI = False
    before = stable.recipe_for("native").fingerprint(), module.recipe_for("native").fingerprint()
    monkeypatch.setattr(torch, "__version__", "2.99.0+another")
    assert stable.recipe_for("native").fingerprint() == before[0]  # one binary serves both
    assert module.recipe_for("native").fingerprint() != before[1]  # torch's C++ headers are another's
    monkeypatch.setattr(torch_libraries, "host_isa", lambda: "another CPU")
    assert stable.recipe_for("native").fingerprint() != before[0]


FORKS = textwrap.dedent("""
    import os, pathlib, sys, threading, time
    import torch, anyaccel

    def use():
        op = anyaccel.load_op("cpu_adam")
        param = torch.ones(1)
        op.adam_step([param], [torch.ones(1)], [torch.zeros(1)], [torch.zeros(1)], [torch.zeros(())], lr=0.5)
        assert param.item() == 0.5

    def in_a_fork():
        child = os.fork()
        if child == 0:
            try:
                use()
                os._exit(0)
            except BaseException as error:
                print(error, file=sys.stderr)
                os._exit(1)
        return child
""")


def test_a_fork_after_load_uses_the_op(
    run_with_torch: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    run_with_torch(FORKS + "use()\nassert os.waitpid(in_a_fork(), 0)[1] == 0")


def test_a_fork_while_a_thread_builds_loads_too(
    tmp_path: Path, run_with_torch: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    code = f"""{FORKS}
builder = threading.Thread(target=use)
builder.start()
while not list(pathlib.Path({str(tmp_path / "cache")!r}).glob("staging-*")):
    time.sleep(0.01)
child = in_a_fork()
builder.join()
assert os.waitpid(child, 0)[1] == 0
"""
    environment = {"ANYACCEL_CACHE_DIR": str(tmp_path / "cache"), **quick_compiler(tmp_path / "bin")}
    finished = run_with_torch(code, PYTHONWARNINGS="ignore", **environment)
    assert "Traceback" not in finished.stderr


def test_a_fork_waits_until_a_program_has_started(
    run_with_torch: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    """The child would hold the pipe that the starter waits for, and might itself wait for the starter."""
    run_with_torch("""
import os, subprocess, threading, time
from anyaccel.op_builder.engine.spawn import run

is_starting, has_started = threading.Event(), threading.Event()

class Slow(subprocess.Popen):
    def _execute_child(self, *arguments):
        is_starting.set()
        time.sleep(0.5)
        super()._execute_child(*arguments)
        has_started.set()

subprocess.Popen = Slow
starter = threading.Thread(target=run, args=(["true"],))
starter.start()
is_starting.wait()
child = os.fork()
if child == 0:
    os._exit(0 if has_started.is_set() and run(["echo", "on"]).stdout == "on\\n" else 1)
starter.join()
assert os.waitpid(child, 0)[1] == 0
""")


def test_a_fork_while_a_thread_decides_what_to_build(
    run_with_torch: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    run_with_torch(
        """
import os, threading, time
from anyaccel.op_builder.cpu import CPUAdamBuilder

decided = CPUAdamBuilder.recipe_for
is_deciding = threading.Event()

def slowly(self, target):
    is_deciding.set()
    time.sleep(0.5)
    return decided(self, target)

CPUAdamBuilder.recipe_for = slowly
decider = threading.Thread(target=lambda: CPUAdamBuilder().recipe)
decider.start()
is_deciding.wait()
child = os.fork()
if child == 0:
    os._exit(0 if CPUAdamBuilder().recipe.op == "cpu_adam" else 1)
decider.join()
assert os.waitpid(child, 0)[1] == 0
""",
        PYTHONWARNINGS="ignore",
    )
