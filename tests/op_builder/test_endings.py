"""Every way in which a build ends early: no compiler outlives the process that started it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anyaccel.op_builder import BuildError, BuildStoppedError, BuildTimeoutError
from anyaccel.op_builder.engine import environment
from anyaccel.op_builder.engine.progress import Progress, watch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from anyaccel.op_builder import CPUOpBuilder
    from anyaccel.op_builder.engine.cache import Cache

ENDLESS = '#include "answer.h"\n#include "endless.h"\n'
"""A source that cc1plus reads until something is written into the named pipe that is its header."""

TAKES_SIGNALS = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
"""
"""Undoes what ``nohup`` and a shell's ``&`` do to the tests, and the program would inherit: both ignore signals."""

BUILD = """
import sys
from anyaccel.op_builder import CPUOpBuilder
class Builder(CPUOpBuilder):
    NAME, STABLE_ABI, SOURCES = "endless", True, (sys.argv[1],)
Builder().build()
"""


@pytest.fixture
def endless(tmp_path: Path) -> Path:
    """A source whose compilation never ends."""
    folder = tmp_path / "sources"
    folder.mkdir()
    os.mkfifo(folder / "endless.h")
    (folder / "answer.h").touch()
    (folder / "endless.cpp").write_text(ENDLESS)
    return folder / "endless.cpp"


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start Python code in a new session, with an empty cache; nothing of it outlives the test."""
    started = []

    def start_one(code: str, *arguments: str | Path, **env: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", TAKES_SIGNALS + code, *map(str, arguments)],
            env={**os.environ, "ANYACCEL_CACHE_DIR": str(tmp_path / "cache"), "DS_ACCELERATOR": "cpu", **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start_one
    for process in started:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
    for pid in _programs(tmp_path):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _programs(folder: Path) -> dict[int, str]:
    """Return the running programs that have a folder in their environment, by process id."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state = (process / "stat").read_text().rpartition(")")[2].split()[0]
            if (
                os.fsencode(folder) in (process / "environ").read_bytes()
                and state != "Z"
                and int(process.name) != os.getpid()
            ):
                found[int(process.name)] = (process / "comm").read_text().strip()
    return found


def _wait_for(condition: Callable[[], object], process: subprocess.Popen[str] | None = None) -> None:
    for _ in range(1200):
        if condition():
            return
        assert process is None or process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
    pytest.fail("waited for a minute")


def _wait_for_compiler(process: subprocess.Popen[str], folder: Path) -> None:
    _wait_for(lambda: {"ninja", "cc1plus"} <= set(_programs(folder).values()), process)


@pytest.mark.parametrize("sent", ["SIGINT to all", "SIGINT", "SIGTERM", "SIGHUP", "SIGKILL"])
def test_nothing_outlives_the_process_that_builds(
    start: Callable[..., subprocess.Popen[str]], endless: Path, tmp_path: Path, sent: str
) -> None:
    process = start(BUILD, endless)
    _wait_for_compiler(process, tmp_path)
    number = getattr(signal, sent.split(maxsplit=1)[0])
    if sent == "SIGINT to all":
        os.killpg(process.pid, number)
    else:
        process.send_signal(number)
    _wait_for(lambda: not _programs(tmp_path))
    process.wait()
    if number == signal.SIGINT:
        assert "KeyboardInterrupt" in process.communicate()[0]
        assert not list((tmp_path / "cache").glob("staging-*"))


