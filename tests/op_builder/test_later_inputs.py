"""What a build did not find and what it did not list: files that appear later, and inputs of other platforms."""

from __future__ import annotations

import ctypes
import itertools
import os
import shutil
import stat
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from anyaccel.op_builder import CPUOpBuilder, OpError, OpLoadError
from anyaccel.op_builder.engine.targets import Platform
from anyaccel.op_builder.engine.toolchains.cxx import CxxCompiler, zig_program
from anyaccel.op_builder.torch_libraries import unknown_compiler

from .conftest import ZIG_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from anyaccel.op_builder.engine.cache import Cache

READS = """
#include "given.h"
extern "C" __attribute__((visibility("default"))) int answer() { return VALUE; }
"""
CALLS = """
extern "C" int part();
extern "C" __attribute__((visibility("default"))) int answer() { return part(); }
"""
DEFINED = """extern "C" __attribute__((visibility("default"))) int answer() { return VALUE; }"""
Make = Callable[..., CPUOpBuilder] if TYPE_CHECKING else Any


def _answer(builder: CPUOpBuilder, target: str = "native") -> int:
    """Build as a new process does, and return what the op answers."""
    builder._recipe = None
    return int(ctypes.CDLL(str(builder.build(target).binary)).answer())


def _header(folder: Path, value: int) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "given.h").write_text(f"#define VALUE {value}\n")


@pytest.fixture
def with_flags(make_builder: Make, monkeypatch: pytest.MonkeyPatch) -> Callable[..., CPUOpBuilder]:
    """Return a function that makes a builder of a source with some flags."""

    def make(source: str, *flags: str) -> CPUOpBuilder:
        builder = make_builder(source=source)
        monkeypatch.setattr(type(builder), "cxx_args", lambda self: ["-O1", *flags])
        return builder

    return make


