"""Inputs that a maintainer of another build system tried: each gives the right binary, or a clear error."""

from __future__ import annotations

import errno
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from anyaccel.op_builder import CPUOpBuilder, OpError
from anyaccel.op_builder.engine import directory
from anyaccel.op_builder.engine.cache import open_cache
from anyaccel.op_builder.engine.directory import is_trusted_like
from anyaccel.op_builder.engine.errors import CacheError
from anyaccel.op_builder.engine.failure import Failure
from anyaccel.op_builder.engine.scratch import lack_of_room
from anyaccel.op_builder.engine.trace import Trace
from anyaccel.op_builder.loading import importable

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyaccel.op_builder.engine.cache import Cache


def test_a_file_that_becomes_a_source_is_compiled(
    cache: Cache, make_builder: Callable[..., CPUOpBuilder], tmp_path: Path
) -> None:
    """It was known before: a comment of the first source includes it."""
    builder = make_builder(source='/* #include "more.cpp" */ extern "C" int answer() { return 1; }')
    more = tmp_path / "sources" / "more.cpp"
    more.write_text('extern "C" __attribute__((visibility("default"))) int more() { return 2; }')
    first = builder.build()
    both = make_builder(source='/* #include "more.cpp" */ extern "C" int answer() { return 1; }')
    type(both).SOURCES = (*type(both).SOURCES, str(more))
    assert both.build().sha256 != first.sha256
    assert builder.build().sha256 == first.sha256


def test_times_in_the_future_do_not_stop_a_build(
    cache: Cache, make_builder: Callable[..., CPUOpBuilder], tmp_path: Path
) -> None:
    builder = make_builder()
    tomorrow = time.time() + 86_400
    for file in (tmp_path / "sources").iterdir():
        os.utime(file, (tomorrow, tomorrow))
    os.utime(tmp_path / "sources", (tomorrow, tomorrow))
    first = builder.build()
    assert make_builder(header="const int kAnswer = 43;").build().sha256 != first.sha256


