"""The targets of the fuzzer: every torch op of a namespace, by its schema, and every public function, by its annotations."""

from __future__ import annotations

import dataclasses
import inspect
import re
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import torch

from anyaccel.op_builder.all_ops import BUILDERS, builder_class
from anyaccel.op_builder.colossalai.surface import modules
from anyaccel.op_builder.kernel_loader import loader_class
from anyaccel.op_builder.op import resolve

from .specs import Argument

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Target", "load_every_op", "public_targets", "raw_targets"]


@dataclass
class Target:
    """A function and its arguments.

    Attributes:
        is_raw: a torch op, whose schema says what it writes.
        groups: names of arguments that are the fields of one dataclass, by the name of that argument.
    """

    name: str
    function: Callable[..., Any]
    arguments: list[Argument]
    is_raw: bool
    groups: dict[str, tuple[type[Any], list[str]]] = dataclasses.field(default_factory=dict)

    def call(self, values: dict[str, Any]) -> Any:
        given = dict(values)
        for name, (cls, fields) in self.groups.items():
            given[name] = cls(**{field: given.pop(f"{name}.{field}") for field in fields})
        return self.function(**given)


def load_every_op(only: list[str]) -> dict[str, Any]:
    """Load every op that the table of builders has for the CPU; return their functions by the op's name.

    Args:
        only: names of ops; empty for all.
    """
    loaded: dict[str, Any] = {}
    for name in BUILDERS:
        cls = builder_class(name, "cpu")
        if cls is None or name == "ShmCommBuilder":  # a process group, not an op
            continue
        if not only or cls.NAME in only:
            loaded[cls.NAME] = cls().load()
    for loader, target in modules().items() if not only else ():
        cls = resolve(f"op_builder.colossalai.{target}")
        if inspect.isclass(cls):
            module = loader_class(loader)().load()
            own = {name: getattr(module, name) for name in vars(cls) if name[0].islower()}
            loaded[f"colossalai.{loader}"] = SimpleNamespace(**own)
    return loaded


_KINDS = {
    "Tensor": "tensor", "List[Tensor]": "tensors", "int": "int", "List[int]": "ints", "float": "float", "bool": "bool",
    "ScalarType": "dtype",
}  # fmt: skip


def raw_targets(namespace: str) -> list[Target]:
    """Return a namespace's ops, each with the arguments of its schema."""
    targets = []
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        if not name.startswith(f"{namespace}::"):
            continue
        short = name.split("::")[1].split(".")[0]
        op = getattr(getattr(torch.ops, namespace), short).default
        targets.append(Target(name, op, [_of_schema(argument) for argument in op._schema.arguments], is_raw=True))
    return targets


def _of_schema(argument: Any) -> Argument:
    text = str(argument.real_type)
    is_optional = text.startswith("Optional[")
    kind = _KINDS[text.removeprefix("Optional[").removesuffix("]") if is_optional else text]
    is_written = argument.alias_info is not None and argument.alias_info.is_write
    return Argument(argument.name, kind, is_optional, is_written, argument.kwarg_only)


def public_targets(loaded: dict[str, Any], *, with_fronts: bool) -> list[Target]:
    """Return the functions of ``anyaccel.ops`` and of everything that the builders load."""
    from anyaccel.ops import functional

    found: dict[str, Callable[..., Any]] = {}
    if with_fronts:  # each of them loads its op
        found = {f"anyaccel.ops.{name}": getattr(functional, name) for name in functional.__all__}
    for op, functions in loaded.items():
        met = set()
        for name, function in inspect.getmembers(functions, callable):
            one = getattr(function, "__func__", function)  # some have a name for each dtype
            if not name.startswith("_") and one not in met:
                found[f"{op}.{name}"] = function
                met.add(one)
    targets = []
    for name, function in found.items():
        try:
            targets.append(_of_function(name, function))
        except (TypeError, ValueError):  # an argument that is neither a tensor nor a number, or no arguments
            continue
    return targets


def _of_function(name: str, function: Callable[..., Any]) -> Target:
    target = Target(name, function, [], is_raw=False)
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in ("control_ptr", "kv_ptrs", "attention_atoms"):
            msg = f"{name} takes an address, which nobody can check"
            raise ValueError(msg)
        annotation = str(parameter.annotation)
        if annotation == "Routing":
            from anyaccel.kernels.functions.moe import Routing

            fields = [field.name for field in dataclasses.fields(Routing)]
            target.groups[parameter.name] = (Routing, fields)
            target.arguments += [Argument(f"{parameter.name}.{field}", "tensor", is_written=None) for field in fields]
            continue
        target.arguments.append(_of_annotation(parameter.name, annotation))
    if not target.arguments:
        msg = f"{name} takes nothing"
        raise ValueError(msg)
    return target


def _of_annotation(name: str, annotation: str) -> Argument:
    choices = re.match(r"(?:typing\.)?Literal\[(.*)\]", annotation)
    if choices:
        return Argument(name, "choice", choices=tuple(part.strip(" '\"") for part in choices[1].split(",")))
    parts = [part.strip() for part in annotation.split("|")]
    kinds = {
        "torch.Tensor": "tensor", "int": "int", "float": "float", "bool": "bool", "torch.dtype": "dtype",
        "Sequence[torch.Tensor]": "tensors", "Iterable[torch.Tensor]": "tensors", "Sequence[int]": "ints",
    }  # fmt: skip
    known = [kinds[part] for part in parts if part in kinds]
    if not known:
        raise ValueError(annotation)
    kind = "tensors" if "tensors" in known else known[0]
    return Argument(name, kind, is_optional="None" in parts, is_written=None if kind.startswith("tensor") else False)
