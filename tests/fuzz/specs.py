"""Symbolic descriptions of calls: a search changes specs, and each call draws numbers for their symbols.

A spec is plain data for JSON. A size is a product such as ``a``, ``2*b`` or ``a*c``. In lists of tensors, each index
has its own dimensions, the same in every list of the call.
"""

from __future__ import annotations

import pickle
import random
import re
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["DTYPES", "Argument", "Spec", "mutated", "new_spec"]

Spec = dict[str, Any]

DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64, torch.int32, torch.int16, torch.int8,
        torch.uint8, torch.bool, torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64, torch.complex128,
    )
}  # fmt: skip
_OFTEN = ["float32", "bfloat16", "float16", "float64", "int64", "int32", "int8", "uint8", "bool", "float8_e4m3fn"]
_SIZES = ["a", "b", "c", "d", "2*a", "2*b", "2*d", "a*b", "a*c", "a*b*c", "1", "2", "0", "n"]
_SPECIALS = ["sparse", "csr", "meta", "zero", "neg", "conj", "quantized", "mkldnn", "nested", "requires_grad"]
_INTS = [
    "0",
    "1",
    "2",
    "3",
    "4",
    "8",
    "16",
    "17",
    "-1",
    "a",
    "b",
    "c",
    "n",
    "2*a",
    "100",
    str(2**31),
    str(2**62),
    str(-(2**63)),
]
_FLOATS = [0.0, 1.0, 0.5, 0.9, 1e-3, 1e-8, 0.1, 2.0, -1.0, 1e300, float("inf"), float("nan")]


@dataclass(frozen=True)
class Argument:
    """An argument of an op.

    Attributes:
        kind: ``tensor``, ``tensors``, ``int``, ``ints``, ``float``, ``bool``, ``dtype`` or ``choice``.
        is_written: None if unknown.
        choices: the values of a ``choice``.
    """

    name: str
    kind: str
    is_optional: bool = False
    is_written: bool | None = False
    is_keyword: bool = False
    choices: tuple[str, ...] = ()


def _shape(rng: random.Random) -> list[str]:
    rank = rng.choices(range(6), [1, 4, 6, 3, 2, 1])[0]
    if rng.random() < 0.6:
        return list("abcde"[:rank])
    if rng.random() < 0.2:
        return ["1"] * rng.randrange(3)
    return rng.choices(_SIZES, k=rank)


def _tensor(rng: random.Random, *, is_plain: bool = False) -> Spec:
    shape = ["a", "b"] if is_plain or rng.random() < 0.4 else _shape(rng)
    dtype = "float32" if is_plain or rng.random() < 0.5 else rng.choice(_OFTEN)
    return {"shape": shape, "dtype": dtype, "below": rng.choice(["1", "2", "a", "b", "a*c"]), "special": ""}


def _value(argument: Argument, rng: random.Random, *, is_plain: bool = False) -> Any:
    if argument.is_optional and rng.random() < 0.4:
        return None
    match argument.kind:
        case "tensor":
            return _tensor(rng, is_plain=is_plain)
        case "tensors":
            item = _tensor(rng, is_plain=is_plain)
            return {"count": "n" if is_plain or rng.random() < 0.9 else rng.choice("0123"), "item": item, "odd": None}
        case "int":
            return rng.choice(_INTS if rng.random() < 0.7 else ["1", "2", "a", "b", "c", "n", "4", "8"])
        case "ints":
            return {"count": "n" if rng.random() < 0.9 else rng.choice("012"), "value": rng.choice(_INTS)}
        case "float":
            return rng.choice(_FLOATS[:7] if rng.random() < 0.8 else _FLOATS)
        case "bool":
            return rng.random() < 0.5
        case "dtype":
            return rng.choice(_OFTEN) if rng.random() < 0.8 else rng.choice(list(DTYPES))
        case "choice":
            return rng.choice([*argument.choices, "neither"])
    raise ValueError(argument.kind)


def new_spec(arguments: list[Argument], rng: random.Random) -> Spec:
    """Return a spec; half of them start with two-dimensional float32 tensors everywhere."""
    is_plain = rng.random() < 0.5
    return {argument.name: _value(argument, rng, is_plain=is_plain) for argument in arguments}


def _tensors_of(spec: Spec, arguments: list[Argument]) -> list[Spec]:
    values = [(argument.kind, spec[argument.name]) for argument in arguments]
    return [
        value["item"] if kind == "tensors" else value for kind, value in values if kind.startswith("tensor") and value
    ]


def _change_tensor(tensor: Spec, others: list[Spec], rng: random.Random) -> None:
    other = rng.choice(others)
    what = rng.choices(range(8), [18, 12, 24, 14, 18, 5, 8, 1])[0]
    if what == 0:
        tensor["shape"] = list(other["shape"])
    elif what == 1:
        tensor.update(pickle.loads(pickle.dumps(other)))
    elif what == 2:
        shape = other["shape"]
        parts = [
            shape[-1:],
            shape[:-1],
            shape[:1],
            shape[::-1],
            [*shape[:-1], rng.choice("abcde")],
            ["1"] * rng.randrange(3),
        ]
        parts += [["*".join(shape[:-1] or "1")], ["*".join(shape or "1")]]  # as many as there are rows, or elements
        tensor["shape"] = _shape(rng) if rng.random() < 0.3 else list(rng.choice(parts))
    elif what == 3:
        own: list[str] = tensor["shape"]
        at = rng.randrange(len(own) + 1)
        own[at : at + rng.randrange(2)] = rng.choices(_SIZES, k=rng.randrange(2))
    elif what == 4:
        tensor["dtype"] = rng.choice(_OFTEN) if rng.random() < 0.9 else rng.choice(list(DTYPES))
    elif what == 5:
        tensor["dtype"] = other["dtype"]
    elif what == 6:
        tensor["below"] = rng.choice(["1", "2", "a", "b", "c", "n", "a*b", "a*c"])
    else:
        tensor["special"] = rng.choice(_SPECIALS)


def mutated(spec: Spec, arguments: list[Argument], rng: random.Random, message: str = "") -> Spec:
    """Return a spec that differs in one or a few arguments; often in one that a rejection's message names."""
    weights = [
        4 if argument.kind.startswith("tensor") else 2 if argument.kind == "int" else 1 for argument in arguments
    ]
    words = set(re.findall(r"\w+", message.partition("got ")[2]))
    named = [argument for argument in arguments if argument.name in words]
    changed: Spec = pickle.loads(pickle.dumps(spec))  # the fastest copy
    for _ in range(rng.choices([1, 2, 3], [6, 2, 1])[0]):
        argument = rng.choice(named) if named and rng.random() < 0.6 else rng.choices(arguments, weights)[0]
        value = changed[argument.name]
        if value is None or not argument.kind.startswith("tensor") or (argument.is_optional and rng.random() < 0.2):
            changed[argument.name] = _value(argument, rng, is_plain=rng.random() < 0.5)
            continue
        others = _tensors_of(changed, arguments)
        if argument.kind == "tensor":
            _change_tensor(value, others, rng)
        elif rng.random() < 0.8:
            _change_tensor(value["item"], others, rng)
        elif rng.random() < 0.5:
            value["count"] = rng.choice(["n", "0", "1", "3"])
        else:
            value["odd"] = None if value["odd"] else pickle.loads(pickle.dumps(value["item"]))
            if value["odd"]:
                _change_tensor(value["odd"], others, rng)
    return changed