def test_a_file_too_large_to_read_whole_is_compared(
    cache: Cache, make_builder: Callable[..., CPUOpBuilder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory, "_MOST_BYTES", 8192)  # 1 GiB for the cache's own files
    weights = tmp_path / "weights.bin"
    weights.write_bytes(b"A" * 100_000)
    embeds = f'asm(".section .rodata\\n.global kept\\nkept: .incbin \\"{weights}\\",0,1\\n.previous\\n");'
    source = embeds + 'extern "C" int answer() { return 1; }'
    first = make_builder(source=source).build()
    weights.write_bytes(b"B" * 100_000)
    assert make_builder(source=source).build().sha256 != first.sha256


def test_a_path_with_a_newline_is_refused_by_name(
    cache: Cache, make_builder: Callable[..., CPUOpBuilder], tmp_path: Path
) -> None:
    with pytest.raises(OpError, match=r"with a newline.*Fix: rename that folder or file"):
        make_builder(tmp_path / "two\nlines").build()


def test_compilers_speak_english(
    cache: Cache, make_builder: Callable[..., CPUOpBuilder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "told"
    compiler = tmp_path / "c++"
    compiler.write_text(f'#!/bin/sh\necho "$LC_ALL $LANGUAGE" >> "{told}"\nexec c++ "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("LANGUAGE", "de")
    make_builder().build()
    assert set(told.read_text().splitlines()) == {"C.UTF-8 "}


def test_the_first_errors_are_shown_without_colours(tmp_path: Path) -> None:
    said = "".join(
        f"\x1b[01m\x1b[Ka.cpp:{n}:\x1b[m\x1b[K \x1b[01;31m\x1b[Kerror: \x1b[m\x1b[Kno {n}\n" for n in range(9)
    )
    error = Failure(("c++",), said, {"exit": 1}).error("op", tmp_path, tmp_path / "log")
    assert "a.cpp:0: error: no 0" in str(error)
    assert "no 5" not in str(error)
    assert "\x1b" not in str(error)


WARNED = "".join(
    f"op.cpp:{n}:18: warning: unused variable 'error'\n    {n} | void f{n}(){{int error;}}\n" for n in range(9)
)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        (f"{WARNED}op.cpp:6:9: error: 'x' was not declared\nop.cpp:6:9: note: error of",
         "op.cpp:6:9: error: 'x' was not declared"),
        ("In file included from /error/op.cpp:1:\n/error/op.cpp:4:1: warning: w\n"
         "/error/op.cpp:5:1: fatal error: a.h: No such file",
         "/error/op.cpp:5:1: fatal error: a.h: No such file"),
        ("collect2: fatal error: cannot find 'ld'\ncompilation terminated.", "collect2: fatal error: cannot find 'ld'"),
        ("collect2: fatal error: ld terminated with signal 9 [Killed]\ncompilation terminated.",
         "collect2: fatal error: ld terminated with signal 9 [Killed]"),
        ("/usr/bin/ld: op.o: in function `f':\nop.cpp:(.text+0x5): undefined reference to `g()'\n"
         "collect2: error: ld returned 1 exit status", "op.cpp:(.text+0x5): undefined reference to `g()'"),
        ("ptxas fatal   : Unresolved extern function 'f'", "ptxas fatal   : Unresolved extern function 'f'"),
        ("ptxas a.ptx, line 5; error   : Unknown symbol 'x'", "ptxas a.ptx, line 5; error   : Unknown symbol 'x'"),
        ("{standard input}: Assembler messages:\n{standard input}:3: Error: no such instruction: `foo'",
         "{standard input}:3: Error: no such instruction: `foo'"),
        ("error #123: x\nop.cu(3): error #20-D: y", "error #123: x\nop.cu(3): error #20-D: y"),
        ("op.cpp:1:1: error: static assertion failed: note: use float\nop.cpp:9:1: warning: error: w",
         "op.cpp:1:1: error: static assertion failed: note: use float"),
        ("ld.lld: error: unable to find library -lx", "ld.lld: error: unable to find library -lx"),
        ("/usr/bin/ld: unrecognized option '--nope'", "/usr/bin/ld: unrecognized option '--nope'"),
    ],
)  # fmt: skip
def test_the_lines_of_a_failure_are_its_errors(tmp_path: Path, said: str, shown: str) -> None:
    error = Failure(("c++",), said, {"exit": 1}).error("op", tmp_path, tmp_path / "log")
    lines = str(error).split("failed:\n", 1)[1].split("\nThe command was", 1)[0]
    assert [line.strip() for line in lines.splitlines()] == shown.splitlines()


@pytest.mark.parametrize(
    ("said", "number"),
    [
        ("a.cpp:1: fatal error: error writing to 0.o: No space left on device", errno.ENOSPC),
        ("{standard input}: Fatal error: can't fill 256 bytes in section .data of 0.o: 'No space left on device'", errno.ENOSPC),
        ("as: 0.o: Disk quota exceeded.", errno.EDQUOT),
        ("c++: fatal error: File size limit exceeded", errno.EFBIG),
        ("collect2: fatal error: ld terminated with signal 25 [File size limit exceeded], core dumped", errno.EFBIG),
        ("a.cpp:1:2: error: #error No space left on device", 0),
        ("a.cpp:1:2: error: 'No space left on device' was not declared", 0),
    ],
)  # fmt: skip
def test_a_full_disk_is_recognised_whoever_says_it(said: str, number: int) -> None:
    found = lack_of_room(f"cc1plus: warning\n{said}\n")
    assert (found.errno if found else 0) == number


def test_a_compiler_that_wrote_too_much_is_a_full_disk(tmp_path: Path) -> None:
    error = Failure(("c++",), "", {"signal": int(signal.SIGXFSZ)}).error("op", tmp_path, tmp_path / "log")
    assert isinstance(error, OSError)
    assert error.errno == errno.EFBIG


def test_a_time_limit_of_a_month_is_one(
    cache: Cache, make_builder: Callable[..., CPUOpBuilder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANYACCEL_BUILD_TIMEOUT", "3000000")
    assert make_builder().build().binary.is_file()


def test_what_others_can_have_put_there_is_not_trusted(tmp_path: Path) -> None:
    known, closed, open_to_all, sticky = (tmp_path / name for name in ("known", "closed", "open", "sticky"))
    for folder, mode in ((known, 0o755), (closed, 0o755), (open_to_all, 0o777), (sticky, 0o1777)):
        (folder / "include").mkdir(parents=True)
        folder.chmod(mode)
    assert is_trusted_like(str(closed / "include"), str(known))
    assert is_trusted_like(str(sticky / "include"), str(known))
    assert not is_trusted_like(str(open_to_all / "include"), str(known))
    assert is_trusted_like(str(open_to_all / "include"), str(open_to_all))  # who is no more open than what is known
    assert is_trusted_like(str(sticky / "include"), str(tmp_path / "gone"))
    assert not is_trusted_like(str(open_to_all / "include"), str(tmp_path / "gone"))
    if os.getuid() == 0:
        os.chown(sticky / "include", 65534, 65534)
        assert not is_trusted_like(str(sticky / "include"), str(known))


def test_an_include_directory_of_everybodys_is_left_out(
    cache: Cache, make_builder: Callable[..., CPUOpBuilder], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "scratch" / "alice").mkdir(parents=True)
    (tmp_path / "scratch" / "include").mkdir()
    (tmp_path / "scratch").chmod(0o777)
    builder: Any = make_builder(tmp_path / "scratch" / "alice")
    type(builder).source_root = lambda self: tmp_path / "scratch" / "alice"
    type(builder).include_paths = lambda self: ["include"]
    assert builder.include_dirs() == []
    assert "include directory" in caplog.text
    (tmp_path / "scratch").chmod(0o755)
    assert builder.include_dirs() == [tmp_path / "scratch" / "include"]


def test_a_folder_without_code_is_no_prebuilt_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mypkg_of_sources" / "ops" / "halve").mkdir(parents=True)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert importable("mypkg_of_sources.ops.halve", Trace("the op")) is None


@pytest.mark.parametrize("method", ["cxx_args", "extra_ldflags", "include_paths", "sources"])
def test_paths_are_texts_and_sets_are_refused(
    cache: Cache, make_builder: Callable[..., CPUOpBuilder], tmp_path: Path, method: str
) -> None:
    builder: Any = make_builder()
    (tmp_path / "folder").mkdir()
    kept = [str(one) for one in getattr(builder, method)()]
    further = {"cxx_args": ["-I", tmp_path], "extra_ldflags": ["-L", tmp_path], "include_paths": [tmp_path]}.get(
        method, []
    )
    setattr(type(builder), method, lambda self: [Path(one) if method == "sources" else one for one in kept] + further)
    assert builder.build().binary.is_file()
    again: Any = make_builder()
    setattr(type(again), method, lambda self: set(kept) | {"-O1"})
    with pytest.raises(OpError, match="expected a list of texts"):
        again.build()


def test_nobody_is_told_to_close_the_directory_of_all_users(tmp_path: Path) -> None:
    shared = tmp_path / "tmp"
    shared.mkdir()
    shared.chmod(0o1777)
    with pytest.raises(CacheError) as raised:
        open_cache(shared)
    assert "chmod" not in str(raised.value)
    assert "set ANYACCEL_CACHE_DIR" in str(raised.value)
