"""Errors name the real cause: a full disk is not a missing compiler, and a mount option is not an error in the sources."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anyaccel.op_builder.engine import scratch
from anyaccel.op_builder.engine.toolchains.cxx import choose_cxx

if TYPE_CHECKING:
    pass

BUILD = textwrap.dedent("""
    import sys
    from anyaccel.op_builder import CPUOpBuilder, OpError
    class Builder(CPUOpBuilder):
        NAME, STABLE_ABI, SOURCES = "answer", True, (sys.argv[1],)
    try:
        print(Builder().build().binary)
    except OpError as error:
        print(type(error).__name__, error, file=sys.stderr)
""")


def _run(code: str, *arguments: str | Path, mounted: str = "", **env: str) -> str:
    """Run Python code; ``mounted`` is a shell command that mounts something for it alone."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    if mounted:
        unshare = ["unshare", "--mount"] if os.getuid() == 0 else ["unshare", "--mount", "--map-root-user"]
        if (
            shutil.which("unshare") is None
            or subprocess.run([*unshare, "sh", "-c", mounted], check=False).returncode != 0
        ):
            pytest.skip("this machine lets nobody mount a tmpfs")
        command = [*unshare, "sh", "-c", f'{mounted} && exec "$@"', "sh", *command]
    done = subprocess.run(
        command,
        env={**os.environ, "DS_ACCELERATOR": "cpu", **env},
        capture_output=True,
        check=False,
    )
    said = done.stdout.decode() + done.stderr.decode()
    assert done.returncode == 0, said
    return said


def _source(folder: Path, text: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "answer.cpp"
    file.write_text(text, encoding="utf-8")
    return file


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_an_error_with_other_letters_in_any_locale(tmp_path: Path, locale: str) -> None:
    source = _source(tmp_path / "ünïcödé", '#error "größer als 文字"\n')
    said = _run(BUILD, source, ANYACCEL_CACHE_DIR=str(tmp_path / "cache"), LC_ALL=locale, PYTHONUTF8="0")
    assert "BuildError building the op 'answer' failed" in said
    assert "#error" in said
    (log,) = (tmp_path / "cache").glob("*.log")
    assert "größer als 文字" in log.read_text(encoding="utf-8")


@pytest.mark.parametrize("options", ["size=1m", "ro"])
def test_a_temporary_directory_without_room_is_not_needed(tmp_path: Path, options: str) -> None:
    place = tmp_path / "tmp"
    place.mkdir()
    mounted = f"mount -t tmpfs -o {options} none '{place}'; head -c 2000000 /dev/zero > '{place}/fill'; true"
    source = _source(tmp_path, 'extern "C" int answer() { return 42; }\n')
    said = _run(BUILD, source, mounted=mounted, ANYACCEL_CACHE_DIR=str(tmp_path / "cache"), TMPDIR=str(place))
    assert "answer-" in said


def test_a_missing_temporary_directory_is_not_needed(tmp_path: Path) -> None:
    source = _source(tmp_path, 'extern "C" int answer() { return 42; }\n')
    said = _run(BUILD, source, ANYACCEL_CACHE_DIR=str(tmp_path / "cache"), TMPDIR=str(tmp_path / "absent"))
    assert "answer-" in said


def test_no_room_for_temporary_files_is_no_missing_compiler(tmp_path: Path) -> None:
    place = tmp_path / "tmp"
    place.mkdir()
    code = f"""
import tempfile
from pathlib import Path
from anyaccel.op_builder import OpError
from anyaccel.op_builder.engine.toolchains.cxx import choose_cxx, probe_cxx
tempfile.tempdir = {str(place)!r}
place = Path({str(place)!r})
try:
    choose_cxx(None, {os.environ["PATH"]!r}, place)
except OpError as error:
    print(type(error).__name__, error)
for probe in probe_cxx(None, {os.environ["PATH"]!r}, place):
    print(probe.name, "|", probe.detail, "|", probe.fix)
"""
    mounted = f"mount -t tmpfs -o size=1m none '{place}'; head -c 2000000 /dev/zero > '{place}/fill'; true"
    said = _run(code, mounted=mounted, TMPDIR=str(place))
    assert "TemporaryDirectoryError trying out" in said
    assert f"{place}: No space left on device" in said
    assert "Fix: free some space there, or set TMPDIR" in said
    assert "temporary files | trying out" in said


def test_a_compiler_that_has_no_room_is_tried_elsewhere(tmp_path: Path) -> None:
    """The compiler reports it, and the system has another folder to try it in."""
    compiler = tmp_path / "c++"
    compiler.write_text(
        f'#!/bin/sh\ncase "$PWD $*" in *version*) echo fake 1.0;; "{tmp_path}/cache"*) '
        'echo "cc1plus: fatal error: error writing to /x/y.s: No space left on device" >&2; exit 1;; '
        '*) for last; do :; done; : > "$last";; esac\n'
    )
    compiler.chmod(0o755)
    (tmp_path / "cache").mkdir()
    assert choose_cxx(str(compiler), "", tmp_path / "cache").version == "fake 1.0"
    assert not list((tmp_path / "cache").glob("staging-*"))


def test_the_words_in_an_error_directive_say_nothing_about_the_disk() -> None:
    assert scratch.lack_of_room("a.cpp:1:2: error: #error No space left on device") is None
    found = scratch.lack_of_room("cc1plus: error writing to /t/x.s: Disk quota exceeded\n")
    assert found is not None
    assert found.strerror == "Disk quota exceeded"


NOEXEC = textwrap.dedent("""
    import sys
    from anyaccel.op_builder import CPUOpBuilder, OpLoadError, loading
    class Builder(CPUOpBuilder):
        NAME, STABLE_ABI, SOURCES = "answer", sys.argv[2] != "module", (sys.argv[1],)
        def _load_library(self, binary):
            return loading.load_c_library("answer", binary) if sys.argv[2] == "C" else super()._load_library(binary)
    try:
        Builder().load()
    except OpLoadError as error:
        print(error)
""")


@pytest.mark.parametrize("kind", ["torch library", "module", "C"])
def test_a_cache_that_is_mounted_noexec_is_named(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "noexec"
    place.mkdir(mode=0o700)
    source = _source(tmp_path, 'extern "C" int PyInit_answer() { return 42; }\n')
    mounted = f"mount -t tmpfs -o noexec,mode=0700 none '{place}'"
    said = _run(NOEXEC, source, kind, mounted=mounted, ANYACCEL_CACHE_DIR=str(place / "cache"))
    assert "mounted noexec" in said
    assert str(place / "cache") in said
    assert "Fix: set ANYACCEL_CACHE_DIR to a directory on another file system." in said
