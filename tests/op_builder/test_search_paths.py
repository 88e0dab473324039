"""A file that would now be found before the one that a build used makes another build, wherever compilers and linkers look."""

from __future__ import annotations

import ctypes
import itertools
import shutil
import subprocess
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from anyaccel.op_builder import CPUOpBuilder, OpError

from ..quick_compiler import quick_compiler

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from anyaccel.op_builder.engine.cache import Cache

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")
ANSWERS = 'extern "C" __attribute__((visibility("default"))) int answer() { return %s; }\n'
CALLS = f'extern "C" int part();\n{ANSWERS % "part()"}'
_made = itertools.count()


class Case(NamedTuple):
    """A source, flags with ``{first}`` and ``{second}`` for the folders that are searched, and what appears in the first."""

    source: str
    flags: tuple[str, ...] = ()
    linking: tuple[str, ...] = ()
    put: Callable[[Path, int, list[str]], None] | None = None
    target: str = "native"


def _header(folder: Path, value: int, _: list[str]) -> None:
    (folder / "given.h").write_text(f"#define VALUE {value}\n")


def _assembly(folder: Path, value: int, _: list[str]) -> None:
    (folder / "given.inc").write_text(f"given: .long {value}\n")


def _object(folder: Path, value: int, _: list[str]) -> Path:
    (folder / "part.c").write_text(f"int part(void) {{ return {value}; }}\n")
    subprocess.run(["gcc", "-c", "-fPIC", "part.c", "-o", "part.o"], cwd=folder, check=True)
    return folder / "part.o"


def _library(folder: Path, value: int, _: list[str]) -> None:
    (folder / "libpart.a").unlink(missing_ok=True)
    subprocess.run(["ar", "rcs", folder / "libpart.a", _object(folder, value, _)], check=True)


def _script(folder: Path, value: int, _: list[str]) -> None:
    (folder / "given.ld").write_text(f"part_of_script = {value};\n")


def _versions(folder: Path, value: int, _: list[str]) -> None:
    """The second one hides the function."""
    (folder / "given.map").write_text("{ global: answer; };\n" if value == 1 else "{ local: *; };\n")


def _precompiled(folder: Path, value: int, command: list[str]) -> None:
    """The second value is a precompiled header's."""
    if value == 1:
        _header(folder, value, command)
        return
    elsewhere = folder / f"made{next(_made)}"
    elsewhere.mkdir()
    _header(elsewhere, value, command)
    made = [*command, "-x", "c++-header", str(elsewhere / "given.h"), "-o", str(folder / "given.h.gch")]
    subprocess.run(made, check=True)


