"""The ``help()`` of the public names in ``anyaccel.ops``: complete, and correct where it can be run."""

from __future__ import annotations

import builtins
import doctest
import inspect
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from anyaccel import op_builder, ops
from anyaccel.op_builder.engine.toolchains.sycl import probe_dpcpp
from anyaccel.ops import functional

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
SECTION = re.compile(r"^(Args|Returns|Raises|Source|Example):[ \t]*", re.MULTILINE)
ENTRY = re.compile(r"^    (\w+):\s+\S", re.MULTILINE)


def sections_of(docstring: str) -> dict[str, str]:
    """Return the text of each section; the text before the first has the key ``""``."""
    parts = SECTION.split(inspect.cleandoc(docstring))
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def faults_of(front: Any) -> list[str]:
    """Return what is missing or wrong in a function's or class's docstring."""
    sections = sections_of(front.__doc__ or "")
    signature = inspect.signature(front)
    faults = []
    if not re.match(r"[A-Z][^\n]*[.:]", sections[""]):
        faults.append("no first sentence")
    returns = not inspect.isclass(front) and signature.return_annotation not in (None, "None")
    for name in ("Args", "Raises", "Source", "Example", *["Returns"] * returns):
        if not sections.get(name, "").strip():
            faults.append(f"no section {name}")
    documented, expected = ENTRY.findall(sections.get("Args", "")), list(signature.parameters)
    if documented != expected:
        faults.append(f"Args names {documented}, and the signature {expected}")
    errors = ENTRY.findall(sections.get("Raises", ""))
    faults += [f"Raises names no exception: {name}" for name in errors if exception(name) is None]
    if not errors:
        faults.append("Raises names no exception")
    if ">>> " not in sections.get("Example", ""):
        faults.append("Example cannot be run")
    files = re.findall(r"\b(?:tests|docs)/[\w/.-]+\.\w+", sections.get("Source", ""))
    faults += [f"Source names no file: {file}" for file in files if not (ROOT / file).is_file()]
    return faults


def exception(name: str) -> type[Exception] | None:
    found = getattr(op_builder, name, None) or getattr(builtins, name, None)
    return found if inspect.isclass(found) and issubclass(found, Exception) else None


@pytest.mark.parametrize("name", ops.__all__)
def test_a_front_is_documented_where_users_see_it(name: str) -> None:
    assert faults_of(getattr(ops, name)) == []


def test_functional_has_the_same_functions() -> None:
    assert {name for name in ops.__all__ if inspect.isfunction(getattr(ops, name))} == set(functional.__all__)
    assert all(getattr(functional, name) is getattr(ops, name) for name in functional.__all__)


@pytest.mark.parametrize("name", ops.__all__)
def test_examples_run(name: str) -> None:
    if name == "DeviceKernel" and probe_dpcpp().tool is None:
        pytest.skip(f"no DPC++: {probe_dpcpp().detail}")
    names = {"torch": torch, **{each: getattr(ops, each) for each in ops.__all__}}
    (example,) = doctest.DocTestFinder(recurse=False).find(getattr(ops, name), name, globs=names)
    assert example.examples
    said: list[str] = []
    failed, _ = doctest.DocTestRunner().run(example, out=said.append)
    assert failed == 0, "".join(said)


X, HALF, WEIGHT = torch.ones(2, 4), torch.ones(2, 4, dtype=torch.float16), torch.ones(4)
INT8 = torch.ones(4, dtype=torch.int8)


