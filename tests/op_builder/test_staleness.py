"""A build is used only for the inputs it was made from; a change of any input is noticed."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from anyaccel.op_builder import BuildError, CPUOpBuilder, OpError, OpLoadError
from anyaccel.op_builder.engine.cache import open_cache
from anyaccel.op_builder.engine.ninja_file import ninja

from .test_build import _answer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from anyaccel.op_builder.engine.cache import Cache

SHOWN = 'extern "C" __attribute__((visibility("default")))'
BY_MACRO = f'#define WHICH "answer.h"\n#include WHICH\n{SHOWN} int answer() {{ return kAnswer; }}'
BY_ARGUMENT = f"#define WHICH(x) #x\n#include WHICH(answer.h)\n{SHOWN} int answer() {{ return kAnswer; }}"
FROM_OUTSIDE = f"#include <outside.h>\n{SHOWN} int answer() {{ return kOutside; }}"


def test_a_source_edited_while_it_compiles_is_compiled_again(
    cache: Cache, make_builder: Callable[..., CPUOpBuilder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header = tmp_path / "sources" / "answer.h"
    compiler = tmp_path / "c++"
    edit = f"[ -f {tmp_path}/edited ] || {{ echo 'const int kAnswer = 44;' > '{header}'; touch {tmp_path}/edited; }}"
    real = shutil.which("c++")
    compiler.write_text(f'#!/bin/sh\n{real} "$@" || exit\ncase "$*" in *"-o 0.o"*) {edit} ;; esac\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    builder = make_builder()
    assert _answer(builder.build().binary) == 44
    header.write_text("const int kAnswer = 42;")
    assert not make_builder().is_built()
    assert len(cache.entries()) == 1


def test_two_checkouts_with_a_header_named_by_a_macro_are_two_ops(
    cache: Cache, make_builder: Callable[..., CPUOpBuilder], tmp_path: Path
) -> None:
    one = make_builder(tmp_path / "one", BY_MACRO, "const int kAnswer = 1;").build()
    two = make_builder(tmp_path / "two", BY_MACRO, "const int kAnswer = 2;").build()
    assert (_answer(one.binary), _answer(two.binary)) == (1, 2)


def test_a_build_for_other_machines_is_checked_as_closely(
    cache: Cache, make_builder: Callable[..., CPUOpBuilder]
) -> None:
    from anyaccel.op_builder.engine.targets import host_cpu_targets

    make_builder(source=BY_MACRO).build(host_cpu_targets()[-1])
    assert make_builder(source=BY_MACRO).is_built()
    assert not make_builder(source=BY_MACRO, header="const int kAnswer = 43;").is_built()


@pytest.mark.parametrize("variable", ["CPATH", "CPLUS_INCLUDE_PATH"])
def test_directories_that_only_the_compiler_is_told_of_count(
    cache: Cache,
    make_builder: Callable[..., CPUOpBuilder],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    variable: str,
) -> None:
    answers = []
    for number in (1, 2):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "outside.h").write_text(f"const int kOutside = {number};")
        monkeypatch.setenv(variable, str(folder))
        answers.append(_answer(make_builder(source=FROM_OUTSIDE).build().binary))
    assert answers == [1, 2]


def test_a_library_that_is_linked_counts(
    cache: Cache, make_builder: Callable[..., CPUOpBuilder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builds = []
    for number in (1, 2):
        (tmp_path / "part.cpp").write_text(f'extern "C" int part() {{ return {number}; }}')
        subprocess.run(["c++", "-fPIC", "-c", tmp_path / "part.cpp", "-o", tmp_path / "part.o"], check=True)
        subprocess.run(["ar", "rcs", tmp_path / "libpart.a", tmp_path / "part.o"], check=True)
        builder = make_builder(source='extern "C" int part(); extern "C" int answer() { return part(); }')
        monkeypatch.setattr(builder, "libraries_args", lambda: ["part"])
        monkeypatch.setattr(builder, "extra_ldflags", lambda: [f"-L{tmp_path}"])
        builds.append(builder.build().sha256)
    assert builds[0] != builds[1]


def test_a_rebuild_has_a_path_of_its_own(cache: Cache, make_builder: Callable[..., CPUOpBuilder]) -> None:
    """A process loads the same path only once."""
    first = make_builder(source=BY_ARGUMENT).build()
    second = make_builder(source=BY_ARGUMENT, header="const int kAnswer = 43;").build()
    assert second.binary.parent == first.binary.parent
    assert second.binary != first.binary
    assert not first.binary.exists()


def test_of_two_sources_that_fail_one_is_shown_with_its_command(
    cache: Cache, make_builder: Callable[..., CPUOpBuilder], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANYACCEL_BUILD_JOBS", "2")
    builder = make_builder()
    for name in ("a", "b"):
        (tmp_path / f"{name}.cpp").write_text(f"int x = wrong_in_{name};")
    monkeypatch.setattr(builder, "sources", lambda: [str(tmp_path / "a.cpp"), str(tmp_path / "b.cpp")])
    with pytest.raises(BuildError) as raised:
        builder.build()
    (name,) = (name for name in ("a", "b") if f"{name}.cpp" in raised.value.command)
    assert all(f"{name}.cpp" in error for error in raised.value.errors)


def test_what_is_no_full_disk_is_not_called_one(
    cache: Cache, make_builder: Callable[..., CPUOpBuilder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ninja, "BIN_DIR", "/nowhere")
    with pytest.raises(OpError, match=r"building the op 'answer' failed: .*No such file.*/nowhere/ninja"):
        make_builder().build()
    assert open_cache(cache.root) is cache


CELL = r"""
import sys
import torch
from anyaccel.op_builder import CPUOpBuilder

