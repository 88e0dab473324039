"""The life cycle: built once, found again, rebuilt when necessary, and never visible half-built."""

from __future__ import annotations

import ctypes
import json
import logging
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from anyaccel.op_builder import BuildError, OpError, ToolchainError
from anyaccel.op_builder.engine import cache as cache_module

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyaccel.op_builder.engine.cache import Cache


def _answer(binary: Path) -> int:
    return int(ctypes.CDLL(str(binary)).answer())


def test_builds_once_and_finds_it_again(
    cache: Cache, make_builder: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    assert not make_builder().is_built()
    entry = make_builder().build()
    assert _answer(entry.binary) == 42
    assert make_builder().is_built()
    assert make_builder().build() == entry
    assert sum("building the op 'answer'" in record.getMessage() for record in caplog.records) == 1
    assert not list(cache.root.glob("staging-*"))


def test_a_warm_lookup_starts_no_process(
    cache: Cache, make_builder: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = make_builder().build()
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a process was started"))
    assert make_builder().build() == entry


def test_a_changed_header_is_seen(cache: Cache, make_builder: Callable[..., Any]) -> None:
    first = make_builder().build()
    second = make_builder(header="const int kAnswer = 43;").build()
    assert (_answer(first.binary), _answer(second.binary)) == (42, 43)


def test_a_touched_header_is_not_rebuilt(cache: Cache, make_builder: Callable[..., Any], tmp_path: Path) -> None:
    first = make_builder().build()
    os.utime(tmp_path / "sources" / "answer.h", (1, 1))
    assert make_builder().build() == first


def test_the_same_sources_elsewhere_are_the_same_op(
    cache: Cache, make_builder: Callable[..., Any], tmp_path: Path
) -> None:
    assert make_builder(tmp_path / "here").build() == make_builder(tmp_path / "there").build()


@pytest.mark.parametrize(
    "name", ["with space", "quote'and\"double", "semi;colon", "dollar$PATH", "ünïcödé-文字", "co:lon"]
)
def test_paths_with_odd_characters(
    cache: Cache, make_builder: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("ANYACCEL_CACHE_DIR", str(tmp_path / "cache" / name))
    assert _answer(make_builder(tmp_path / name).build().binary) == 42


def test_a_syntax_error_names_file_and_line_and_the_log(cache: Cache, make_builder: Callable[..., Any]) -> None:
    builder = make_builder(source='#include "answer.h"\nint answer( { return kAnswer; }\n')
    with pytest.raises(BuildError, match=r"answer\.cpp:2:\d+: error: expected") as raised:
        builder.build()
    error = raised.value
    assert error.op == "answer"
    assert "answer.cpp" in error.command
    assert error.log.parent == cache.root
    assert "answer.cpp:2" in error.log.read_text()
    assert str(error.log) in str(error)


def test_an_undefined_symbol_is_a_build_error(cache: Cache, make_builder: Callable[..., Any]) -> None:
    builder = make_builder(source='extern "C" int missing(); extern "C" int answer() { return missing(); }')
    with pytest.raises(BuildError, match="missing"):
        builder.build()


def test_a_compiler_that_cuts_its_output_short_is_found_out(
    cache: Cache, make_builder: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    compiler = tmp_path / "c++"
    compiler.write_text(
        '#!/bin/sh\nc++ "$@" || exit\ncase "$*" in *-shared*) for last; do :; done; truncate -s 4096 "$last";; esac\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    with pytest.raises(OpError, match=r"got 4096 of \d+ bytes"):
        make_builder().build()
    assert not make_builder().is_built()


def test_a_failed_build_is_tried_again(cache: Cache, make_builder: Callable[..., Any]) -> None:
    with pytest.raises(BuildError):
        make_builder(header="").build()
    assert _answer(make_builder().build().binary) == 42


@pytest.mark.parametrize("damage", ["truncated", "flipped", "no metadata", "no binary", "garbled metadata"])
def test_a_damaged_entry_is_reported_and_rebuilt(
    cache: Cache, make_builder: Callable[..., Any], caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    entry = make_builder().build()
    metadata = entry.binary.with_name("metadata.jsonl")
    content = bytearray(entry.binary.read_bytes())
    if damage == "truncated":
        entry.binary.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        content[len(content) // 2] ^= 1
        entry.binary.write_bytes(content)
    elif damage == "garbled metadata":
        metadata.write_text("{")
    else:
        (metadata if damage == "no metadata" else entry.binary).unlink()
    again = make_builder().build()
    assert _answer(again.binary) == 42
    assert json.loads(metadata.read_text().splitlines()[0])["sha256"] == again.sha256
    if damage in ("truncated", "flipped", "garbled metadata"):
        assert "building it again" in caplog.text


def test_a_directory_that_cannot_be_written_is_replaced_for_this_process(
    tmp_path: Path, make_builder: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ANYACCEL_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert _answer(make_builder().build().binary) == 42
    assert make_builder().is_built()
    assert caplog.text.count("Fix: set ANYACCEL_CACHE_DIR.") == 1
    cache_module._opened.clear()


def test_no_compiler_lists_what_was_looked_for(
    cache: Cache, make_builder: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    builder = make_builder()
    assert not builder.is_compatible()
    with pytest.raises(ToolchainError, match=r"CXX=no-such-compiler: not found.*Fix: unset CXX"):
        builder.build()


BUILD = """
import logging, sys
logging.basicConfig(level=logging.INFO)
from anyaccel.op_builder import CPUOpBuilder
class Builder(CPUOpBuilder):
    NAME, STABLE_ABI, SOURCES = "answer", True, (sys.argv[1],)
Builder().build()
"""


def test_a_waiter_says_for_whom(tmp_path: Path) -> None:
    compiler = tmp_path / "slow c++"
    told = tmp_path / "told"  # the first build takes until the second process waits for it, or for a minute
    until = f"for i in $(seq 600); do [ -e '{told}' ] && break; sleep 0.1; done"
    compiler.write_text(f'#!/bin/sh\ncase "$*" in *answer.cpp*) {until} ;; esac\nexec c++ "$@"\n')
    compiler.chmod(0o755)
    source = tmp_path / "answer.cpp"
    source.write_text('extern "C" int answer() { return 42; }\n')
    environment = {
        **os.environ, "ANYACCEL_CACHE_DIR": str(tmp_path / "cache"), "DS_ACCELERATOR": "cpu", "CXX": f"'{compiler}'",
    }  # fmt: skip
    command = [sys.executable, "-c", BUILD, str(source)]
    files = [tmp_path / "first", tmp_path / "second"]
    processes = []
    for file in files:
        with file.open("w") as errors:
            processes.append(subprocess.Popen(command, env=environment, stderr=errors))
    while any(process.poll() is None for process in processes):
        if any("waiting for process" in file.read_text() for file in files):
            told.touch()
        time.sleep(0.05)
    logs = [file.read_text() for file in files]
    assert [process.returncode for process in processes] == [0, 0], logs
    waiting = [line for log in logs for line in log.splitlines() if "waiting for process" in line]
    assert len(waiting) == 1
    assert any(str(process.pid) in waiting[0] for process in processes)