@pytest.mark.parametrize(
    ("name", "error", "mistake"),
    [
        ("rms_norm", RuntimeError, lambda: ops.rms_norm(X, WEIGHT.half())),
        ("add_rms_norm", RuntimeError, lambda: ops.add_rms_norm(X, X[:1], WEIGHT)),
        ("layer_norm", RuntimeError, lambda: ops.layer_norm(X, WEIGHT, WEIGHT.double())),
        ("add_layer_norm", RuntimeError, lambda: ops.add_layer_norm(X, HALF, WEIGHT, WEIGHT)),
        ("scaled_masked_softmax", RuntimeError, lambda: ops.scaled_masked_softmax(X, X)),
        ("scaled_masked_softmax", RuntimeError, lambda: ops.scaled_masked_softmax(torch.ones(1, 1, 1, 1, 1))),
        ("scaled_upper_triang_masked_softmax", RuntimeError, lambda: ops.scaled_upper_triang_masked_softmax(X.t())),
        ("swiglu", RuntimeError, lambda: ops.swiglu(X, HALF)),
        ("geglu", RuntimeError, lambda: ops.geglu(X, X[:1])),
        ("geglu", ValueError, lambda: ops.geglu(X, X, "fast")),  # type: ignore[arg-type]
        ("bias_gelu", RuntimeError, lambda: ops.bias_gelu(HALF, WEIGHT)),
        ("bias_gelu", ValueError, lambda: ops.bias_gelu(X, WEIGHT, "fast")),  # type: ignore[arg-type]
        ("rotary_embedding", RuntimeError, lambda: ops.rotary_embedding(X, X, X)),
        ("quantize", RuntimeError, lambda: ops.quantize(X, groups=3)),
        ("quantize", RuntimeError, lambda: ops.quantize(X, groups=2, bits=2)),
        ("quantize", RuntimeError, lambda: ops.quantize(X.double(), groups=2)),
        ("quantize", RuntimeError, lambda: ops.quantize(X[:, :3], groups=2, bits=4)),
        ("dequantize", RuntimeError, lambda: ops.dequantize(INT8.short(), torch.ones(1, 1))),
        ("dequantize", RuntimeError, lambda: ops.dequantize(INT8, torch.ones(1, 1), dtype=torch.float64)),
        ("dequantize", RuntimeError, lambda: ops.dequantize(INT8, torch.ones(1))),
        ("route", ValueError, lambda: ops.route(torch.zeros(2, 2), 4)),
        ("route", ValueError, lambda: ops.route(torch.zeros(4, dtype=torch.int64), 4)),
        ("route", ValueError, lambda: ops.route(torch.zeros(2, 2, dtype=torch.int64), -1)),
        ("quantize_float8", ValueError, lambda: ops.quantize_float8(X, 1, torch.float16)),
        ("quantize_float8", RuntimeError, lambda: ops.quantize_float8(X, 3)),
        ("dequantize_float8", RuntimeError, lambda: ops.dequantize_float8(INT8, torch.ones(1))),
        ("topk_gating", RuntimeError, lambda: ops.topk_gating(X, k=5)),
        ("dispatch", RuntimeError, lambda: ops.dispatch(X, ops.route(torch.zeros(3, 1, dtype=torch.int64), 1))),
        ("combine", RuntimeError, lambda: ops.combine(X, WEIGHT, ops.route(torch.zeros(3, 1, dtype=torch.int64), 1))),
        ("RMSNorm", RuntimeError, lambda: ops.RMSNorm(3)(X)),
        ("LayerNorm", RuntimeError, lambda: ops.LayerNorm(3)(X)),
        ("Dense", RuntimeError, lambda: ops.Dense(3, 2)(X)),
        ("Dense", ValueError, lambda: ops.Dense(3, 2, mode="fast")),  # type: ignore[arg-type]
        ("FusedAdam", ValueError, lambda: ops.FusedAdam([WEIGHT], lr=-1.0)),
        ("FusedSGD", ValueError, lambda: ops.FusedSGD([WEIGHT], nesterov=True)),
        ("CPUAdam", ValueError, lambda: ops.CPUAdam([WEIGHT], amsgrad=True)),
        ("CPULion", ValueError, lambda: ops.CPULion([WEIGHT.to("meta")])),
        ("CPUAdagrad", ValueError, lambda: ops.CPUAdagrad([WEIGHT.to("meta")])),
        ("DeviceKernel", ValueError, lambda: ops.DeviceKernel("", "k", ("float",))),
    ],
)
def test_a_mistake_gives_the_documented_error(name: str, error: type[Exception], mistake: Callable[[], object]) -> None:
    with pytest.raises(error) as raised:
        mistake()
    assert raised.type is error
    assert error.__name__ in ENTRY.findall(sections_of(getattr(ops, name).__doc__)["Raises"])


