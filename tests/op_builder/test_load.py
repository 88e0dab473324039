"""Loading: one object per process, and clear errors."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, cast

import pytest
import torch

import anyaccel
from anyaccel.op_builder import OpError, OpLoadError, add_finder, all_ops, namespaces
from anyaccel.op_builder.engine.clearing import clear
from anyaccel.op_builder.loading import load_torch_library
from anyaccel.op_builder.namespaces import claimed_namespaces

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from anyaccel.op_builder.engine.cache import Cache


def test_load_returns_the_same_object() -> None:
    builder = anyaccel.get_accelerator().create_op_builder("CPUAdamBuilder")
    assert builder.load() is builder.load(verbose=True) is anyaccel.load_op("cpu_adam")
    assert anyaccel.load_op("CPUAdamBuilder") is builder.load()
    assert builder.name == "cpu_adam"
    assert builder.absolute_name() == "anyaccel._C.cpu_adam"


def test_a_process_keeps_its_first_build(
    run_with_torch: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    run_with_torch(f"""
import os, anyaccel
first = anyaccel.load_op("cpu_adam")
os.environ["ANYACCEL_CACHE_DIR"] = {str(tmp_path / "another")!r}
assert anyaccel.load_op("cpu_adam") is first
assert not os.path.exists(os.environ["ANYACCEL_CACHE_DIR"])
""")


def test_an_op_whose_build_is_cleared_before_it_is_loaded_is_built_again(
    cache: Cache, make_builder: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = make_builder()
    builder.name = "cleared"  # others here load "answer"
    builds: list[Any] = []
    real = builder.build

    def build() -> Any:
        builds.append(real())
        if len(builds) == 1:
            assert clear(cache, math.inf) == 1
        return builds[-1]

    monkeypatch.setattr(builder, "build", build)
    assert builder.load() is builder
    assert len(builds) == 2


def test_an_unknown_op_lists_the_choices() -> None:
    with pytest.raises(OpError, match=r"'cpu' has no op 'nonsense'\. Fix: use one of: cpu_adam"):
        anyaccel.load_op("nonsense")


def test_what_a_finder_gives_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    class OtherBuilder:
        NAME = "other"

        def load(self) -> str:
            return "another op"

    given = {"CPUAdamBuilder": OtherBuilder, "MineBuilder": OtherBuilder, "CPULionBuilder": None}
    monkeypatch.setattr(all_ops, "_finders", [])
    add_finder(lambda name, device, found: given.get(name, found))
    assert [anyaccel.load_op(name) for name in ("CPUAdamBuilder", "MineBuilder", "other")] == ["another op"] * 3
    with pytest.raises(OpError, match="has no op 'cpu_lion'"):
        anyaccel.load_op("cpu_lion")


def test_a_finder_is_asked_for_the_op_that_is_loaded_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    class NamelessBuilder:
        def load(self) -> str:
            return "nameless"

    asked: list[str] = []

    def find(name: str, device: str, found: Any) -> Any:
        asked.append(name)
        return NamelessBuilder if name in ("CPUAdamBuilder", "MineBuilder") else found

    monkeypatch.setattr(all_ops, "_finders", [find])
    assert [anyaccel.load_op(name) for name in ("cpu_adam", "CPUAdamBuilder", "MineBuilder")] == ["nameless"] * 3
    assert asked == ["CPUAdamBuilder", "CPUAdamBuilder", "MineBuilder"]
    with pytest.raises(OpError, match=r"has no op 'nothing'.*CPUAdamBuilder"):
        anyaccel.load_op("nothing")


def test_a_finder_is_a_function() -> None:
    with pytest.raises(TypeError, match=r"got None; expected a function .*Fix: pass the function itself"):
        add_finder(cast("Any", None))


def test_a_builder_that_does_not_exist_is_none() -> None:
    assert anyaccel.get_accelerator().create_op_builder("NoSuchBuilder") is None
    assert anyaccel.get_accelerator().get_op_builder("NoSuchBuilder") is None


def test_host_ops_are_every_devices() -> None:
    assert anyaccel.CUDA_Accelerator().get_op_builder("CPUAdamBuilder").NAME == "cpu_adam"


def test_an_old_torch_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    builder = anyaccel.get_accelerator().create_op_builder("CPUAdamBuilder")
    monkeypatch.setattr(torch, "__version__", "2.9.1+cpu")
    assert not builder.is_compatible(verbose=True)
    with pytest.raises(
        OpLoadError, match=r"got torch 2.9.1\+cpu; expected 2.10 or newer. Fix: pip install --upgrade torch"
    ):
        builder.load()


CLAIMS: dict[str, tuple[str, list[str], list[str]]] = {  # the code, the flags, and the namespaces that it defines
    "at a line's start": ("STABLE_TORCH_LIBRARY(mine, m) {}", [], ["mine"]),
    "in a namespace": ("namespace a { STABLE_TORCH_LIBRARY(mine, m) {} }", [], ["mine"]),
    "over two lines": ("STABLE_TORCH_LIBRARY(\n    mine, m) {}", [], ["mine"]),
    "torch's own": ("TORCH_LIBRARY(mine, m) {}", [], ["mine"]),
    "two": ("STABLE_TORCH_LIBRARY(mine, m) {}\nSTABLE_TORCH_LIBRARY(other, m) {}", [], ["mine", "other"]),
    "two on a line": ("STABLE_TORCH_LIBRARY(mine, m) {} STABLE_TORCH_LIBRARY(other, m) {}", [], ["mine", "other"]),
    "by a macro": ("#define NS mine\nSTABLE_TORCH_LIBRARY(NS, m) {}", [], ["mine"]),
    "by a macro of a macro": ("#define A mine\n#define NS A\nSTABLE_TORCH_LIBRARY(NS, m) {}", [], ["mine"]),
    "by a flag with a space": ("STABLE_TORCH_LIBRARY(NS, m) {}", ["-D NS=mine"], ["mine"]),
    "by a flag of two words": ("STABLE_TORCH_LIBRARY(NS, m) {}", ["-D", "NS=mine"], ["mine"]),
    "by a macro, in lines of Windows": ("#define NS mine\r\nSTABLE_TORCH_LIBRARY(NS, m) {}\r\n", [], ["mine"]),
    "by a flag": ("STABLE_TORCH_LIBRARY(NS, m) {}", ["-O2", "-DNS=mine"], ["mine"]),
    "in a header": ('#include "library.h"\n', [], ["mine"]),
    "in a comment": ("// STABLE_TORCH_LIBRARY(mine, m)\n/*\nSTABLE_TORCH_LIBRARY(mine, m)\n*/", [], []),
    "behind a text with slashes": ('auto url = "http://a"; STABLE_TORCH_LIBRARY(mine, m) {}', [], ["mine"]),
    "a fragment": ("STABLE_TORCH_LIBRARY_FRAGMENT(mine, m) {}\nSTABLE_TORCH_LIBRARY_IMPL(mine, CPU, m) {}", [], []),
    "in a header, and a comment": ('#include "library.h"  // TORCH_LIBRARY\n', [], ["mine"]),
    "by a macro that takes it": ("#define OPS(ns, m) STABLE_TORCH_LIBRARY(ns, m)\nOPS(mine, m) {}", [], ["mine"]),
    "by a macro that has it": ("#define OPS(m) STABLE_TORCH_LIBRARY(mine, m)\nOPS(m) {}", [], ["mine"]),
    "by a macro of a macro that takes it": (
        "#define ALL(ns) OPS(m, ns)\n#define OPS(m, ns) \\\n  STABLE_TORCH_LIBRARY(ns, m)\nALL(mine) {}",
        [],
        ["mine"],
    ),
    "in a header, beside an implementation": (
        '#include "library.h"\nSTABLE_TORCH_LIBRARY_IMPL(mine, CPU, m) {}',
        [],
        ["mine"],
    ),
    "by a macro of a header": ('#include "names.h"\nSTABLE_TORCH_LIBRARY(OP_NAMESPACE, m) {}', [], ["mine"]),
    "in a macro's continued definition": ("#define LIBRARY(ns) \\\n  STABLE_TORCH_LIBRARY(ns, m)", [], []),
    "in a macro's definition": ("#define LIBRARY(ns) STABLE_TORCH_LIBRARY(ns, m)", [], []),
}


@pytest.mark.parametrize(("code", "flags", "claimed"), CLAIMS.values(), ids=CLAIMS)
def test_the_namespaces_that_code_defines(
    tmp_path: Path, code: str, flags: Sequence[str], claimed: Sequence[str]
) -> None:
    """Two libraries that define one end the process."""
    (tmp_path / "library.h").write_text("STABLE_TORCH_LIBRARY(mine, m) {}\n")
    (tmp_path / "names.h").write_text("#define OP_NAMESPACE mine\n")
    (tmp_path / "op.cpp").write_text(code)
    assert claimed_namespaces([tmp_path / "op.cpp"], [tmp_path], flags) == claimed


def test_many_macros_are_read_in_one_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each was compared with each: the load of a built op beside a header with 3000 macros took twelve seconds."""
    lines = [f"#define M{number}(a, b) M{number + 1}(b, a)" for number in range(2000)]
    lines += ["#define LAST(name) TORCH_LIBRARY(name, m)", "#define USES(it) LAST(it)", "USES(mine) {}"]
    (tmp_path / "op.cpp").write_text("\n".join(lines))
    asked = []
    real = namespaces.re.findall
    monkeypatch.setattr(namespaces.re, "findall", lambda *given: asked.append(1) or real(*given))
    assert claimed_namespaces([tmp_path / "op.cpp"], [tmp_path], []) == ["mine"]
    assert len(asked) < 10 * len(lines)


def test_a_namespace_that_python_defined_is_refused_though_it_is_empty(tmp_path: Path) -> None:
    library = torch.library.Library("anyaccel_test_empty", "DEF")
    with pytest.raises(OpLoadError, match="this process has already defined the namespace 'anyaccel_test_empty'"):
        load_torch_library("anyaccel_test", type(library), tmp_path / "none.so", ["anyaccel_test_empty"])
