"""A tiny op for the engine's tests, and an empty cache for each test."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from anyaccel.op_builder import CPUOpBuilder
from anyaccel.op_builder.engine import cache as cache_module
from anyaccel.op_builder.engine import environment
from anyaccel.op_builder.engine.cache import Cache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

SOURCE = """
#include "answer.h"
extern "C" __attribute__((visibility("default"))) int answer() { return kAnswer; }
"""


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
