"""Looking for compilers: accepted, or rejected with the reason, and run only once."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from anyaccel.op_builder import ToolchainError
from anyaccel.op_builder.engine.toolchains import nvcc, ptxas
from anyaccel.op_builder.engine.toolchains.cxx import choose_cxx, probe_cxx

from .conftest import ZIG_SECONDS

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

BUILDS = 'for last; do :; done; case "$*" in *-shared*) : > "$last"; exit;; esac'


def _compiler(folder: Path, name: str, body: str, builds: str = BUILDS) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/sh\n{builds}\n{body}\n")
    file.chmod(0o755)
    return file


def test_the_first_that_runs_is_chosen_and_each_rejection_has_a_reason(tmp_path: Path) -> None:
    _compiler(tmp_path / "bin", "c++", "echo broken >&2; exit 3")
    _compiler(tmp_path / "bin", "clang++", "echo fake clang 99")
    probes = {probe.name: probe for probe in probe_cxx(None, str(tmp_path / "bin"), tmp_path)}
    assert "exit status 3: broken" in probes["c++"].detail
    assert probes["g++"].detail == "not found, or not executable"
    chosen = choose_cxx(None, str(tmp_path / "bin"), tmp_path)
    assert chosen.version == "fake clang 99"


def test_the_date_of_a_build_asks_no_compiler_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told = tmp_path / "told"
    _compiler(tmp_path / "bin", "c++", f"echo fake 1.0; echo run >> '{told}'")
    runs = ""
    for date in ("1", "2", "3"):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", date)
        assert choose_cxx(None, str(tmp_path / "bin"), tmp_path).version == "fake 1.0"
        runs = runs or told.read_text()
    assert told.read_text() == runs


def test_a_compiler_that_says_nothing_is_rejected(tmp_path: Path) -> None:
    _compiler(tmp_path / "bin", "c++", "exit 0")
    (probe,) = probe_cxx(str(tmp_path / "bin" / "c++"), "", tmp_path)
    assert probe.tool is None
    assert "prints no version" in probe.detail


@pytest.mark.parametrize(
    ("builds", "reason"),
    [
        (
            'case "$*" in *-shared*) echo "fatal error: cstddef: No such file" >&2; exit 1;; esac',
            "error: cstddef: No such",
        ),
        ('case "$*" in *-shared*) exit 0;; esac', "it produced no file"),
        ('case "$*" in *-shared*) kill -9 $$;; esac', "exit status -9"),
    ],
    ids=["no headers", "no output", "killed"],
)
def test_a_compiler_that_has_a_version_and_builds_nothing_is_rejected(tmp_path: Path, builds: str, reason: str) -> None:
    _compiler(tmp_path / "bin", "c++", "echo half a compiler 1.0", builds)
    _compiler(tmp_path / "bin", "clang++", "echo fake clang 99")
    probes = {probe.name: probe for probe in probe_cxx(None, str(tmp_path / "bin"), tmp_path)}
    assert reason in probes["c++"].detail
    assert probes["c++"].fix == "pip install 'anyaccel[cxx]'"
    assert choose_cxx(None, str(tmp_path / "bin"), tmp_path).version == "fake clang 99"


def test_torchs_headers_are_not_given_to_ziglang(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match=r"ziglang: torch's C\+\+ API needs.*Fix: apt-get install g\+\+"):
        choose_cxx(None, str(tmp_path), tmp_path, for_torch_headers=True)


def test_a_compiler_is_asked_once_and_again_when_it_is_replaced(tmp_path: Path) -> None:
    asked = tmp_path / "asked"
    body = f"case \"$*\" in *--version*) echo x >> '{asked}' ;; esac; echo version"
    compiler = _compiler(tmp_path / "bin", "c++", f"{body} 1")
    for _ in range(3):
        assert choose_cxx(None, str(compiler.parent), tmp_path).version == "version 1"
    assert asked.read_text() == "x\n"
    _compiler(tmp_path / "bin", "c++", f"{body} 10")
    assert choose_cxx(None, str(compiler.parent), tmp_path).version == "version 10"
    os.utime(compiler, ns=(0, 1))  # the content is the same, and only that counts
    assert choose_cxx(None, str(compiler.parent), tmp_path).version == "version 10"
    assert asked.read_text() == "x\n" * 2
    _compiler(tmp_path / "bin", "c++", f"{body} 20")  # the same size, with a clock that stepped back
    os.utime(compiler, ns=(0, 1))
    assert choose_cxx(None, str(compiler.parent), tmp_path).version == "version 20"


def test_cxx_may_be_a_path_with_spaces_or_a_command_with_arguments(tmp_path: Path) -> None:
    spaced = _compiler(tmp_path / "a b", "c++", "echo spaced")
    assert choose_cxx(str(spaced), "", tmp_path).command == (str(spaced),)
    wrapper = _compiler(tmp_path / "bin", "ccache", 'echo "wrapped $1"')
    chosen = choose_cxx("ccache g++", str(wrapper.parent), tmp_path)
    assert chosen.command == (str(wrapper), "g++")
    assert chosen.version == "wrapped g++"


def test_both_programs_of_a_wrapped_compiler_are_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrapper = _compiler(tmp_path / "bin", "ccache", 'exec "$@"', builds="")
    _compiler(tmp_path / "bin", "mycc", "echo real 1.0")
    monkeypatch.setenv("PATH", str(wrapper.parent), prepend=os.pathsep)
    assert choose_cxx("ccache mycc", os.environ["PATH"], tmp_path).version == "real 1.0"
    _compiler(tmp_path / "bin", "mycc", "echo real 2.0.0")
    assert choose_cxx("ccache mycc", os.environ["PATH"], tmp_path).version == "real 2.0.0"


def test_a_c_compiler_is_no_cxx_compiler(tmp_path: Path) -> None:
    (probe,) = probe_cxx("gcc", os.environ["PATH"], tmp_path)
    assert probe.tool is None
    assert "undefined reference" in probe.detail or "error" in probe.detail or probe.detail.startswith("not found")
    with pytest.raises(ToolchainError, match=r"Fix: unset CXX, or set it to"):
        choose_cxx("gcc", os.environ["PATH"], tmp_path)


def test_cxx_with_an_open_quotation_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="CXX='x: not found"):
        choose_cxx("'x", "", tmp_path)


def test_cxx_that_fails_is_not_replaced_by_another(tmp_path: Path) -> None:
    with pytest.raises(ToolchainError, match="CXX=/nowhere/c\\+\\+: not found"):
        choose_cxx("/nowhere/c++", os.environ["PATH"], tmp_path)


def test_memory_that_cannot_be_written_or_read_costs_only_time(tmp_path: Path) -> None:
    compiler = _compiler(tmp_path / "bin", "c++", "echo version")
    assert choose_cxx(None, str(compiler.parent), tmp_path / "absent").version == "version"
    (tmp_path / "toolchains.json").write_text("[]")
    assert choose_cxx(None, str(compiler.parent), tmp_path).version == "version"


@pytest.mark.timeout(ZIG_SECONDS)
def test_pips_ziglang_builds_an_op_without_a_system_compiler(
    cache: Any, make_builder: Callable[..., Any], zig: str
) -> None:
    import ctypes

    builder = make_builder()
    assert "zig" in builder.recipe.linker[0]
    assert ctypes.CDLL(str(builder.build().binary)).answer() == 42


@pytest.mark.timeout(ZIG_SECONDS)
def test_an_op_of_ziglangs_refuses_as_any_other(
    tmp_path: Path, run_with_torch: Callable[..., subprocess.CompletedProcess[str]], zig: str
) -> None:
    """It has its own C++ library, which does not recognise the other's exceptions."""
    code = """
import torch, anyaccel
op = anyaccel.load_op("cpu_adam")
one = torch.ones(3)
for grad in (torch.ones(4), torch.ones(3, dtype=torch.float64)):
    try:
        op.adam_step([one], [grad], [one], [one], [torch.ones(())], lr=0.1)
    except RuntimeError as error:
        assert "adam failed: got grads[0]" in str(error), error
    else:
        raise SystemExit("not refused")
op.create_adam(0)
try:
    op.adam_update(0, 0, 0.1, 0.9, 0.9, 0.1, 0.0, True, one, one, one, one)
except RuntimeError as error:
    assert "got step 0" in str(error), error
"""
    cache = str(tmp_path / "cache")
    run_with_torch(code, PATH=str(tmp_path), ANYACCEL_CACHE_DIR=cache)


