"""deepspeed's own builders, unchanged, on this project's; only ``.builder`` leads elsewhere."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anyaccel import get_accelerator

from ..quick_compiler import quick_compiler

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

FOUND = importlib.util.find_spec("deepspeed")
BUILDERS = Path(FOUND.origin or "").parent / "ops" / "op_builder" if FOUND else Path()

BUILDS = """
import importlib, sys, types
import anyaccel.op_builder

folder, module, name, *wanted = sys.argv[1:]
package = types.ModuleType("theirs")
package.__path__ = [folder]
sys.modules.update({"theirs": package, "theirs.builder": anyaccel.op_builder})
builder = getattr(importlib.import_module(f"theirs.{module}"), name)()
assert isinstance(builder, anyaccel.op_builder.OpBuilder), type(builder).__mro__
loaded = builder.load()
missing = [function for function in wanted if not callable(getattr(loaded, function, None))]
assert not missing, missing
assert builder.load() is loaded
print("loaded", name)
"""

COMPILED_HERE = {
    ("cpu", "cpu_adam", "CPUAdamBuilder"): ("create_adam", "adam_update", "destroy_adam"),
    ("cpu", "cpu_adagrad", "CPUAdagradBuilder"): ("create_adagrad", "adagrad_update", "destroy_adagrad"),
    ("cpu", "cpu_lion", "CPULionBuilder"): ("create_lion", "lion_update", "destroy_lion"),
    ("cpu", "fused_adam", "FusedAdamBuilder"): ("multi_tensor_adam",),
    ("cpu", "comm", "ShareMemCommBuilder"): ("initialize",),
    ("", "utils", "UtilsBuilder"): ("cast_to_byte_tensor",),
    ("", "pin_memory", "PinMemoryBuilder"): (),
}
"""All builders whose sources compile on a CPU machine without further packages (AsyncIO needs libaio, CCL oneCCL)."""
_QUICK = "CPUAdagradBuilder"


@pytest.mark.skipif(FOUND is None, reason="deepspeed is not installed")
@pytest.mark.parametrize(
    ("place", "functions"),
    [
        pytest.param(place, functions, id=place[2], marks=() if place[2] == _QUICK else pytest.mark.slow)
        for place, functions in COMPILED_HERE.items()
    ],
)
def test_it_builds_and_loads_unchanged(
    place: tuple[str, str, str],
    functions: tuple[str, ...],
    tmp_path: Path,
    run_with_torch: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    folder, module, name = place
    quick = quick_compiler(tmp_path / "bin")
    said = run_with_torch(BUILDS, str(BUILDERS / folder), module, name, *functions, **quick).stdout
    assert said.endswith(f"loaded {name}\n")


@pytest.mark.skipif(FOUND is None, reason="deepspeed is not installed")
def test_what_its_classes_tell_without_an_instance_ours_tell_too() -> None:
    asked: dict[str, list[str]] = {}
    for file in BUILDERS.glob("*.py"):
        for made in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(made, ast.ClassDef) and get_accelerator().get_op_builder(made.name) is not None:
                asked[made.name] = [
                    one.name for one in made.body if isinstance(one, ast.FunctionDef)
                    and any(getattr(decorator, "id", "") == "staticmethod" for decorator in one.decorator_list)
                ]  # fmt: skip
    assert asked["FPQuantizerBuilder"] == ["get_default_quant_dtype", "get_quant_range"]
    for name, statics in asked.items():
        builder = get_accelerator().get_op_builder(name)
        assert [one for one in statics if not callable(getattr(builder, one, None))] == [], name
    floats = get_accelerator().get_op_builder("FPQuantizerBuilder")
    assert [floats.get_quant_range(bits) for bits in (6, 8, 12)] == [28, 480, 510]
    with pytest.raises(NotImplementedError, match="got 7 bits"):
        floats.get_quant_range(7)
