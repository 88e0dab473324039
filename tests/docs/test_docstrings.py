"""Everything public is documented: purpose, parameters, results; functions of ``ops`` also with an example."""

from __future__ import annotations

import inspect
import re
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import typer.main

import anyaccel
from anyaccel import distributed, op_builder, ops, testing
from anyaccel.cli import app
from anyaccel.op_builder import kernel_extensions, kernel_loader
from anyaccel.op_builder.deepspeed.names import DEEPSPEED_NAMES
from anyaccel.op_builder.op import resolve
from anyaccel.op_builder.table import OPS

if TYPE_CHECKING:
    from collections.abc import Iterator

_ELSEWHERE = re.compile(r"^See :func:`anyaccel\.ops\.(\w+)`")
_SIBLING = re.compile(r":meth:`(\w+)`")
_FREE = ("self", "cls", "args", "kwargs", "options", "arguments")
"""Parameters of every function."""


class Documented(NamedTuple):
    """A public callable.

    Attributes:
        value: a function or a class.
        around: for a method, what it need not repeat: the docstrings of its class, and of methods that its own refers to.
        siblings: the docstrings of those methods alone.
    """

    value: Any
    around: str = ""
    siblings: str = ""


def _members(holder: type) -> Iterator[tuple[str, Documented]]:
    around = "".join(inspect.getdoc(one) or "" for one in holder.__mro__ if one is not object)
    for name, value in vars(holder).items():
        if not name.startswith("_") and inspect.isfunction(inspect.unwrap(getattr(value, "__func__", value))):
            siblings = _SIBLING.findall(inspect.getdoc(getattr(holder, name)) or "")
            referred = "".join(inspect.getdoc(getattr(holder, one, None)) or "" for one in siblings)
            yield name, Documented(getattr(holder, name), around + referred, referred)


def _exported(module: Any) -> Iterator[tuple[str, Documented]]:
    for name in module.__all__:
        value = getattr(module, name)
        if callable(value):
            yield f"{module.__name__}.{name}", Documented(value)
            if inspect.isclass(value) and value.__module__.startswith("anyaccel"):
                yield from ((f"{module.__name__}.{name}.{member}", one) for member, one in _members(value))


def _of_builders() -> Iterator[tuple[str, Documented]]:
    for op in OPS:
        if op.functions:
            yield from ((f"{op.builder}.{name}", one) for name, one in _members(op.functions_class()))


def _of_deepspeeds_builders() -> Iterator[tuple[str, Documented]]:
    for builder, alias in DEEPSPEED_NAMES.items():
        for module in {alias.module, *([alias.on_cpu[1]] if alias.on_cpu else [])}:
            for holder in resolve(f"op_builder.deepspeed.{module}").__mro__[:-1]:
                yield from ((f"{builder}.{name}", one) for name, one in _members(holder))


BUILDERS = dict((*_of_builders(), *_of_deepspeeds_builders()))
MODULES = (anyaccel, ops, testing, distributed, op_builder, kernel_extensions, kernel_loader)
PUBLIC = {name: one for module in MODULES for name, one in _exported(module)}
PUBLIC.update(BUILDERS)


def _lacks(documented: Documented) -> list[str]:
    """Return what is missing in a docstring."""
    value = documented.value
    text = inspect.getdoc(value) or ""
    elsewhere = _ELSEWHERE.match(text)
    if elsewhere:
        other = getattr(ops, elsewhere[1])
        same = [*inspect.signature(value).parameters][1:] == [*inspect.signature(other).parameters]
        return _lacks(Documented(other)) if same else [f"the parameters of {elsewhere[1]}, to which it refers"]
    if not text:
        return ["a docstring"]
    if inspect.isclass(value) and issubclass(value, Enum):
        return []
    called = value.__init__ if inspect.isclass(value) and "__init__" in vars(value) else value
    try:
        signature = inspect.signature(called)
    except ValueError:
        return []
    said = text + documented.around
    lacking = [name for name in signature.parameters if name not in _FREE and not re.search(rf"\b{name}\b", said)]
    if inspect.isfunction(value) and signature.return_annotation not in (None, "None", "Any", inspect.Signature.empty):
        says_what = re.search(r"Return|Yield|Whether|Make|The ", text)
        lacking += [] if says_what else ["what it returns"]
    return lacking


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_a_public_callable_is_documented(name: str) -> None:
    assert not _lacks(PUBLIC[name]), f"{name} does not say {_lacks(PUBLIC[name])}"


_NEVER_RAISE = (
    "bias_residual", "bias_residual_bf16", "bias_residual_fp16", "bias_residual_fp32", "create_adagrad", "create_adam",
    "create_handle", "create_lion", "destroy_adagrad", "destroy_adam", "destroy_lion", "pin_handle",
)  # fmt: skip
_DESCRIBES = re.compile(r"``\(|\b(shapes?|float\d+|u?int\d+|dtype|like|elements?|see|same|returned|ignored)\b")
"""What the description of a tensor has one of: a shape, a dtype, or a reference to another argument."""


def _described(text: str, parameter: str) -> str:
    """Return what ``Args`` says about a parameter."""
    found = re.search(rf"^ +{parameter}: (.*(?:\n {{8,}}.*)*)", text, flags=re.MULTILINE)
    return found[1] if found else ""


@pytest.mark.parametrize("name", sorted(name for name, one in BUILDERS.items() if inspect.isfunction(one.value)))
def test_a_function_of_a_builder_says_what_it_takes_and_when_it_raises(name: str) -> None:
    value, _, siblings = BUILDERS[name]
    text = inspect.getdoc(value) or ""
    if _ELSEWHERE.match(text):
        return  # a function of ops, which the next test reads
    said = f"{text}\n{siblings}"
    given = {key: one for key, one in inspect.signature(value).parameters.items() if key not in _FREE}
    tensors = [key for key, one in given.items() if "Tensor" in str(one.annotation)]
    lacking = [key for key in tensors if not _DESCRIBES.search(_described(said, key))]
    lacking += ["Args:"] if given and "Args:" not in said else []
    lacking += ["Raises:"] if "Raises:" not in said and name.rpartition(".")[2] not in _NEVER_RAISE else []
    assert not lacking, f"{name} does not describe {lacking}"


@pytest.mark.parametrize("name", sorted(name for name in ops.__all__ if inspect.isfunction(getattr(ops, name))))
def test_a_function_of_ops_has_everything_that_its_user_needs(name: str) -> None:
    text = inspect.getdoc(getattr(ops, name)) or ""
    assert [part for part in ("Args:", "Returns:", "Raises:", "Source:", ">>> ") if part not in text] == []


def _commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    yield name, command
    for word, inner in getattr(command, "commands", {}).items():
        yield from _commands(inner, f"{name} {word}")


@pytest.mark.parametrize(("name", "command"), [*_commands(typer.main.get_command(app), "anyaccel")])
def test_a_command_and_its_options_have_help(name: str, command: Any) -> None:
    assert command.help, name
    assert [one.name for one in command.params if not getattr(one, "help", "") and one.name != "help"] == []
