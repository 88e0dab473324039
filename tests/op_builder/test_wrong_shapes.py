"""A function refuses a tensor whose shape does not fit the others', says so, and writes nothing: none broadcasts silently."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import TYPE_CHECKING, Any

import pytest
import torch

from .calls import CALLS, NOT_CALLED
from .calls.call import SIZES, ShapedCall, arguments_of, dimensions, function_of, lists, loaded, shape_of, tensors_of

if TYPE_CHECKING:
    from collections.abc import Iterator

WRONG_IN_FRONT = 17


@dataclasses.dataclass(frozen=True)
class Change:
    """Another shape for one tensor.

    Attributes:
        kind: ``"1 smaller"`` for dimension 1, ``"fewer"`` or ``"more"`` dimensions.
        is_right: whether the function takes it; None if either is fine.
    """

    argument: str
    index: int
    kind: str
    shape: list[int]
    is_right: bool | None


def _changes(call: ShapedCall) -> Iterator[Change]:
    letters = "".join(re.sub(r"[^a-z]", "", word) for written in call.tensors.values() for word in dimensions(written))
    for name, written in call.tensors.items():
        words = dimensions(written)
        shape = shape_of(written)
        is_alone = [word.isalpha() and letters.count(word) == 1 and lists(written) < 2 for word in words]
        accepted = call.accepts.get(name, "").split(", ")
        for index in range(max(lists(written), 1)):
            for kind, changed in _other_shapes(shape):
                dim, _, how = kind.partition(" ")
                is_right: bool | None = "any" in written or kind in accepted
                if how:
                    is_right = is_right or is_alone[int(dim)] or (how == "larger" and words[int(dim)].endswith("+"))
                elif not is_right and True in is_alone[:1]:
                    is_right = None
                yield Change(name, index, kind, changed, is_right)


def _other_shapes(shape: list[int]) -> Iterator[tuple[str, list[int]]]:
    for dim, size in enumerate(shape):
        for how, other in (("of 1", 1), ("smaller", size - 1), ("larger", size + 1)):
            if other != size and (how, other) != ("smaller", 1):
                yield f"{dim} {how}", [*shape[:dim], other, *shape[dim + 1 :]]
    if shape not in ([], [1]):  # a number may have a dimension or none
        yield "fewer", shape[1:]
    yield "more", [WRONG_IN_FRONT, *shape]


def _outcome(call: ShapedCall, change: Change | None = None) -> str:
    """Return ``taken`` or ``refused``, or what is wrong with the refusal."""
    arguments = arguments_of(call, {(change.argument, change.index): change.shape} if change else None)
    given = tensors_of(arguments)
    before = [tensor.clone() for tensor in given]
    try:
        function_of(call)(**arguments)
    except Exception as error:
        if "Fix:" not in str(error):
            return f"refused with another's message: {type(error).__name__}: {error}".splitlines()[0]
        if not all(_same(*pair) for pair in zip(given, before, strict=True)):
            return "refused after it wrote"
        return "refused"
    return "taken"


def _same(tensor: torch.Tensor, before: torch.Tensor) -> bool:
    return torch.equal(tensor, before) if tensor.dtype.itemsize > 1 else torch.equal(tensor.int(), before.int())


@pytest.mark.parametrize("call", CALLS, ids=lambda call: f"{call.function} {call.case}".strip())
def test_a_shape_that_does_not_fit_is_refused(call: ShapedCall) -> None:
    function_of(call)(**arguments_of(call))
    wrong = []
    for change in _changes(call):
        outcome = _outcome(call, change)
        if outcome not in {True: ["taken"], False: ["refused"], None: ["taken", "refused"]}[change.is_right]:
            wrong.append(f"{change.argument}[{change.index}] of {change.shape} ({change.kind}): {outcome}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("call", [call for call in CALLS if call.accepts], ids=lambda call: call.function)
def test_what_the_table_accepts_is_tried(call: ShapedCall) -> None:
    tried = {(change.argument, change.kind) for change in _changes(call)}
    assert tried >= {(name, kind) for name, kinds in call.accepts.items() for kind in kinds.split(", ")}


@pytest.mark.parametrize("size", [0, 1])
def test_any_size_may_be_none_or_one(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everywhere in a call: it computes nothing, or says what it needs, where options and values fix a size."""
    refused = 0
    for call in CALLS:
        words = [word for written in call.tensors.values() for word in dimensions(written)]
        for letter in {letter for word in words for letter in re.sub(r"[^a-z]", "", word)}:
            with monkeypatch.context() as changed:
                changed.setitem(SIZES, letter, size)
                outcome = _outcome(call)
            assert outcome in ("taken", "refused"), (call.function, letter)
            refused += outcome == "refused"
    assert refused == (33 if size else 49)


@pytest.mark.parametrize(
    "call", [call for call in CALLS if any(map(lists, call.tensors.values()))], ids=lambda call: call.function
)
def test_lists_of_other_lengths_are_refused(call: ShapedCall) -> None:
    for name, value in arguments_of(call).items():
        if call.tensors.get(name, "").startswith("[]") and name != "tensors":
            with pytest.raises((RuntimeError, ValueError), match="Fix:"):
                function_of(call)(**arguments_of(call) | {name: []})
        elif "[[]]" in call.tensors.get(name, ""):
            for index in range(len(value)):
                shorter = [[] if at == index else tensors for at, tensors in enumerate(value)]
                with pytest.raises((RuntimeError, ValueError), match="Fix:"):
                    function_of(call)(**arguments_of(call) | {name: shorter})


def test_every_function_with_two_tensors_has_a_call() -> None:
    called = {call.function for call in CALLS}
    missing = []
    for op, functions in loaded().items():
        for name, count in _tensors_of_functions(functions):
            if count > 1 and f"{op}.{name}" not in called and f"{op}.{name}" not in NOT_CALLED:
                missing.append(f"{op}.{name}")
    assert not missing
    assert not called & set(NOT_CALLED)


def _tensors_of_functions(functions: Any) -> Iterator[tuple[str, int]]:
    """Return the name of each function, and how many tensors or lists of tensors it takes; of several names the first."""
    met = set()
    for name, function in inspect.getmembers(functions, callable):
        one = getattr(function, "__func__", function)
        if name.startswith("_") or one in met or inspect.isclass(function):
            continue
        met.add(one)
        annotations = [str(parameter.annotation) for parameter in inspect.signature(function).parameters.values()]
        yield name, sum("Tensor" in annotation for annotation in annotations)
