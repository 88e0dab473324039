"""Changes every barrier, shuffle and reduction in the sources of kernels, one at a time; the tests must detect each change.

``python -m tests.emulator.mutants`` prints a line for each: which kernel detected it, or ``survived``. With ``unchanged``, it
prints what the kernels compute differently than the CPU without any change. It runs in a process with the emulator preloaded.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from anyaccel.op_builder.all_ops import builder_class
from anyaccel.op_builder.op import CSRC
from anyaccel.op_builder.table import OPS

from .library import GROUP, LANES, built_kernels, emulator

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["OF_ONE_NUMBER", "Mutant", "mutants"]

KERNELS = {
    "moe": ("TopkGating<float>", "TopkGatingBackward<float>"),
    "layer_norm": ("LayerNormBackward<float, float>", "ColumnSum<float>"),
    "multi_tensor": ("ScaleTensors<float, float>",),
    "quantization": ("Quantize<float, 8>", "QuantizeFloat8<float, E4M3>"),
    "softmax": ("SoftmaxForward<float>",),
}
"""The kernels that detect changes, by op: each uses another part of a group. The first detects most, and compiles fast."""


class Mutant(NamedTuple):
    """A change at one place."""

    file: str
    line: int
    name: str
    text: str


def _replacements(found: re.Match[str]) -> Iterator[tuple[str, str]]:
    if "barrier" in found[0] or "__sync" in found[0] or "wait" in found[0]:
        yield "removed", ""
        return
    if found["own"]:
        yield "removed", found["own"]
        return
    mask, value, offset = found["mask"], found["value"], found["offset"]
    yield "removed", value
    for other in ("0x7fffffffu", "0xfffffffeu", "0x0000ffffu"):
        yield f"mask {other}", found[0].replace(mask, other)
    for other in ("1", f"({offset} > 8 ? 8 : {offset})", f"({offset} > 1 ? {offset} : 2)"):
        yield f"offset {other}", f"{found[0][: found.start('offset') - found.start()]}{other})"


_PLACES = re.compile(
    r"__syncthreads\(\)|__syncwarp\(\)|group_?\.wait\(\)|__shfl_\w+_sync\((?P<mask>\w+), (?P<value>\w+), (?P<offset>\w+)\)|"
    r"sycl::group_barrier\(item\.get_group\(\)\)|sycl::reduce_over_group\(item\.get_group\(\), (?P<own>\w+), [^)]*\)\)"
)
OF_ONE_NUMBER = "__shfl_sync(kAllLanes, threadIdx.y, 0)"
"""It gives every lane what it has, and tells the compiler so: without it, nothing is computed differently."""
_OTHERS = {
    "block_group.h": (("atomicOr(flag, 1)", "*flag = 1", "a flag that is not atomic"),),
    "elementary.h": (
        ("right > left ? right : left", "left > right ? left : right", "a maximum that lanes disagree on"),
    ),
    "sycl_group.h": (
        (
            "sycl::atomic_ref<std::int32_t, sycl::memory_order::relaxed, sycl::memory_scope::device>(*flag).store(1)",
            "*flag = 1",
            "a flag that is not atomic",
        ),
    ),
}


def mutants(group: str) -> list[Mutant]:
    """Return every change, of every barrier, shuffle and reduction of the sources: the ops' with CUDA's and HIP's group."""
    made = []
    is_sycl = group == "sycl"
    of_ops = [] if is_sycl else sorted((CSRC / "includes").glob("*.h"))
    for file in [*sorted((CSRC / "runtime").glob("sycl_*.h" if is_sycl else "block_*.h")), *of_ops]:
        text = file.read_text()
        for found in _PLACES.finditer(text):
            line = text.count("\n", 0, found.start()) + 1
            made += [
                Mutant(file.name, line, f"{found[0]} {name}", text[: found.start()] + new + text[found.end() :])
                for name, new in _replacements(found)
            ]
        for old, new, name in _OTHERS.get(file.name, ()):
            made.append(Mutant(file.name, text[: text.index(old)].count("\n") + 1, name, text.replace(old, new)))
    return made


def _softmax(op: Any) -> list[torch.Tensor]:
    x = torch.linspace(-3, 3, 210).view(3, 70)
    with_nan = x.index_fill(1, torch.tensor([41]), torch.nan)
    return [op.scaled_masked_softmax(x), op.scaled_masked_softmax(with_nan)]


def _quantization(op: Any) -> list[torch.Tensor]:
    x = torch.linspace(-1, 2, 200).view(2, 100)
    with_nan = x.index_fill(1, torch.tensor([99]), torch.nan)  # the last one that its thread processes
    codes, scales = op.quantize_float8(with_nan, 2, torch.float8_e4m3fn)
    return [*op.quantize(x, 2, symmetric=True), *op.quantize(x, 2, symmetric=False), codes.float(), scales]


