"""An op with gradients that is compiled here: the library that records them in C++ is compiled beside it."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

from anyaccel.op_builder import BuildError
from anyaccel.op_builder.cpu.autograd import AutogradBuilder, recorder
from anyaccel.op_builder.host_library import HostLibrary
from anyaccel.op_builder.table import OPS

if TYPE_CHECKING:
    from pathlib import Path

    from anyaccel.op_builder.engine.cache import Cache

ROWS = {op.name: op for op in OPS}
SOURCE = 'extern "C" __attribute__((visibility("default"))) int answer() { return 42; }\n'


@pytest.fixture(autouse=True)
def small_sources(tmp_path: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Sources of one line for the op and for the library; the builds are real."""
    folder = tmp_path / "sources"
    folder.mkdir()
    for name in ("op", "autograd"):
        (folder / f"{name}.cpp").write_text(SOURCE)
    monkeypatch.setattr(AutogradBuilder, "SOURCES", (str(folder / "autograd.cpp"),))
    monkeypatch.delenv("DS_BUILD_AUTOGRAD", raising=False)
    return folder


def _builder(op: str, folder: Path) -> HostLibrary:
    class Small(HostLibrary):
        NAME = op
        OP = ROWS[op]
        SOURCES = (str(folder / "op.cpp"),)

    return Small()


def test_the_library_is_built_with_an_op_that_has_gradients(small_sources: Path) -> None:
    builder = _builder("rms_norm", small_sources)
    assert not AutogradBuilder().is_built()
    builder.build()
    assert builder.is_built()
    assert AutogradBuilder().is_built()


@pytest.mark.parametrize("op", ["cpu_adam", "dense"])
def test_an_op_whose_gradients_stay_in_python_is_built_alone(op: str, small_sources: Path) -> None:
    builder = _builder(op, small_sources)
    builder.build()
    assert builder.is_built()
    assert not AutogradBuilder().is_built()


def test_a_build_for_another_cpu_is_of_the_op_alone(small_sources: Path) -> None:
    _builder("rms_norm", small_sources).build("x86-64-v3" if os.uname().machine == "x86_64" else "armv8.2-a")
    assert not AutogradBuilder().is_built()


def test_the_switch_leaves_it_out(small_sources: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DS_BUILD_AUTOGRAD", "0")
    builder = _builder("rms_norm", small_sources)
    builder.build()
    assert builder.is_built()
    assert not AutogradBuilder().is_built()


def test_the_op_is_built_even_if_the_library_cannot_be(small_sources: Path, caplog: pytest.LogCaptureFixture) -> None:
    (small_sources / "autograd.cpp").write_text("#error no such torch\n")
    builder = _builder("rms_norm", small_sources)
    builder.build()
    assert builder.is_built()
    assert "gradients are recorded in Python: " in caplog.text
    assert "no such torch" in caplog.text
    assert recorder() is None


def test_ctrl_c_while_only_the_library_is_compiled_ends_its_compiler(small_sources: Path) -> None:
    os.mkfifo(small_sources / "endless.h")
    (small_sources / "autograd.cpp").write_text('#include "endless.h"\n')
    builder = _builder("rms_norm", small_sources)
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        while not builder.is_built():
            time.sleep(0.05)
        time.sleep(0.2)
        signal.pthread_kill(main, signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        builder.build()
    (small_sources / "autograd.cpp").write_text(SOURCE)
    AutogradBuilder().build()  # nobody holds its lock


def test_a_failed_op_ends_the_compiler_of_the_library(small_sources: Path) -> None:
    os.mkfifo(small_sources / "endless.h")
    (small_sources / "autograd.cpp").write_text('#include "endless.h"\n')
    (small_sources / "op.cpp").write_text("#error no such op\n")
    with pytest.raises(BuildError, match="no such op"):
        _builder("rms_norm", small_sources).build()
    (small_sources / "autograd.cpp").write_text(SOURCE)
    AutogradBuilder().build()  # nobody holds its lock