def test_special_values_do_what_the_docstrings_say() -> None:
    nan, inf = float("nan"), float("inf")
    assert torch.equal(
        ops.dequantize(*ops.quantize(torch.tensor([nan, 1.0, -2.0, 1.0]), 2)).isnan(),
        torch.tensor([True, True, False, False]),
    )
    of_nan = ops.dequantize_float8(*ops.quantize_float8(torch.tensor([nan, 1.0]), 1))
    assert of_nan.isnan().tolist() == [True, False]
    assert ops.dequantize_float8(*ops.quantize_float8(torch.tensor([inf, 1.0]), 1)).isnan().all()
    assert ops.scaled_masked_softmax(torch.full((1, 2), -inf)).tolist() == [[0.0, 0.0]]
    assert ops.scaled_masked_softmax(torch.tensor([[inf, 1.0]])).isnan().all()
    weights, taken, _ = ops.topk_gating(torch.tensor([[1.0, nan, 2.0], [0.0, inf, 1.0]]), 2)
    assert weights.isnan().all()
    assert taken.tolist() == [[0, 0], [0, 0]]
    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.grad = torch.tensor([inf, 1.0])
    ops.clip_grad_norm_(parameter, 1.0)
    assert parameter.grad[0].isnan()
    assert parameter.grad[1] == 0


def halve(x: torch.Tensor, factor: float = 0.5) -> torch.Tensor:
    """Multiply by a half.

    Args:
        x: any shape, float32.
        factor: what x is multiplied by.

    Returns:
        A tensor like x.

    Raises:
        RuntimeError: if x is not a tensor.

    Source: tests/ops/test_front_docs.py

    Example:
        >>> halve(torch.ones(1))
        tensor([0.5000])
    """
    return x * factor


def test_the_checker_accepts_a_whole_docstring() -> None:
    assert faults_of(halve) == []


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda doc: doc.replace("factor: what", "scale: what"), "Args names ['x', 'scale'], and the signature ['x', 'factor']"),
        (lambda doc: re.sub(r" +factor: .*\n", "", doc), "Args names ['x'], and the signature ['x', 'factor']"),
        (lambda doc: re.sub(r" *Returns:\n +A tensor like x.\n", "", doc), "no section Returns"),
        (lambda doc: doc.replace("Source: ", "See "), "no section Source"),
        (lambda doc: doc.replace("RuntimeError", "RunError"), "Raises names no exception: RunError"),
        (lambda doc: doc.replace("test_front_docs.py", "test_gone.py"), "Source names no file: tests/ops/test_gone.py"),
        (lambda doc: doc.replace(">>> ", ""), "Example cannot be run"),
        (lambda doc: doc.replace("Multiply by a half.", ""), "no first sentence"),
        (lambda _: "", "no section Args"),
    ],
)  # fmt: skip
def test_the_checker_finds_what_is_missing(change: Callable[[str], str], fault: str) -> None:
    def changed(x: torch.Tensor, factor: float = 0.5) -> torch.Tensor:
        return halve(x, factor)

    changed.__doc__ = change(halve.__doc__ or "")
    assert fault in faults_of(changed)


def test_a_new_parameter_must_be_documented() -> None:
    def changed(x: torch.Tensor, factor: float = 0.5, *, new: int = 0) -> torch.Tensor:
        return halve(x, factor)

    changed.__doc__ = halve.__doc__
    assert faults_of(changed) == ["Args names ['x', 'factor'], and the signature ['x', 'factor', 'new']"]
