"""Repairs a spec according to a rejection: an op's message says which argument it got, and what it expected."""

from __future__ import annotations

import pickle
import re
from itertools import product
from typing import TYPE_CHECKING, Any

from .specs import DTYPES, Argument, Spec

if TYPE_CHECKING:
    import random
    from collections.abc import Mapping

__all__ = ["repaired"]

_REFUSAL = re.compile(r"got (\w+)(?:\[\d+\])? .*; expected (.*)")
_SHAPE = re.compile(r"\(((?:\d+(?:, )?)*)\)")


def repaired(
    spec: Spec, arguments: list[Argument], text: str, dims: Mapping[str, int], rng: random.Random
) -> Spec | None:
    """Return a spec with the argument that a rejection names changed to the expected one; None if the message has neither a
    shape nor a dtype.

    Args:
        spec: the rejected spec.
        arguments: the target's arguments.
        text: the rejection's text.
        dims: the number for each symbol.
        rng: chooses between symbols that stand for the same number.
    """
    said = _REFUSAL.search(text)
    named = next((one for one in arguments if said and one.name == said[1] and one.kind.startswith("tensor")), None)
    if said is None or named is None or not spec[named.name]:
        return None
    changed: Spec = pickle.loads(pickle.dumps(spec))
    value: Any = changed[named.name]
    tensor = value["item"] if named.kind == "tensors" else value
    shape, dtype = _SHAPE.match(said[2]), re.match(r"\w+", said[2])
    if shape is not None and named.kind == "tensor":
        tensor["shape"] = [_symbol(int(number), dims, rng) for number in re.findall(r"\d+", shape[1])]
    elif dtype is not None and dtype[0] in DTYPES:
        tensor["dtype"] = dtype[0]
    else:
        return None
    return changed


def _symbol(number: int, dims: Mapping[str, int], rng: random.Random) -> str:
    """Return a product of symbols for a number; the number itself if there is none."""
    single = [name for name, value in dims.items() if value == number and name.isalpha()]
    if single and rng.random() < 0.8:
        return rng.choice(single)
    names = [name for name in dims if name.isalpha()]
    products = ["*".join(pair) for pair in product(names, names) if dims[pair[0]] * dims[pair[1]] == number]
    products += [f"2*{name}" for name in names if 2 * dims[name] == number]
    return rng.choice([*single, *products, str(number)])
