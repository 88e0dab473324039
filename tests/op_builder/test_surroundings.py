"""Unusual environments: no home, relative paths, Python inside another program, a file system without locks."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from anyaccel.op_builder import CacheError, SettingError, ToolchainError
from anyaccel.op_builder.engine import cache as cache_module
from anyaccel.op_builder.engine import environment
from anyaccel.op_builder.engine.cache import Cache, open_cache
from anyaccel.op_builder.engine.interpreter import find_python
from anyaccel.op_builder.engine.lock import build_lock, try_lock
from anyaccel.op_builder.engine.toolchains.cxx import choose_cxx

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from anyaccel.op_builder import CPUOpBuilder

LOAD = textwrap.dedent("""
    import sys
    from anyaccel.op_builder import CPUOpBuilder
    class Builder(CPUOpBuilder):
        NAME, STABLE_ABI, SOURCES = "answer", True, (sys.argv[1],)
    print(Builder().build().binary, Builder().build().binary)
""")


def is_locked(file: Path) -> bool:
    """Return whether another process holds a lock."""
    with try_lock(file) as is_held:
        return not is_held


@pytest.fixture(autouse=True)
def forget_caches() -> Iterator[None]:
    yield
    cache_module._opened.clear()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    file = tmp_path / "answer.cpp"
    file.write_text('extern "C" int answer() { return 42; }\n')
    return file


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"HOME": ""}, "HOME is ''"),
        ({"HOME": "relative"}, "HOME is 'relative'"),
        ({"XDG_CACHE_HOME": "relative"}, "XDG_CACHE_HOME is 'relative'"),
    ],
)
def test_a_home_that_is_none_is_replaced_by_a_temporary_cache(
    tmp_path: Path,
    source: Path,
    run_with_torch: Callable[..., subprocess.CompletedProcess[str]],
    given: dict[str, str],
    reason: str,
) -> None:
    none = {"ANYACCEL_CACHE_DIR": "", "XDG_CACHE_HOME": "", "TMPDIR": str(tmp_path)}
    done = run_with_torch(LOAD, str(source), **{**none, **given})
    assert done.stderr.count(f"{reason}, which is not an absolute path; building in {tmp_path}/anyaccel-") == 1
    assert done.stderr.count("Fix: set ANYACCEL_CACHE_DIR.") == 1
    assert sorted(file.name for file in tmp_path.iterdir()) == ["answer.cpp"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become a user that the system does not know")
def test_a_user_without_a_home_and_without_a_name() -> None:
    """Like a container that is started with --user 12345.

    The folder is not below pytest's, which others cannot read: if those were changed, a build in one of them would begin again.
    """
    code = """
import os, platformdirs
from anyaccel.op_builder.engine.cache import Cache, open_cache
from anyaccel.op_builder import CacheError
platformdirs.user_cache_dir()  # imports what this user may be unable to read
os.setuid(12345)
os.environ.pop("HOME")
print(open_cache().root)
try:
    Cache.default_root()
except CacheError as error:
    print(error)