def _layer_norm(op: Any) -> list[torch.Tensor]:
    x = torch.linspace(-1, 2, 210).view(3, 70).sin()
    statistics = x.mean(1), 1 / x.std(1)
    return list(op._ops.layer_norm_backward.default(x.cos(), None, x, torch.ones(70), *statistics))


def _moe(op: Any) -> list[torch.Tensor]:
    logits = torch.linspace(0, 9, 120).view(3, 40).sin()
    logits[1, 7] = torch.nan
    weights, taken, probabilities = op.topk_gating(logits[::2], 3)
    gradients = weights.sin(), probabilities.cos(), probabilities, taken
    backward = op._ops.topk_gating_backward.default(*gradients, True, torch.float32)
    many = torch.linspace(0, 9, 600).view(2, 300).sin()  # more than two warps keep in registers
    return [backward, *op.topk_gating(many, 2), *(tensor for k in (1, 3) for tensor in op.topk_gating(logits, k))]


def _multi_tensor(op: Any) -> list[torch.Tensor]:
    tensors = [torch.full((20_000,), torch.inf), torch.ones(100)]
    flag = torch.zeros(1, dtype=torch.int32)
    op.scale(tensors, tensors, 0.5, flag)
    return [flag, *tensors]


_RUN: dict[str, Callable[[Any], list[torch.Tensor]]] = {
    "moe": _moe, "layer_norm": _layer_norm, "multi_tensor": _multi_tensor, "quantization": _quantization,
    "softmax": _softmax,
}  # fmt: skip


def _functions(namespace: str = "anyaccel_sycl") -> dict[str, Any]:
    """Return the ops' functions, with their host libraries loaded; those of ``anyaccel`` run on the CPU."""
    rows = {op.name: op for op in OPS}
    for name in _RUN:
        builder_class(rows[name].builder, "cpu")().load()
    return {name: rows[name].functions_class()(namespace) for name in _RUN}


def _results(name: str, op: Any) -> Iterator[tuple[str, list[torch.Tensor]]]:
    """Yield what an op's kernels compute, with one warp and with two."""
    lanes = LANES[os.environ.get(GROUP, "cuda")]
    for threads in (lanes, 2 * lanes):
        emulator().fix_size(threads)
        yield f"{name} with {threads} threads", _RUN[name](op)


def _use(name: str, folder: Path) -> None:
    """Register the kernels of an op in a folder of sources."""
    library = built_kernels("mutant", KERNELS[name], f"{name}.h", [folder])
    emulator().register(next(op for op in OPS if op.name == name), library, KERNELS[name])


def _notices(folder: Path, functions: dict[str, Any], expected: dict[str, list[torch.Tensor]]) -> str:
    """Return the first difference between the kernels in a folder and the ``expected`` results."""
    for op, function in functions.items():
        _use(op, folder)
        try:
            for name, results in _results(op, function):
                for mine, wanted in zip(results, expected[name], strict=True):
                    if not torch.equal(mine.nan_to_num(-7.0), wanted.nan_to_num(-7.0)):
                        return f"another result of {name}"
        except RuntimeError as error:
            return str(error).partition(" failed: ")[2].partition(". Fix:")[0] or str(error)
    return ""


def _copy_sources(folder: Path) -> None:
    for file in [
        *(CSRC / "includes").glob("*.h"),
        *(CSRC / "runtime").glob("*_group.h"),
        CSRC / "runtime/block_row.h",
        CSRC / "runtime/kernels.cu",
        CSRC / "runtime/kernels.hip",
    ]:
        (folder / file.name).write_text(file.read_text())


def print_what_differs() -> None:
    """Print whether the CPU computes the same as each unchanged kernel."""
    functions, on_cpu = _functions(), _functions("anyaccel")
    with tempfile.TemporaryDirectory() as folder:
        _copy_sources(Path(folder))
        for op, function in functions.items():
            _use(op, Path(folder))
            for name, results in _results(op, function):
                for mine, wanted in zip(results, _RUN[op](on_cpu[op]), strict=True):
                    is_close = torch.allclose(
                        mine.nan_to_num(-7.0).double(), wanted.nan_to_num(-7.0).double(), 1e-5, 1e-6
                    )
                    print(f"{name}\t{'agrees' if is_close else (mine - wanted).abs().max()}")


def print_what_detects() -> None:
    """Print which kernel detects each change."""
    functions = _functions()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _copy_sources(folder)
        for op in functions:
            _use(op, folder)
        expected = dict(each for op, function in functions.items() for each in _results(op, function))
        for mutant in mutants(os.environ.get(GROUP, "cuda")):
            original = (folder / mutant.file).read_text()
            (folder / mutant.file).write_text(mutant.text)
            noticed = _notices(folder, functions, expected) or "survived"
            print(f"{mutant.file}:{mutant.line}\t{mutant.name}\t{noticed}", flush=True)
            (folder / mutant.file).write_text(original)


if __name__ == "__main__":
    print_what_differs() if sys.argv[1:] == ["unchanged"] else print_what_detects()