SEARCHED = ("-I{first}", "-I{second}")
INCLUDED = f"#include <given.h>\n{ANSWERS % 'VALUE'}"
ASKED = f"#if __has_include(<given.h>)\n#include <given.h>\n#else\n#define VALUE 1\n#endif\n{ANSWERS % 'VALUE'}"
ASSEMBLED = (
    'asm(".section .rodata\\n.include \\"given.inc\\"\\n.text\\n");\n'
    f'extern "C" const int given __attribute__((visibility("hidden")));\n{ANSWERS % "given"}'
)
OF_SCRIPT = f'extern "C" char part_of_script[];\n{ANSWERS % "(int)(long)part_of_script"}'
CASES = {
    "a level's -isystem": Case(INCLUDED, ("-isystem", "{first}", "-isystem", "{second}"), (), _header, "x86-64"),
    "a level's -I": Case(INCLUDED, SEARCHED, (), _header, "x86-64"),
    "a level's __has_include": Case(ASKED, SEARCHED[:1], (), _header, "x86-64"),
    "a precompiled header": Case(INCLUDED, SEARCHED, (), _precompiled),
    "a precompiled header, by -include": Case(ANSWERS % "VALUE", (*SEARCHED, "-include", "given.h"), (), _precompiled),
    "a precompiled header, by -include with its path": Case(
        ANSWERS % "VALUE", ("--include={first}/given.h",), (), _precompiled
    ),
    "a precompiled header, by a macro of a flag": Case(
        f"#include GIVEN\n{ANSWERS % 'VALUE'}", (*SEARCHED, "-DGIVEN=<given.h>"), (), _precompiled
    ),
    "a level's precompiled header": Case(INCLUDED, SEARCHED, (), _precompiled, "x86-64"),
    "a precompiled header, quoted": Case(INCLUDED.replace("<given.h>", '"given.h"'), SEARCHED, (), _precompiled),
    "the assembler's -I": Case(ASSEMBLED, ("-Wa,-I,{first}", "-Wa,-I,{second}"), (), _assembly),
    "-Xassembler": Case(ASSEMBLED, ("-Xassembler", "-I{first}", "-Xassembler", "-I{second}"), (), _assembly),
    "SEARCH_DIR": Case(CALLS, (), ("{script:SEARCH_DIR({first}) SEARCH_DIR({second}) INPUT(-lpart)}",), _library),
    "a response file of the linker": Case(CALLS, (), ("-Wl,@{script:-L{first} -L{second} -lpart}",), _library),
    "-L below --sysroot": Case(CALLS, (), ("-Wl,--sysroot={root}", "-L=/first", "-L=/second", "-lpart"), _library),
    "INPUT": Case(CALLS, (), ("-L{first}", "-L{second}", "{script:INPUT(part.o)}"), _object),
    "INCLUDE": Case(OF_SCRIPT, (), ("-L{first}", "-L{second}", "{script:INCLUDE given.ld}"), _script),
    "a version script": Case(
        ANSWERS % "1", (), ("-L{first}", "-L{second}", "-Wl,--version-script=given.map"), _versions
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_file_that_appears_earlier_counts(
    cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    case = CASES[name]
    for variable, value in quick_compiler(tmp_path / "bin").items():
        monkeypatch.setenv(variable, value)
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    (tmp_path / "op.cpp").write_text(case.source)

    def filled(flag: str) -> str:
        start, _, script = flag.partition("{script:")
        if script:
            (tmp_path / "script").write_text(filled(script.removesuffix("}")))
            return f"{start}{tmp_path / 'script'}"
        return flag.replace("{first}", str(first)).replace("{second}", str(second)).replace("{root}", str(tmp_path))

    class Builder(CPUOpBuilder):
        NAME, STABLE_ABI, SOURCES = "answer", True, (str(tmp_path / "op.cpp"),)

        def cxx_args(self) -> list[str]:
            return ["-std=c++20", *map(filled, case.flags)]

        def extra_ldflags(self) -> list[str]:
            return [*map(filled, case.linking)]

    def answer() -> Any:
        library = ctypes.CDLL(str(Builder().build(case.target).binary))
        return library.answer() if hasattr(library, "answer") else None

    (compiler,) = [*Builder().recipe.compilers.values()][:1]
    assert case.put is not None
    if "path" in name:
        _header(first, 1, [])
    elif name != "a level's __has_include":
        case.put(second, 1, [*compiler._begin()])
    assert answer() == 1
    case.put(first, 2, [*compiler._begin()])
    assert answer() == (None if name == "a version script" else 2)


@pytest.mark.parametrize("how", ["a library", "an included script"])
def test_a_search_path_of_another_script_counts(cache: Cache, make_builder: Any, tmp_path: Path, how: str) -> None:
    for name, value in (("first", 0), ("second", 1)):
        (tmp_path / name).mkdir()
        if value:
            _library(tmp_path / name, value, [])
    script = f"SEARCH_DIR({tmp_path / 'first'}) SEARCH_DIR({tmp_path / 'second'})\nINPUT(-lpart)\n"
    if how == "a library":
        (tmp_path / "libscript.so").write_text(script)
        flags = [f"-L{tmp_path}", "-lscript"]
    else:
        (tmp_path / "inner.ld").write_text(script)
        (tmp_path / "outer.ld").write_text("INCLUDE inner.ld\n")
        flags = [f"-L{tmp_path}", f"{tmp_path}/outer.ld"]
    builder = make_builder(source=CALLS, ldflags=flags)
    assert ctypes.CDLL(str(builder.build().binary)).answer() == 1
    _library(tmp_path / "first", 2, [])
    builder._recipe = None
    assert ctypes.CDLL(str(builder.build().binary)).answer() == 2


def test_the_systems_own_headers_play_no_part_in_a_build_for_others(cache: Cache, make_builder: Any) -> None:
    source = f"#include <cstdlib>\n{ANSWERS % '1'}"
    folders = make_builder(source=source).build("x86-64").inputs.lookups.folders
    assert not [place for place in folders if place.startswith("/usr")]


def test_a_folder_of_precompiled_headers_is_refused(cache: Cache, make_builder: Callable[..., CPUOpBuilder]) -> None:
    """GCC takes any header in it, and does not list which."""
    builder = make_builder()
    (folder,) = builder.include_dirs()
    (folder / "answer.h.gch").mkdir()
    builder.build()
    (folder / "answer.h.gch" / "one.gch").touch()
    builder._recipe = None
    with pytest.raises(OpError, match=r"GCC may take any of the precompiled headers in .*answer\.h\.gch"):
        builder.build()