"""
    without = {
        name: value for name, value in os.environ.items() if name not in ("ANYACCEL_CACHE_DIR", "XDG_CACHE_HOME")
    }
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o1777)
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**without, "TMPDIR": place},
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert place in done.stdout
    assert "HOME is not set, and the system has no home directory for this user" in done.stdout
    assert done.stderr.count("for this process only") == 1


@pytest.fixture
def wrapper(tmp_path: Path) -> Path:
    folder = tmp_path / "tools"
    folder.mkdir()
    file = folder / "mycxx"
    file.write_text('#!/bin/sh\nexec c++ "$@"\n')
    file.chmod(0o755)
    return file


@pytest.mark.parametrize("given", ["tools/mycxx", "./tools/mycxx", "env ./tools/mycxx"])
def test_a_relative_compiler_is_found_from_the_working_directory(
    tmp_path: Path,
    wrapper: Path,
    make_builder: Callable[..., CPUOpBuilder],
    monkeypatch: pytest.MonkeyPatch,
    given: str,
) -> None:
    monkeypatch.setenv("ANYACCEL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CXX", given)
    monkeypatch.chdir(tmp_path)
    builder = make_builder()
    assert str(wrapper) in builder.recipe.linker
    assert builder.build().binary.is_file()


def test_a_relative_path_entry_is_found_from_the_working_directory(
    tmp_path: Path, wrapper: Path, make_builder: Callable[..., CPUOpBuilder], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By us, and by a wrapper that searches for the compiler itself."""
    monkeypatch.setenv("ANYACCEL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", f"tools{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    assert choose_cxx("mycxx", environment.search_path(), tmp_path).command == (str(wrapper),)
    monkeypatch.setenv("CXX", "env mycxx")
    assert make_builder().build().binary.is_file()


def test_a_working_directory_that_is_gone_does_no_harm(
    tmp_path: Path, run_with_torch: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    code = """
import os, tempfile
from anyaccel.op_builder import SettingError
from anyaccel.op_builder.engine import environment
os.chdir(tempfile.mkdtemp())
os.rmdir(os.getcwd())
assert environment.search_path() == "/usr/bin"
assert environment.cxx() == "./wrapper"
try:
    environment.cache_dir()
except SettingError as error:
    assert "Fix: set it to an absolute path" in str(error), error
else:
    raise SystemExit("not refused")
"""
    run_with_torch(code, PATH=f"tools{os.pathsep}/usr/bin", CXX="./wrapper", ANYACCEL_CACHE_DIR="cache")


def test_relative_directories_stay_where_they_were_first_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANYACCEL_CACHE_DIR", f"./cache-of-{tmp_path.name}")
    monkeypatch.setenv("CUDA_HOME", f"cuda-of-{tmp_path.name}")
    monkeypatch.chdir(tmp_path)
    before = environment.cache_dir(), environment.cuda_home()
    assert before == (tmp_path / f"cache-of-{tmp_path.name}", tmp_path / f"cuda-of-{tmp_path.name}")
    monkeypatch.chdir("/")
    assert (environment.cache_dir(), environment.cuda_home()) == before


def test_a_home_that_nobody_knows_is_a_setting_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_HOME", "~nobody-of-this-name/cuda")
    with pytest.raises(SettingError, match="reading CUDA_HOME failed: got '~nobody"):
        environment.cuda_home()


@pytest.mark.parametrize("executable", ["None", "''", "'/usr/sbin/uwsgi'", "'/bin/sh'"])
def test_python_inside_another_program_builds(
    tmp_path: Path, source: Path, run_with_torch: Callable[..., subprocess.CompletedProcess[str]], executable: str
) -> None:
    code = f"import sys; sys.executable = {executable}; sys._base_executable = None\n{LOAD}"
    assert "answer-" in run_with_torch(code, str(source), ANYACCEL_CACHE_DIR=str(tmp_path / "cache")).stdout


def test_no_python_at_all_is_an_error_with_a_fix(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sysconfig

    for name in ("prefix", "base_prefix"):
        monkeypatch.setattr(sys, name, str(tmp_path))
    monkeypatch.setattr(sys, "executable", "")
    monkeypatch.setattr(sys, "_base_executable", "")
    monkeypatch.setattr(sysconfig, "get_config_var", lambda _: str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        ToolchainError, match=r"looking for Python failed: sys.executable is ''.*Fix: put python3 into PATH"
    ):
        find_python()


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_locks_is_replaced_for_this_process(
    tmp_path: Path,
    make_builder: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    number: int,
) -> None:
    wanted = tmp_path / "cache"
    monkeypatch.setenv("ANYACCEL_CACHE_DIR", str(wanted))
    real = fcntl.flock

    def flock(file: int, operation: int) -> None:
        if os.readlink(f"/proc/self/fd/{file}").startswith(str(wanted)):
            raise OSError(number, os.strerror(number))
        real(file, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    binary = make_builder().build().binary
    assert not binary.is_relative_to(wanted)
    assert make_builder().build().binary == binary
    assert caplog.text.count(f"its file system has no locks: {os.strerror(number)}") == 1
    assert not is_locked(next(wanted.glob("*.lock"), wanted / "answer.lock"))


def test_no_locks_anywhere_is_one_clear_error(
    tmp_path: Path, make_builder: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(file: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setenv("ANYACCEL_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(CacheError, match=r" needs locks\. Fix: set ANYACCEL_CACHE_DIR to a disk with locks"):
        make_builder().build()


def test_a_killed_builder_with_a_forked_child_blocks_nobody(tmp_path: Path) -> None:
    """The child, forked while a thread holds the lock, keeps running."""
    code = f"""
import os, pathlib, threading, time
from anyaccel.op_builder.engine.lock import build_lock
folder = pathlib.Path({str(tmp_path)!r})
is_held = threading.Event()
def hold():
    with build_lock(folder / "op.lock", "op"):
        is_held.set()
        time.sleep(1000)
threading.Thread(target=hold, daemon=True).start()
is_held.wait()
child = os.fork()
if child == 0:
    (folder / "child").write_text(str(os.getpid()))
time.sleep(1000)
"""
    holder = subprocess.Popen([sys.executable, "-W", "ignore", "-c", code])
    child = tmp_path / "child"
    while not child.exists() or not child.read_text():
        assert holder.poll() is None
        time.sleep(0.05)
    assert is_locked(tmp_path / "op.lock")
    holder.kill()
    holder.wait()
    try:
        assert not is_locked(tmp_path / "op.lock")
        with build_lock(tmp_path / "op.lock", "op"):
            pass
    finally:
        os.kill(int(child.read_text()), signal.SIGKILL)


def test_a_lock_that_a_child_was_forked_with_is_still_held_by_its_parent(tmp_path: Path) -> None:
    is_held, may_go = threading.Event(), threading.Event()

    def hold() -> None:
        with build_lock(tmp_path / "op.lock", "op"):
            is_held.set()
            may_go.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    is_held.wait()
    code = "import sys, pathlib; from anyaccel.op_builder.engine.lock import *\n"
    code += "with try_lock(pathlib.Path(sys.argv[1])) as is_held: print(not is_held)"
    shown = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "op.lock")], capture_output=True, text=True, check=True
    )
    may_go.set()
    holder.join()
    assert shown.stdout == "True\n"
    assert not is_locked(tmp_path / "op.lock")


def test_the_users_own_cache_is_still_the_default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Cache.default_root() == tmp_path / "anyaccel"
    assert open_cache().root == tmp_path / "anyaccel"


def test_what_changes_intels_opencl_is_part_of_its_version(monkeypatch: pytest.MonkeyPatch) -> None:
    assert environment.opencl_variables() == ""
    monkeypatch.setenv("SYCL_PROGRAM_APPEND_COMPILE_OPTIONS", "-cl-fast-relaxed-math")
    monkeypatch.setenv("CL_CONFIG_CPU_VECTORIZER_MODE", "1")
    said = "CL_CONFIG_CPU_VECTORIZER_MODE=1 SYCL_PROGRAM_APPEND_COMPILE_OPTIONS=-cl-fast-relaxed-math"
    assert environment.opencl_variables() == said