def cell(divisor, name="HalveBuilder"):
    with open("halve.cpp", "w") as file:
        file.write('''
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
using torch::stable::Tensor;
Tensor halve(Tensor input) {
  Tensor output = torch::stable::empty_like(input);
  static_cast<float*>(output.data_ptr())[0] = static_cast<const float*>(input.data_ptr())[0] / %d;
  return output;
}
STABLE_TORCH_LIBRARY(halve, library) { library.def("halve(Tensor input) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(halve, CPU, library) { library.impl("halve", TORCH_BOX(&halve)); }
''' % divisor)
    sources = {"__module__": "notebook", "sources": lambda self: ["halve.cpp"]}
    return type(name, (CPUOpBuilder,), {**sources, "NAME": "halve", "STABLE_ABI": True})

assert cell(2)().load().halve(torch.ones(1)).item() == 0.5
"""


def test_a_notebooks_cell_that_runs_again_is_the_same_op(
    tmp_path: Path, run_with_torch: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    run_with_torch(
        CELL + "first = cell(2)().load()\nassert cell(2)().load() is first", ANYACCEL_CACHE_DIR=str(tmp_path / "cache")
    )


def test_a_notebooks_cell_that_was_edited_says_that_torch_keeps_its_ops(
    tmp_path: Path, run_with_torch: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    code = """
from anyaccel.op_builder import OpLoadError
try:
    cell(4)().load()
except OpLoadError as error:
    assert "its sources or flags differ" in str(error) and "Fix: restart the process" in str(error), error
else:
    raise SystemExit("not refused")
"""
    run_with_torch(CELL + code, ANYACCEL_CACHE_DIR=str(tmp_path / "cache"))


def test_two_ops_that_claim_one_namespace_are_refused_before_torch_ends_the_process(
    tmp_path: Path, run_with_torch: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    code = """
from anyaccel.op_builder import OpLoadError
copied = type("Copied", (cell(2),), {"__module__": "notebook", "NAME": "another"})()
try:
    copied.load()
except OpLoadError as error:
    assert "notebook.HalveBuilder has already defined the namespace 'halve'" in str(error), error
else:
    raise SystemExit("not refused")
