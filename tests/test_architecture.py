"""The project's rules (DESIGN.md, sections 1 and 5), checked on the sources."""

from __future__ import annotations

import ast
import graphlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = ("accelerator", "anyaccel", "kernels", "op_builder")
SOURCES = sorted(file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
NATIVE = sorted(
    file
    for kind in ("h", "cpp", "cu", "hip", "sycl")
    for root in ("csrc", "kernels")
    for file in ROOT.glob(f"{root}/**/*.{kind}")
)


def _relative(file: Path) -> str:
    return file.relative_to(ROOT).as_posix()


def _imports(file: Path, *, module_level: bool = False, with_types: bool = False) -> set[str]:
    """Return what a file imports, as absolute names within the package."""
    tree = ast.parse(file.read_text())
    parts = file.relative_to(ROOT).with_suffix("").parts
    package = (() if parts[0] == "anyaccel" else ("anyaccel",)) + parts[:-1]
    typing_only = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        for inner in ast.walk(node)
    }
    nodes = tree.body if module_level else [node for node in ast.walk(tree) if with_types or node not in typing_only]
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {module} | {f"{module}.{alias.name}" for alias in node.names}
    return found


def _starts_with(names: set[str], *prefixes: str) -> set[str]:
    return {name for name in names if any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)}


def test_tensors_are_made_on_a_given_device() -> None:
    """A program may set torch's default device, which tensors that are made beside its own must not follow."""
    makers = {"arange", "as_tensor", "empty", "empty_strided", "full", "linspace", "ones", "rand", "randint", "randn"}
    makers |= {"randperm", "scalar_tensor", "tensor", "zeros", "eye", "asarray"}
    checked = [ROOT / folder for folder in ("op_builder", "kernels", "accelerator")]
    checked += [ROOT / "anyaccel" / folder for folder in ("ops", "distributed", "integrations", "testing/checks")]
    calls = [
        (_relative(file), node)
        for folder in checked
        for file in sorted(folder.rglob("*.py"))
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and ast.unparse(node.func.value) == "torch"
    ]
    made = [(file, node) for file, node in calls if node.func.attr in makers]  # type: ignore[attr-defined]
    assert len(made) > 20
    assert not [
        f"{file}:{node.lineno}"
        for file, node in made
        if not {"device", None} & {keyword.arg for keyword in node.keywords}
    ]


def test_accelerator_reaches_op_builder_in_one_place_only() -> None:
    reaching = [
        _relative(file)
        for file in (ROOT / "accelerator").glob("*.py")
        if _starts_with(_imports(file), "anyaccel.op_builder")
    ]
    assert reaching == ["accelerator/torch_accelerator.py"]


@pytest.mark.parametrize("package", ["accelerator", "op_builder"])
def test_lower_layers_do_not_import_the_face(package: str) -> None:
    face = ("anyaccel.cli", "anyaccel.ops", "anyaccel.testing", "anyaccel.demo", "anyaccel.distributed")
    offending = {_relative(file): _starts_with(_imports(file), *face) for file in (ROOT / package).rglob("*.py")}
    assert not {file: names for file, names in offending.items() if names}


def test_engine_knows_neither_torch_nor_builders() -> None:
    for file in (ROOT / "op_builder" / "engine").rglob("*.py"):
        assert not _starts_with(_imports(file, module_level=True), "torch"), _relative(file)
        own = _starts_with(_imports(file), "anyaccel.op_builder.engine")
        reached = _starts_with(_imports(file), "anyaccel.op_builder") - own
        assert not reached, (_relative(file), reached)


def test_accelerator_imports_no_torch_at_module_level() -> None:
    for file in (ROOT / "accelerator").glob("*.py"):
        assert not _starts_with(_imports(file, module_level=True), "torch"), _relative(file)


def test_torch_cuda_and_torch_xpu_stay_in_their_leaves() -> None:
    leaves = {"accelerator/cuda_accelerator.py", "accelerator/xpu_accelerator.py"}
    named = [
        _relative(file)
        for file in SOURCES
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("torch.cuda", "torch.xpu")
    ]
    assert set(named) <= leaves


def test_the_environment_is_read_in_one_file_a_package() -> None:
    reading = {
        _relative(file)
        for file in SOURCES
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("os.environ", "os.getenv")
    }
    packages = ("accelerator", "anyaccel/distributed", "op_builder/engine")
    assert reading == {f"{package}/environment.py" for package in packages}


_BEHIND_CREATE_OP_BUILDER = ("anyaccel.accelerator.torch_accelerator", "anyaccel.op_builder")
"""The one import against the layering, through which an accelerator finds its builders, on first use."""