@pytest.mark.parametrize("variable", ["CPATH", "CPLUS_INCLUDE_PATH"])
def test_a_header_directory_that_appears_counts(
    cache: Cache, with_flags: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    _header(tmp_path / "second", 1)
    monkeypatch.setenv(variable, f"{tmp_path / 'first'}{os.pathsep}{tmp_path / 'second'}")
    builder = with_flags(READS)
    assert _answer(builder) == 1
    _header(tmp_path / "first", 2)
    assert _answer(builder) == 2


def test_a_header_directory_of_a_flag_that_appears_counts(cache: Cache, with_flags: Any, tmp_path: Path) -> None:
    _header(tmp_path / "second", 1)
    builder = with_flags(READS, "-isystem", str(tmp_path / "first"), "-isystem", str(tmp_path / "second"))
    assert _answer(builder) == 1
    _header(tmp_path / "first", 2)
    assert _answer(builder) == 2


@pytest.mark.parametrize("name", ["ld", "real-ld", "collect-ld"])
def test_a_linker_that_appears_where_the_compiler_looks_first_counts(
    cache: Cache, with_flags: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    if shutil.which("g++") is None:
        pytest.skip("no g++")
    monkeypatch.setenv("CXX", "g++")
    monkeypatch.setenv("COMPILER_PATH", str(tmp_path))
    builder = with_flags(DEFINED, "-DVALUE=1")
    assert _answer(builder) == 1
    linker = tmp_path / name
    linker.write_text(f'#!/bin/sh\ntouch "{tmp_path}/used"\nexec ld "$@"\n')
    linker.chmod(linker.stat().st_mode | stat.S_IXUSR)
    assert _answer(builder) == 1
    assert (tmp_path / "used").exists()


def _compiles_with(folder: Path, value: int) -> None:
    """Put a compiler proper into a folder that defines a value."""
    compiler = shutil.which("g++") or ""
    if not compiler:
        pytest.skip("no g++")
    asked = [compiler, "-print-prog-name=cc1plus"]
    real = subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip()
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "cc1plus"
    script.write_text(f'#!/bin/sh\nexec "{real}" -DVALUE={value} "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)


@pytest.mark.parametrize(
    "how",
    [
        *("COMPILER_PATH", "-B", "-B a prefix", "--prefix=", "--prefix= a prefix"),
        *("COMPILER_PATH of its machine", "-B of its version", "--prefix= of its machine"),
    ],
)
@pytest.mark.parametrize("is_there", [True, False])
def test_a_program_that_appears_where_the_compiler_looks_first_counts(
    cache: Cache, with_flags: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, is_there: bool
) -> None:
    place = tmp_path / "programs"
    if is_there:
        place.mkdir()
    monkeypatch.setenv("CXX", "g++")
    source = f"#ifndef VALUE\n#define VALUE 1\n#endif\n{DEFINED}\n"
    flag, _, spelling = how.partition(" ")
    if flag.startswith("-"):
        builder = with_flags(source, f"{flag}{tmp_path}/tools-" if spelling == "a prefix" else f"{flag}{place}")
    else:
        monkeypatch.setenv("COMPILER_PATH", str(place))
        builder = with_flags(source)
    assert _answer(builder) == 1
    version = Path(subprocess.check_output(["g++", "-print-libgcc-file-name"], text=True)).parent
    named = {"of its machine": version.parent.name, "of its version": f"{version.parent.name}/{version.name}"}
    _compiles_with(place / named.get(spelling, ""), 2)
    if spelling == "a prefix":
        (place / "cc1plus").rename(tmp_path / "tools-cc1plus")
    assert _answer(builder) == 2


@pytest.mark.parametrize(
    "flag", ["-L{}", "-L {}", "-Wl,-L,{}", "-Wl,-L{}", "-Wl,--library-path={}", "-Wl,--library-path,{}"]
)
def test_a_library_in_a_directory_of_a_flag_that_appears_counts(
    cache: Cache, make_builder: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flag: str
) -> None:
    _archive(tmp_path / "second", 1)
    builder = make_builder(source=CALLS)
    flags = [word for place in ("first", "second") for word in flag.format(tmp_path / place).split()]
    monkeypatch.setattr(type(builder), "extra_ldflags", lambda self: [*flags, "-lpart"])
    assert _answer(builder) == 1
    _archive(tmp_path / "first", 2)
    assert _answer(builder) == 2


def _archive(folder: Path, value: int) -> None:
    """Make libpart.a, whose ``part()`` returns a value."""
    folder.mkdir()
    (folder / "part.cpp").write_text(f'extern "C" int part() {{ return {value}; }}\n')
    subprocess.run(["c++", "-fPIC", "-c", folder / "part.cpp", "-o", folder / "part.o"], check=True)
    subprocess.run(["ar", "rcs", folder / "libpart.a", folder / "part.o"], check=True)


def test_a_file_beside_a_link_to_the_tools_own_counts(cache: Cache, with_flags: Any, tmp_path: Path) -> None:
    """A folder of links, as Nix and Spack make them, also has files of its own."""
    import torch

    own = Path(torch.__file__).parent / "include" / "torch" / "headeronly" / "macros" / "Export.h"
    view = tmp_path / "view"
    for number in range(4):
        _header(view, number)
        (view / "Export.h").unlink(missing_ok=True)
        (view / "Export.h").symlink_to(own)
        assert _answer(with_flags(f'#include "Export.h"\n{READS}', "-isystem", str(view))) == number


@pytest.mark.parametrize("flag", ["--write-user-dependencies", "--write-dependencies", "--user-dependencies", "--dep"])
def test_long_flags_that_change_the_list_of_headers_are_refused(cache: Cache, with_flags: Any, flag: str) -> None:
    with pytest.raises(OpError, match=f"got the flag '{flag}', which changes the list of headers"):
        with_flags(DEFINED, "-DVALUE=1", flag).build()


@pytest.mark.timeout(ZIG_SECONDS)
@pytest.mark.parametrize("directive", [".include ", ".include\\t", ".INCLUDE", ".Include  "])
def test_an_assembly_file_that_zig_does_not_list_counts(
    cache: Cache, with_flags: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, zig: str, directive: str
) -> None:
    monkeypatch.setenv("CXX", f"'{zig}' c++")
    body = tmp_path / "body.s"
    asm = f'asm(".text\\n.globl answer\\nanswer:\\n{directive}\\"{body}\\"\\nret\\n");\n'
    for number in (1, 2):
        body.write_text(f"mov ${number}, %eax\n")
        assert _answer(with_flags(asm)) == number


@pytest.mark.parametrize("compiler", ["g++", "zig"])
def test_a_c_source_is_cpp_for_every_compiler(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, compiler: str
) -> None:
    if compiler == "zig":
        monkeypatch.setenv("CXX", f"'{request.getfixturevalue('zig')}' c++")
    (tmp_path / "cc.c").write_text(
        '#ifdef __cplusplus\nextern "C" __attribute__((visibility("default"))) int answer() { return 7; }\n#endif\n'
    )

    class InC(CPUOpBuilder):
        NAME, STABLE_ABI, SOURCES = "in_c", True, (str(tmp_path / "cc.c"),)

    assert _answer(InC()) == 7


# Builds for other machines


def test_the_users_flags_belong_to_a_build_for_a_cpu_level(
    cache: Cache, with_flags: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = with_flags(DEFINED)
    for value in (1, 2):
        monkeypatch.setenv("CXX", f"g++ -DVALUE={value}")
        assert _answer(builder, "x86-64") == value
        builder._recipe = None
        found = builder.find_built()
        assert found is not None
        assert int(ctypes.CDLL(str(found.binary)).answer()) == value


@pytest.mark.skipif(zig_program() is None, reason="no ziglang")
def test_each_platform_has_a_build_of_its_own(cache: Cache, with_flags: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    builder = with_flags(DEFINED, "-DVALUE=1")
    names = {builder.recipe_for("x86-64").fingerprint()}
    for platform in ("manylinux_2_17_x86_64", "manylinux_2_28_x86_64"):
        monkeypatch.setenv("ANYACCEL_PLATFORM", platform)
        names.add(builder.recipe_for("x86-64").fingerprint())
    assert len(names) == 3
    assert len({builder.recipe_for("x86-64").key()}) == 1


def test_a_build_for_other_machines_is_found_by_those_that_it_serves(
    cache: Cache, with_flags: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launcher = tmp_path / "launch"  # also in ziglang's place
    launcher.write_text('#!/bin/sh\n[ "$1" != -target ] || shift 2\n[ "$1" != g++ ] || shift\nexec g++ "$@"\n')
    launcher.chmod(0o755)
    builder = with_flags(DEFINED, "-DVALUE=1")
    monkeypatch.setattr(
        type(builder), "cxx_for", lambda self, platform: CxxCompiler((str(launcher), "-target", platform.triple), "1")
    )
    for name, value in {
        "ANYACCEL_PLATFORM": f"manylinux_2_17_{os.uname().machine}",
        "CXX": f"{launcher} g++",
    }.items():
        with monkeypatch.context() as context:
            context.setenv(name, value)
            builder._recipe = None
            entry = builder.build("x86-64")
            assert builder.find_built() is not None
        for looking, date in itertools.product(("g++", "/nowhere/g++"), (None, "5")):  # the date decides nothing
            with monkeypatch.context() as context:
                context.setenv("CXX", looking)
                if date is not None:
                    context.setenv("SOURCE_DATE_EPOCH", date)
                builder._recipe = None
                assert builder.find_built() is not None
        shutil.rmtree(entry.binary.parent)
        monkeypatch.setenv("CXX", "g++")
        builder._recipe = None
        assert builder.find_built() is None
    machine = os.uname().machine
    assert Platform(machine, "2.5").serves_here
    assert not Platform(machine, "2.99").serves_here
    assert not Platform("s390x", "2.5").serves_here


def test_a_response_file_of_cxx_decides_a_build_for_other_machines(
    cache: Cache, with_flags: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "flags").write_text("-DVALUE=2")
    builder = with_flags(f"#ifndef VALUE\n#define VALUE 1\n#endif\n{DEFINED}\n")
    monkeypatch.setenv("CXX", f"g++ @{tmp_path / 'flags'}")
    assert _answer(builder, "x86-64") == 2
    monkeypatch.setenv("CXX", "g++")
    builder._recipe = None
    assert builder.find_built() is None
    assert _answer(builder, "x86-64") == 1


def test_what_follows_zigs_program_is_nothing_of_the_users() -> None:
    """A build for a CPU level that ziglang has made is found by a process that starts no compiler."""
    for given, flags in (
        ("g++", ()),
        ("'/a b/zig' c++", ()),
        ("/x/zig c++ -O1", ("-O1",)),
        ("ccache g++", ()),
        ("ccache g++ -DA -DB", ("-DA", "-DB")),
        ("env LC_ALL=C g++ -DA", ("-DA",)),
        ("nice -n 5 x86_64-linux-gnu-g++-12 -DA", ("-DA",)),
        ("timeout 60 clang++ @flags", ("@flags",)),
        ("env LD_LIBRARY_PATH=/opt/gcc-12 A=/x/g++ g++ -DA", ("-DA",)),
        ("ccache nice -n 5 icpx -DA -B/opt/gcc", ("-DA", "-B/opt/gcc")),
        ("env -i sh -DA", ("-DA",)),  # any program may be a compiler
        ("perf stat g++ -DA", ("-DA",)),  # stat is a program, too
        ("python3 /bin/ls g++ -DA", ("-DA",)),
        ("sudo -g users g++ -DA", ("-DA",)),
        ("ccache /bin/ls -x c++ -DA", ("-x", "c++", "-DA")),
        ("ccache /bin/ls -include gcc -DA", ("-include", "gcc", "-DA")),
        ("setarch x86_64 g++ -DA", ("-DA",)),  # x86_64 is a program
        ("setarch x86_64 -R g++ -DA", ("-DA",)),
        ("setsid -w g++ -DA", ("-DA",)),
        ("flock -w 5 /tmp/file g++ -DA", ("-DA",)),
        ("sudo -u me g++ -DA", ("-DA",)),
        ("ccache nvcc -ccbin g++ -DA", ("-ccbin", "g++", "-DA")),
        ("env python3 -m ziglang c++ -DA", ("-DA",)),
        ("/x/mine -DA -B/opt/gcc", ("-DA", "-B/opt/gcc")),
        ("mpicxx -include cc -DA", ("-include", "cc", "-DA")),
        ("hipcc -x c++ -DA", ("-x", "c++", "-DA")),
        ("g++ @flags -DA", ("@flags", "-DA")),
        ("g++ /x/more.o -DA", ("/x/more.o", "-DA")),
        (f"g++ -DA={'x' * 300}", (f"-DA={'x' * 300}",)),
        ("'", ()),
    ):
        assert unknown_compiler(given).command == ("c++", *flags)
    assert unknown_compiler(None).command == ("c++",)


def test_a_builder_of_the_same_class_with_other_flags_or_folders_is_refused(
    cache: Cache, make_builder: Make, tmp_path: Path
) -> None:
    """torch cannot unload the first one's library."""

    class Wide(type(make_builder(source=DEFINED))):  # type: ignore[misc]
        def __init__(self, value: int) -> None:
            self.value = value
            super().__init__()

        def cxx_args(self) -> list[str]:
            return [f"-DVALUE={self.value}"]

    class Elsewhere(type(make_builder(source=DEFINED))):  # type: ignore[misc]
        NAME = "elsewhere"

        def __init__(self, value: int) -> None:
            self.root = tmp_path / str(value)
            self.root.mkdir(exist_ok=True)
            (self.root / "own.cpp").write_text(f"#define VALUE {value}\n{DEFINED}")
            super().__init__()

        def sources(self) -> list[str]:
            return ["own.cpp"]

        def source_root(self) -> Path:
            return self.root

    for kind in (Wide, Elsewhere):
        first = kind(1)
        assert first.load() is first
        assert kind(1).load() is first
        with pytest.raises(OpLoadError, match="its sources or flags differ from those of"):
            kind(2).load()


def test_flags_for_cuda_are_asked_for_only_if_there_is_a_source_for_it(cache: Cache, make_builder: Make) -> None:
    class AsksTheDevice(type(make_builder(source=DEFINED))):  # type: ignore[misc]
        NAME = "asks_the_device"

        def cxx_args(self) -> list[str]:
            return ["-DVALUE=1"]

        def nvcc_args(self) -> list[str]:
            raise AssertionError

    builder = AsksTheDevice()
    assert builder.load() is builder
