"""The float64 references in tests/ops, by op name."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.ops import activations_reference, rotary_embedding_reference, softmax_reference

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["reference_of"]

_found: dict[str, Any] = {}


def reference_of(name: str) -> Callable[[dict[str, Any]], Any] | None:
    """Return a function that computes an op's result in float64; None if there is no reference.

    A function in a ``*_reference.py`` is a reference if it has the op's name and its parameters are among the op's arguments;
    other references are in the table below. A reference returns the op's first result.
    """
    short = name.replace("::", ".").rsplit(".", maxsplit=1)[1]
    if name.startswith(("colossalai.", "transformer_inference.")):  # other arguments under some of the same names
        return None
    if short not in _found:
        _found[short] = _TABLE.get(short) or _by_name(short)
    found: Callable[[dict[str, Any]], Any] | None = _found[short]
    return found


def _by_name(short: str) -> Any:
    for path in sorted((Path(__file__).parent.parent / "ops").glob("*_reference.py")):
        function = getattr(importlib.import_module(f"tests.ops.{path.stem}"), short, None)
        if function is None:
            continue
        names = list(inspect.signature(function).parameters)
        return lambda given, function=function, names=names: (
            function(**{name: given[name] for name in names}) if set(names) <= given.keys() else None
        )
    return None


def _approximation(given: dict[str, Any]) -> str:
    if "tanh" in given:
        return "tanh" if given["tanh"] else "none"
    return str(given["approximate"])


def _softmax(given: dict[str, Any]) -> Any:
    mask = given["mask"]
    return softmax_reference.masked_softmax(given["x"], None if mask is None else mask.bool(), given["scale"])


def _rotary(given: dict[str, Any]) -> Any:
    sin = -given["sin"] if given.get("inverse") else given["sin"]
    return rotary_embedding_reference.rotary_embedding(given["x"], given["cos"], sin, given["interleaved"])


def _none(given: dict[str, Any]) -> None:
    """Stands for a reference whose results have another form, or jump when the last bit of an input changes."""


_TABLE: dict[str, Any] = {
    "swiglu": lambda given: activations_reference.silu(given["gate"]) * given["up"],
    "geglu": lambda given: activations_reference.gelu(given["gate"], _approximation(given)) * given["up"],
    "bias_gelu": lambda given: activations_reference.gelu(given["x"] + given["bias"], _approximation(given)),
    "scaled_masked_softmax": _softmax,
    "rotary_embedding": _rotary,
    "quantize": _none,
    "topk_gating": _none,
}