def _module(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    name = ".".join(parts if parts[0] == "anyaccel" else ("anyaccel", *parts))
    return name.removesuffix(".__init__")


def _import_graph() -> dict[str, set[str]]:
    """Return each module's imports from this project, including those in functions and for type checkers."""
    modules = {_module(file): file for file in SOURCES}
    graph = {}
    for name, file in modules.items():
        named = _imports(file, with_types=True)
        reached = {found for found in named if found in modules}
        reached -= {found for found in reached if any(other.startswith(f"{found}.") for other in reached)}
        graph[name] = {found for found in reached - {name} if (name, found) != _BEHIND_CREATE_OP_BUILDER}
    return graph


def test_imports_make_no_circle() -> None:
    try:
        graphlib.TopologicalSorter(_import_graph()).prepare()
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_only_programs_edit_sys_path() -> None:
    programs = [
        "anyaccel/cli/conformance.py",  # imports a vendor's class, as `python -m` does
        "anyaccel/integrations/deepspeed/__main__.py",  # runs programs, as `python FILE` does
    ]
    assert [_relative(file) for file in SOURCES if re.search(r"\bsys\.path\b", file.read_text())] == programs


def test_shared_headers_are_free_of_torch() -> None:
    for header in (ROOT / "csrc" / "includes").glob("*.h"):
        assert not re.search(r"#\s*include\s*[<\"](torch|ATen|c10|cuda|sycl)", header.read_text()), header.name


def test_headers_have_no_using_namespace() -> None:
    assert not [_relative(file) for file in NATIVE if file.suffix == ".h" and "using namespace" in file.read_text()]


def test_files_and_functions_stay_short() -> None:
    whole = {  # one class each, for one concept
        "accelerator/abstract_accelerator.py",
        "accelerator/torch_accelerator.py",
        "op_builder/builder.py",
    }
    long_files = {_relative(file): len(file.read_text().splitlines()) for file in [*SOURCES, *NATIVE]}
    assert not {file: lines for file, lines in long_files.items() if lines > 350 and file not in whole}
    long_functions = [
        f"{_relative(file)}::{node.name}"
        for file in SOURCES
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno > 50
    ]
    assert not long_functions


def test_the_wheel_has_every_package() -> None:
    code = "from distutils.core import run_setup; print(*run_setup('setup.py', stop_after='init').packages)"
    said = subprocess.run(
        [sys.executable, "-c", f"import setuptools; {code}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=True,
    )
    on_disk = {".".join(file.parent.relative_to(ROOT).parts) for file in SOURCES if file.name == "__init__.py"}
    on_disk = {name if name.startswith("anyaccel") else f"anyaccel.{name}" for name in on_disk}
    folders = (folder.relative_to(ROOT) for folder in (ROOT / "csrc").rglob("*") if folder.is_dir())
    native = {".".join(("anyaccel", *folder.parts)) for folder in folders}
    mapped = {
        "anyaccel.benchmarks",
        "anyaccel.benchmarks.kernel_cases",
        "anyaccel.csrc",
        "anyaccel.kernels",
        "anyaccel.kernels.sycl",
        "anyaccel.kernels.triton",
    }
    assert set(said.stdout.split()) == on_disk | native | mapped


_TEXT_CALLS = {"open": 1, "fdopen": 1, "read_text": 0, "write_text": 1, "NamedTemporaryFile": 0, "TemporaryFile": 0}
"""Functions that open a file as text, with the position of their mode argument, or for ``*_text`` of the encoding."""
_BINARY_WITHOUT_MODE = ("NamedTemporaryFile", "TemporaryFile")


def _forgets_encoding(call: ast.Call) -> bool:
    """Return whether a call reads or writes text in the locale's encoding."""
    name = ast.unparse(call.func).rpartition(".")[2]
    given = {keyword.arg for keyword in call.keywords}
    if "encoding" in given or None in given:
        return False
    if name in ("run", "Popen", "check_output", "check_call", "call"):
        return bool({"text", "universal_newlines"} & given)
    if name not in _TEXT_CALLS:
        return False
    owner = ast.unparse(call.func).rpartition(".")[0]
    if name == "read_text" and owner == "package":  # importlib.metadata's, which reads UTF-8
        return False
    if name.endswith("_text"):
        return len(call.args) <= _TEXT_CALLS[name]
    if name == "open" and owner in ("os", "webbrowser", "tarfile", "zipfile"):
        return False
    position = 0 if name == "open" and owner not in ("", "io", "gzip") else _TEXT_CALLS[name]
    modes = [keyword.value for keyword in call.keywords if keyword.arg == "mode"] or call.args[position : position + 1]
    mode = ast.literal_eval(modes[0]) if modes and isinstance(modes[0], ast.Constant) else None
    if mode is None:
        return name not in _BINARY_WITHOUT_MODE
    return "b" not in str(mode)


def test_text_is_never_in_the_locales_encoding() -> None:
    """A compiler prints UTF-8 in every locale, and a source may be read on another machine."""
    offending = [
        f"{_relative(file)}:{node.lineno}: {ast.unparse(node)[:80]}"
        for file in [*SOURCES, ROOT / "setup.py", *sorted((ROOT / "benchmarks").glob("*.py"))]
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and _forgets_encoding(node)
    ]
    assert not offending, "\n".join(offending)


@pytest.mark.parametrize(
    ("code", "forgets"),
    [
        ("open(file)", True), ("open(file, 'rb')", False), ("file.open()", True), ("file.open('wb')", False),
        ("file.read_text()", True), ("file.read_text('utf-8')", False), ("file.write_text(text, encoding='utf-8')", False),
        ("os.fdopen(number, 'w')", True), ("os.open(file, flags)", False), ("subprocess.run(words, text=True)", True),
        ("subprocess.run(words, text=True, encoding='utf-8')", False), ("tempfile.NamedTemporaryFile('w')", True),
        ("tempfile.NamedTemporaryFile(dir=folder)", False),
    ],
)  # fmt: skip
def test_what_forgets_an_encoding_is_known(code: str, forgets: bool) -> None:
    call = ast.parse(code, mode="eval").body
    assert isinstance(call, ast.Call)
    assert _forgets_encoding(call) is forgets


def test_a_class_name_means_one_class() -> None:
    files: dict[str, list[str]] = {}
    for file in SOURCES:
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef):
                files.setdefault(node.name, []).append(_relative(file))
    for name in ("LayerNorm", "RMSNorm"):  # the package `kernels` finds a layer by the name of the one that it replaces
        files.pop(name)
    assert not {name: found for name, found in files.items() if len(found) > 1}


def test_a_builder_has_four_classes_at_most() -> None:
    from anyaccel.op_builder.all_ops import every_builder

    for builder in every_builder():
        assert len(type(builder).__mro__) - 1 <= 4, type(builder).__mro__