def test_ptxas_in_tritons_wheel_is_the_last_choice_and_triton_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def place(file: Path, version: str) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release 12.9, V{version}'\n")
        file.chmod(0o755)

    (tmp_path / "site/triton").mkdir(parents=True)
    (tmp_path / "site/triton/__init__.py").write_text("raise AssertionError('imported')")
    monkeypatch.delitem(sys.modules, "triton", raising=False)
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setattr(ptxas, "_TOOLKIT", tmp_path / "no toolkit")
    monkeypatch.setattr(nvcc, "pip_home", lambda: None)
    with pytest.raises(ToolchainError, match=r"ptxas, was not found. Fix: pip install 'anyaccel\[nvcc\]'"):
        ptxas.choose_ptxas(None, "")
    tritons = tmp_path / "site/triton/backends/nvidia/bin"
    for file, version in (
        (tritons / "ptxas", "12.8.93"),
        (tritons / "ptxas-blackwell", "12.9.86"),
        (tmp_path / "in path/ptxas", "13.0.88"),
        (tmp_path / "home/bin/ptxas", "13.1.80"),
    ):
        place(file, version)
        home = tmp_path / "home" if version == "13.1.80" else None
        assert ptxas.choose_ptxas(home, str(tmp_path / "in path")) == ptxas.Ptxas(version, file)
