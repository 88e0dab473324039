"""A tiny op for the engine's tests, and an empty cache for each test."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import platformdirs
import pytest
from filelock import FileLock

from anyaccel.op_builder import CPUOpBuilder
from anyaccel.op_builder.engine import cache as cache_module
from anyaccel.op_builder.engine import environment
from anyaccel.op_builder.engine.cache import Cache
from anyaccel.op_builder.engine.toolchains.cxx import zig_program
from anyaccel.op_builder.torch_libraries import WITHOUT_UBSAN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SOURCE = """
#include "answer.h"
extern "C" __attribute__((visibility("default"))) int answer() { return kAnswer; }
"""


ZIG_SECONDS = 480
ZIG_CACHE = Path(os.environ.get("ANYACCEL_CACHE_DIR") or platformdirs.user_cache_dir("anyaccel")) / "zig"
"""Kept between runs: what ziglang first builds for itself takes about a minute."""


@pytest.fixture(scope="session")
def warm_zig(tmp_path_factory: pytest.TempPathFactory) -> str:
    """ziglang, with its C++ library for this machine: one process of the tests builds it, and the others wait."""
    program = zig_program()
    if program is None:
        pytest.skip("no ziglang")
    ZIG_CACHE.mkdir(parents=True, exist_ok=True)
    folder = tmp_path_factory.mktemp("warm_zig")
    (folder / "empty.cpp").touch()
    environment = {**os.environ, "PATH": str(folder), "ZIG_GLOBAL_CACHE_DIR": str(ZIG_CACHE)}
    compiled = [program, "c++", "-O1", "-fPIC", "-c", folder / "empty.cpp", "-o", folder / "empty.o"]
    linked = [program, "c++", "-shared", folder / "empty.o", "-s", WITHOUT_UBSAN, "-o", folder / "empty.so"]
    with FileLock(ZIG_CACHE / "tests.lock"):
        for command in (compiled, linked):  # the library depends on the flags of linking: these are a build's
            subprocess.run(command, check=True, env=environment)
    return program


@pytest.fixture
def zig(warm_zig: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """ziglang's program, alone in PATH, by which it tells what this machine is; its own files are kept between runs."""
    monkeypatch.setenv("ZIG_GLOBAL_CACHE_DIR", str(ZIG_CACHE))
    monkeypatch.setenv("PATH", str(tmp_path))
    return warm_zig


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cache]:
    """An empty cache, which the builders of this test use."""
    folder = tmp_path / "cache"
    monkeypatch.setenv("ANYACCEL_CACHE_DIR", str(folder))
    yield cache_module.open_cache(environment.cache_dir())
    cache_module._opened.clear()


@pytest.fixture
def make_builder(tmp_path: Path) -> Callable[..., CPUOpBuilder]:
    """Return a function that makes a builder of a one-line op, in any folder."""

    def make(
        folder: Path | None = None,
        source: str = SOURCE,
        header: str = "const int kAnswer = 42;",
        ldflags: Sequence[str] = (),
    ) -> CPUOpBuilder:
        place = folder or tmp_path / "sources"
        place.mkdir(parents=True, exist_ok=True)
        (place / "answer.cpp").write_text(source)
        (place / "answer.h").write_text(header)

        class AnswerBuilder(CPUOpBuilder):
            NAME = "answer"
            SOURCES = (str(place / "answer.cpp"),)
            STABLE_ABI = True

            def include_paths(self) -> list[str]:
                return [str(place)]

            def extra_ldflags(self) -> list[str]:
                return [*super().extra_ldflags(), *ldflags]

            def functions(self) -> Any:
                return self

        return AnswerBuilder()

    return make


def stand_in_library(name: str, folder: Path, source_name: str = "stand_in_driver.c") -> None:
    """Build a stand-in, NVIDIA's driver's unless told, as a library of a name; skips where there is no C compiler."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler for the stand-in")
    source = Path(__file__).with_name(source_name)
    command = [compiler, "-shared", "-fPIC", f"-Wl,-soname,{name}", source, "-o", folder / name]
    subprocess.run(command, check=True)