"""
    run_with_torch(CELL + code, ANYACCEL_CACHE_DIR=str(tmp_path / "cache"))


def test_a_library_that_registers_nothing_under_its_name_is_told(
    tmp_path: Path, run_with_torch: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    code = """
from anyaccel.op_builder import OpLoadError
other = type("Other", (cell(2),), {"__module__": "notebook", "NAME": "other"})()
try:
    other.load()
except OpLoadError as error:
    assert "registers no torch ops in the namespace 'other'" in str(error) and "STABLE_TORCH_LIBRARY(other," in str(error), error
else:
    raise SystemExit("not refused")
"""
    code = CELL.replace("assert cell(2)().load()", "0 and cell(2)().load()") + code
    run_with_torch(code, ANYACCEL_CACHE_DIR=str(tmp_path / "cache"))


def test_two_builders_of_one_name_are_refused_before_torch_ends_the_process(
    tmp_path: Path, run_with_torch: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    code = """
from anyaccel.op_builder import OpLoadError
other = cell(4, "AnotherBuilder")()
assert not other.is_compatible()
try:
    other.load()
except OpLoadError as error:
    assert "notebook.AnotherBuilder is a second" in str(error), error
else:
    raise SystemExit("not refused")
"""
    run_with_torch(CELL + code, ANYACCEL_CACHE_DIR=str(tmp_path / "cache"))


@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("broken", "raise OSError('libfoo.so: cannot open')", "OSError: libfoo.so: cannot open"),
        ("ending", "raise SystemExit(3)", "SystemExit: 3"),
    ],
)
def test_a_package_that_fails_to_import_is_built_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str, code: str, said: str
) -> None:
    from anyaccel.op_builder import loading
    from anyaccel.op_builder.engine.trace import Trace

    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert loading.importable(f"{name}.op", Trace("the op 'op'")) is None
    assert said in caplog.text


def test_python_modules_need_pythons_headers(
    cache: Cache, make_builder: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    from anyaccel.op_builder import ToolchainError, torch_libraries

    builder = make_builder()
    type(builder).STABLE_ABI = False
    monkeypatch.setattr(torch_libraries, "missing_python_headers", lambda: "Python.h does not exist")
    assert not builder.is_compatible()
    with pytest.raises(ToolchainError, match=r"failed: Python\.h does not exist\. Fix: apt-get install python3-dev"):
        builder.build()


def test_a_setting_that_means_nothing_is_told_by_is_compatible_too(
    cache: Cache, make_builder: Callable[..., CPUOpBuilder], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANYACCEL_BUILD_JOBS", "many")
    assert not make_builder().is_compatible()


MODULE = """
#include <Python.h>
#define JOINED(name) PyInit_##name
#define INIT(name) JOINED(name)
static PyObject* f(PyObject*, PyObject* x) { return PyLong_FromLong(PyLong_AsLong(x) * FACTOR); }
static PyMethodDef functions[] = {{"f", f, METH_O, nullptr}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "m", nullptr, -1, functions, nullptr, nullptr, nullptr, nullptr};
PyMODINIT_FUNC INIT(TORCH_EXTENSION_NAME)() { BODY; return PyModule_Create(&module); }
"""
"""Without pybind11, whose headers take 10 seconds."""


@pytest.fixture
def make_module(cache: Cache, tmp_path: Path) -> Callable[..., Any]:
    """Return a function that makes a builder of a small Python module."""

    def make(folder: str, factor: int, body: str = "", flags: Sequence[str] = (), name: str = "module_op") -> Any:
        (tmp_path / folder).mkdir(exist_ok=True)
        source = tmp_path / folder / "module.cpp"
        source.write_text(MODULE.replace("FACTOR", str(factor)).replace("BODY", body))

        class Builder(CPUOpBuilder):
            NAME = name
            SOURCES = (str(source),)

            def extra_ldflags(self) -> list[str]:
                return list(flags)

        return Builder()

    return make


def test_an_edited_module_is_loaded_again_and_a_namesake_is_another(make_module: Callable[..., Any]) -> None:
    first = make_module("one", 2).load()
    edited = make_module("one", 3).load()
    namesake = make_module("two", 1000).load()
    assert [module.f(1) for module in (first, edited, namesake)] == [2, 3, 1000]


def test_a_second_module_that_defines_the_same_torch_ops_is_refused_before_torch_ends_the_process(
    make_module: Callable[..., Any],
) -> None:
    claim = "\n#if 0\nTORCH_LIBRARY(claiming, m) {}\n#endif\n"  # not compiled: torch's headers would take 20 s
    assert make_module("one", 2, claim, name="claiming").load().f(1) == 2
    with pytest.raises(OpLoadError, match=r"its sources or flags differ.*restart the process"):
        make_module("one", 3, claim, name="claiming").load()
    with pytest.raises(OpLoadError, match=r"Builder has already defined the namespace 'claiming'"):
        make_module("two", 3, claim, name="another").load()


def test_each_modules_own_namespace_is_its_name(make_module: Callable[..., Any]) -> None:
    claim = "\nTORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {}\n"
    assert [make_module("one", 2, claim, name=name).namespaces() for name in ("mine", "yours")] == [["mine"], ["yours"]]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            'if (true) return PyErr_Format(PyExc_RuntimeError, "no licence")',
            "no licence.*Fix: correct the code that runs when the library is loaded",
        ),
        ('if (!PyImport_ImportModule("no_such_mod")) return nullptr', "No module named 'no_such_mod'"),
        ("extern int gone(); gone()", "undefined symbol.*Fix: add the source that defines it"),
    ],
    ids=["raises", "imports", "undefined"],
)
def test_a_module_that_cannot_be_loaded_says_what_mends_it(
    make_module: Callable[..., Any], body: str, said: str
) -> None:
    with pytest.raises(OpLoadError, match=said):
        make_module("one", 1, body).load()


def test_a_source_that_defines_no_module_says_what_mends_it(cache: Cache, make_builder: Callable[..., Any]) -> None:
    builder = make_builder()
    type(builder).STABLE_ABI = False
    with pytest.raises(OpLoadError, match=r"Fix: add PYBIND11_MODULE\(TORCH_EXTENSION_NAME, m\).*STABLE_ABI = True"):
        builder.load()


def test_the_linkers_own_words_are_shown(cache: Cache, make_builder: Callable[..., Any], monkeypatch: Any) -> None:
    builder = make_builder()
    monkeypatch.setattr(builder, "extra_ldflags", lambda: ["-Wl,--nonsense"])
    with pytest.raises(BuildError, match="unrecognized option '--nonsense'"):
        builder.build()


@pytest.mark.parametrize(
    ("method", "value"),
    [
        ("sources", "a.cpp"),
        ("cxx_args", "-O3 -g"),
        ("libraries_args", "mm"),
        ("extra_ldflags", "-lm"),
        ("include_paths", None),
    ],
)
def test_a_string_in_place_of_a_list_is_refused(
    cache: Cache, make_builder: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, method: str, value: Any
) -> None:
    builder = make_builder()
    monkeypatch.setattr(builder, method, lambda: value)
    with pytest.raises(OpError, match=f"got {value!r}; expected a list of texts. Fix: return a list"):
        builder.build()
    assert not builder.is_compatible()


def test_an_argument_that_is_no_text_is_refused(cache: Cache, make_builder: Callable[..., Any]) -> None:
    builder = make_builder()
    builder.cxx_args = lambda: ["-O2", 3]
    with pytest.raises(OpError, match=r"op 'answer' failed: got 3; expected a list of texts"):
        builder.build()


def test_a_directory_is_no_source(cache: Cache, make_builder: Callable[..., Any], tmp_path: Path) -> None:
    builder = make_builder()
    type(builder).SOURCES = (str(tmp_path),)
    with pytest.raises(OpError, match="finding a source of the op 'answer' failed"):
        builder.build()
