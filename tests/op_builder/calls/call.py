"""Describes valid calls of functions, and makes their arguments.

A shape is written in letters, such as ``"b t c"``. A letter stands for one size everywhere in a call; a letter that occurs once
can be any size. ``2c`` is twice a size, ``4`` a size that the other arguments fix, and ``b+`` one that may be larger.
``"int32 t"`` is a tensor of another dtype than float32, ``"[] b c"`` a list that holds one tensor, ``"2[[]] b c"`` two such
lists in a list, and ``"any 1"`` a tensor that is ignored.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch

from anyaccel.kernels.functions.moe import Routing

from ...fuzz.targets import load_every_op

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = [
    "SIZES",
    "ShapedCall",
    "arguments_of",
    "dimensions",
    "function_of",
    "like",
    "lists",
    "loaded",
    "shape_of",
    "tensors_of",
]

SIZES = {"b": 2, "c": 8, "d": 4, "e": 3, "g": 4, "h": 4, "k": 2, "n": 7, "o": 12, "p": 5, "t": 6, "u": 9, "v": 11}


@dataclass(frozen=True)
class ShapedCall:
    """A valid call.

    Attributes:
        function: the op's name, and that of the function.
        tensors: dtype and shape of each tensor argument.
        options: the other arguments.
        values: the values of tensors that are not arbitrary; integers are 0 otherwise.
        accepts: other changes that a function accepts, by argument.
        case: to tell apart two calls of one function.
    """

    function: str
    tensors: dict[str, str]
    options: dict[str, Any] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    accepts: dict[str, str] = field(default_factory=dict)
    case: str = ""


def like(names: str, shape: str) -> dict[str, str]:
    return dict.fromkeys(names.split(), shape)


@functools.cache
def loaded() -> dict[str, Any]:
    """Return the functions of every op and module on the CPU, with the optimizers that calls mention."""
    ops = load_every_op([])
    for op, create in (("cpu_adam", "create_adam"), ("cpu_lion", "create_lion"), ("cpu_adagrad", "create_adagrad")):
        getattr(ops[op], create)(0)
    assert ops["cpu_adam"].zenflow_adam_create(0, []) == 0
    return ops


def function_of(call: ShapedCall) -> Callable[..., Any]:
    """Return the function."""
    op, _, name = call.function.rpartition(".")
    found: Callable[..., Any] = getattr(loaded()[op], name)
    return found


def dimensions(written: str) -> list[str]:
    """Return the words of a description that stand for sizes."""
    return [word for word in written.split() if re.fullmatch(r"\d*[a-z]?\+?", word)]


def shape_of(written: str) -> list[int]:
    """Return the shape that a description stands for."""
    return [_size(word) for word in dimensions(written)]


def _size(word: str) -> int:
    factor, letter = re.fullmatch(r"(\d*)([a-z]?)\+?", word).groups()  # type: ignore[union-attr]
    return int(factor or 1) * (SIZES[letter] if letter else 1)


def lists(written: str) -> int:
    """Return how many lists of one tensor a description stands for, 0 for a tensor."""
    brackets = re.match(r"(\d*)\[", written)
    return int(brackets[1] or 1) if brackets else 0


def arguments_of(call: ShapedCall, shapes: Mapping[tuple[str, int], list[int]] | None = None) -> dict[str, Any]:
    """Return new tensors and the options of a call; the values are the same each time.

    Args:
        call: the call.
        shapes: other shapes than those in the table, by argument and index in its lists.
    """
    generator = torch.Generator().manual_seed(0)
    made: dict[str, Any] = {}
    for name, written in call.tensors.items():
        several = [
            _tensor(written, (shapes or {}).get((name, index), shape_of(written)), call.values.get(name), generator)
            for index in range(max(lists(written), 1))
        ]
        made[name] = [[one] for one in several] if "[[]]" in written else several if lists(written) else several[0]
    routing = {name: made.pop(name) for name in list(made) if name.startswith("routing.")}
    if routing:
        made["routing"] = Routing(*routing.values())
    return {**made, **call.options}


def tensors_of(value: Any) -> list[torch.Tensor]:
    """Return the tensors in a value, in order."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict | Routing):
        value = list((value if isinstance(value, dict) else vars(value)).values())
    return [tensor for one in value for tensor in tensors_of(one)] if isinstance(value, list | tuple) else []


def _tensor(written: str, shape: list[int], values: Any, generator: torch.Generator) -> torch.Tensor:
    named = [word for word in written.split() if re.fullmatch(r"[a-z]+\d\w*", word)]
    dtype = getattr(torch, named[0]) if named else torch.bool if "bool" in written else torch.float32
    if values is None:
        return (
            torch.randint(1, 4, shape, generator=generator).to(dtype)
            if dtype.is_floating_point
            else torch.zeros(shape, dtype=dtype)
        )
    given = torch.tensor(values, dtype=dtype)
    if len(shape) < given.dim():
        return given[0].clone()
    for dim, size in enumerate(shape[len(shape) - given.dim() :]):
        given = given.index_select(dim, torch.arange(size).clamp(max=given.shape[dim] - 1))
    return given.expand(shape).clone()