@pytest.mark.parametrize("sent", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_a_compiler_in_a_group_of_its_own_ends_too(
    start: Callable[..., subprocess.Popen[str]], endless: Path, tmp_path: Path, sent: str
) -> None:
    """``timeout`` starts its command in a new process group, which a signal to the compiler's group does not reach."""
    wrapper = tmp_path / "wrapper"
    wrapper.write_text('#!/bin/sh\ntimeout 600 c++ "$@"\n')
    wrapper.chmod(0o755)
    process = start(BUILD, endless, CXX=str(wrapper))
    _wait_for_compiler(process, tmp_path)
    process.send_signal(getattr(signal, sent))
    _wait_for(lambda: not _programs(tmp_path))


def test_a_compiler_that_ignores_sigterm_ends_too(
    start: Callable[..., subprocess.Popen[str]], endless: Path, tmp_path: Path
) -> None:
    compiler = tmp_path / "stubborn"
    compiler.write_text(
        "#!/bin/sh\ntrap '' TERM INT HUP\n"
        'case "$*" in *"-o 0.o"*) echo $$ > "$0.pid"; while :; do sleep 1; done;; esac\nexec c++ "$@"\n'
    )
    compiler.chmod(0o755)
    process = start(BUILD, endless, CXX=str(compiler))
    _wait_for((tmp_path / "stubborn.pid").exists, process)
    process.kill()
    _wait_for(lambda: not _programs(tmp_path))


def test_a_compiler_that_says_no_version_ends_with_the_process_that_asked(
    start: Callable[..., subprocess.Popen[str]], endless: Path, tmp_path: Path
) -> None:
    compiler = tmp_path / "silent"
    compiler.write_text('#!/bin/sh\necho $$ > "$0.pid"\nsleep 1000\n')
    compiler.chmod(0o755)
    process = start(BUILD, endless, CXX=str(compiler))
    _wait_for((tmp_path / "silent.pid").exists, process)
    process.kill()
    _wait_for(lambda: not _programs(tmp_path))


def test_a_forked_child_does_not_keep_compilers_alive(
    start: Callable[..., subprocess.Popen[str]], endless: Path, tmp_path: Path
) -> None:
    code = f"""
import os, pathlib, sys, threading, time
def build():
{BUILD.replace(chr(10), chr(10) + "    ")}
threading.Thread(target=build, daemon=True).start()
while not pathlib.Path(sys.argv[2], "go").exists():
    time.sleep(0.05)
child = os.fork()
if child == 0:
    pathlib.Path(sys.argv[2], "forked").touch()
time.sleep(1000)
"""
    process = start(code, endless, tmp_path, PYTHONWARNINGS="ignore")
    _wait_for_compiler(process, tmp_path)
    (tmp_path / "go").touch()
    _wait_for((tmp_path / "forked").exists, process)
    process.kill()
    _wait_for(lambda: set(_programs(tmp_path).values()) <= {"python", Path(sys.executable).resolve().name[:15]})


def test_a_killed_ninja_takes_its_compilers_along(
    start: Callable[..., subprocess.Popen[str]], endless: Path, tmp_path: Path
) -> None:
    process = start(BUILD, endless)
    _wait_for_compiler(process, tmp_path)
    os.kill(next(pid for pid, name in _programs(tmp_path).items() if name == "ninja"), signal.SIGKILL)
    said, _ = process.communicate(timeout=60)
    assert "ninja was ended by SIGKILL" in said
    assert not _programs(tmp_path)
    assert not list((tmp_path / "cache").glob("staging-*"))


def test_ctrl_c_ends_everything_that_is_built_ahead_of_time(
    start: Callable[..., subprocess.Popen[str]], tmp_path: Path
) -> None:
    """The compilers hang, and further orders wait for their turn."""
    compiler = tmp_path / "slow"
    compiler.write_text('#!/bin/sh\ncase "$*" in *".o -MMD"*|*"-o 0.o"*) sleep 1000;; esac\nexec c++ "$@"\n')
    compiler.chmod(0o755)
    code = """
from anyaccel.op_builder.ahead_of_time import build_orders, named_builders, orders
for _ in build_orders(orders(named_builders(["cpu_adam", "rms_norm", "lamb", "lion", "softmax"]), ["x86-64", "armv8-a"][:1])):
    pass
"""
    process = start(code, CXX=str(compiler), ANYACCEL_BUILD_JOBS="2")
    _wait_for(lambda: list(_programs(tmp_path).values()).count("sleep") == 2, process)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in said
    assert not _programs(tmp_path)
    assert not list((tmp_path / "cache").glob("staging-*"))


def test_a_compiler_has_a_time_limit_and_is_named(
    cache: Cache,
    endless: Path,
    make_builder: Callable[..., CPUOpBuilder],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("ANYACCEL_BUILD_TIMEOUT", "5.5")
    with pytest.raises(BuildTimeoutError, match=r"still running after 5\.5 s:\n  .*answer\.cpp") as raised:
        make_builder(source=ENDLESS).build()
    assert f" process {raised.value.pid} was still running" in str(raised.value)
    assert "Fix: raise or unset ANYACCEL_BUILD_TIMEOUT" in str(raised.value)
    assert not Path(f"/proc/{raised.value.pid}").exists()
    assert "cc1plus" not in _programs(tmp_path).values()


def test_a_time_limit_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYACCEL_BUILD_TIMEOUT", "90")
    assert environment.build_timeout() == 90.0
    monkeypatch.setenv("ANYACCEL_BUILD_TIMEOUT", "")
    assert environment.build_timeout() is None
    for wrong in ("0", "-1", "nan", "inf", "soon"):
        monkeypatch.setenv("ANYACCEL_BUILD_TIMEOUT", wrong)
        with pytest.raises(ValueError, match=r"expected a number of seconds above 0. Fix: unset it for no limit"):
            environment.build_timeout()


def test_a_compiler_that_runs_long_is_named(
    cache: Cache, endless: Path, make_builder: Callable[..., CPUOpBuilder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANYACCEL_BUILD_TIMEOUT", "6")
    seen: list[Progress] = []
    with watch(seen.append), pytest.raises(BuildTimeoutError) as raised:
        make_builder(source=ENDLESS).build()
    named = next(progress.running for progress in reversed(seen) if progress.running)
    assert named.endswith(f"is process {raised.value.pid}")
    assert str(Progress("answer", "building", "", 60.0, named)) == f"building the op 'answer': 60 s ({named})"


def _failing(folder: Path, script: str) -> str:
    compiler = folder / "c++"
    compiler.write_text(f'#!/bin/sh\ncase "$*" in *"-o 0.o"*) {script};; esac\nexec c++ "$@"\n')
    compiler.chmod(0o755)
    return str(compiler)


def test_a_compiler_may_print_what_it_likes(
    cache: Cache, make_builder: Callable[..., CPUOpBuilder], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = "echo 'command: not JSON'; echo 'FAILED: nothing'; echo 'ninja: no'; echo 'an error of its own'; exit 1"
    monkeypatch.setenv("CXX", _failing(tmp_path, script))
    with pytest.raises(BuildError, match="an error of its own") as raised:
        make_builder().build()
    assert raised.value.command.startswith(str(tmp_path / "c++"))
    for line in ("command: not JSON", "FAILED: nothing", "ninja: no"):
        assert line in raised.value.log.read_text()


def test_a_compiler_that_exits_with_127_is_not_one_that_cannot_be_run(
    cache: Cache, make_builder: Callable[..., CPUOpBuilder], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CXX", _failing(tmp_path, "exit 127"))
    with pytest.raises(BuildError, match="exit status 127") as raised:
        make_builder().build()
    assert "cannot be run" not in str(raised.value)


def test_a_compiler_that_somebody_ends_is_named(
    cache: Cache, make_builder: Callable[..., CPUOpBuilder], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CXX", _failing(tmp_path, "kill -TERM $PPID; sleep 1000"))
    with pytest.raises(BuildStoppedError, match="was stopped by SIGTERM"):
        make_builder().build()


def test_a_thread_that_has_blocked_all_signals_builds(cache: Cache, make_builder: Callable[..., CPUOpBuilder]) -> None:
    """Programs inherit blocked signals, and would not notice the end of their children."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        assert make_builder().build().binary.is_file()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_a_server_that_a_compiler_leaves_behind_is_not_waited_for(
    cache: Cache, make_builder: Callable[..., CPUOpBuilder], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Like a compiler cache; it keeps the output of its starter open."""
    compiler = tmp_path / "c++"
    compiler.write_text(f"#!/bin/sh\nsetsid sleep 1000 & echo $! >> '{tmp_path}/servers'\nexec c++ \"$@\"\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    try:
        assert make_builder().build().binary.is_file()
    finally:
        for pid in map(int, (tmp_path / "servers").read_text().split()):
            os.kill(pid, signal.SIGKILL)
