"""Runs functions symbolically on a machine without CUDA, to compare a module before and after its migration.

Every name that a module does not define is a symbol. What is done with symbols is written down in order; a symbol is true
or false by its name and a seed. Tensors and devices are on the CPU: moves return the object itself, and what asks
CUDA for anything but harmless commands raises :class:`NoCuda`. With another ``machine``, a symbol is on its device if it is
true, and moves and commands are written down, too.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import re
import zlib
from typing import Any

LIMIT = 400
OPTIONS = ("pin_memory", "non_blocking", "fused", "num_workers", "persistent_workers")
FORKS = ("fork_rng", "set_device_states")
"""Functions of generators that get no devices on a CPU, whatever their type."""
HARMLESS = (
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "empty_cache",
    "set_stream",
    "range_push",
    "range_pop",
)
COMMANDS = (*HARMLESS, "synchronize", "set_device", "record_stream", "lazy_call")
FIGURES = ("memory_allocated", "max_memory_allocated", "memory_reserved", "max_memory_reserved", "memory_cached")
UNSAFE = (
    "open",
    "exec",
    "eval",
    "input",
    "exit",
    "quit",
    "__import__",
    "isinstance",
    "issubclass",
    "super",
    "globals",
    "vars",
)
OF_OTHERS = re.compile(r"^torch\.(xpu|npu|hpu|backends\.mps)\.is_available$|^is_(torch_)?(xpu|npu|hpu|mps)_available$")
ADDRESS = re.compile(r" at 0x\w+")
NAMES_CUDA = re.compile(r"cuda|gpu|nvidia", re.IGNORECASE)


class NoCuda(RuntimeError):  # an outcome
    """The old code needs CUDA here."""


class Enough(BaseException):
    """So many operations that the run ends."""


class Run:
    """One run of a module's functions: what has happened, the answers that attributes hold, and the seed."""

    def __init__(self, *, is_new: bool, seed: int, machine: str = "cpu") -> None:
        self.is_new, self.seed, self.machine = is_new, seed, machine
        self.events: list[str] = []
        self.kept: dict[str, bool] = {}
        self.operations = 0

    def note(self, *event: Any) -> None:
        self.events.append(" ".join(map(str, event)))

    def device_of(self, name: str) -> str:
        """Return the type of the device of a symbol."""
        is_there = zlib.crc32(f"{self.seed} {name.removesuffix('.device')} is there".encode()) & 16
        return self.machine if is_there else "cpu"

    def count(self) -> None:
        self.operations += 1
        if self.operations > LIMIT:
            raise Enough


class Symbol:
    """A value about which only its origin is known."""

    def __init__(self, name: str, run: Run, owner: Symbol | None = None) -> None:
        self.__dict__.update(_name=name, _run=run, _owner=owner)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        self._run.count()
        if name == "is_cuda" or f"{self._name}.{name}" == "torch.cuda._initialized":
            return self._run.device_of(self._name) == "cuda"
        if name == "type" and self._name.rpartition(".")[2].endswith("device"):
            return self._run.device_of(self._name)
        if name in self._run.kept and not self._name.startswith("torch"):
            return self._run.kept[name]
        return Symbol(f"{self._name}.{name}", self._run, self)

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, bool):
            self._run.kept[name] = value
        elif not self._name.startswith("torch.backends"):
            self._run.note("set", self._name, name, shown(value))

    def __call__(self, *args: Any, **options: Any) -> Any:
        self._run.count()
        name, last = self._name, self._name.rpartition(".")[2]
        if name.startswith("torch.cuda."):
            return self._of_cuda(last)
        if name.endswith("get_accelerator"):
            return Accelerator(self._run)
        if name == "torch.device":
            return args[0]
        if name == "torch.is_autocast_enabled":  # without an argument it asks about CUDA
            return Symbol(name, self._run) if args else False
        if self._run.machine != "cuda" and (last == "cuda" or _needs_cuda(name, args, options)):
            raise NoCuda
        if last in ("to", "cuda", "cpu", "pin_memory") and self._owner is not None and len(args) + len(options) <= 2:
            if self._run.machine != "cpu":
                self._run.note("move", self._owner, "cuda" if last == "cuda" else shown((*args, last)[0]))
            return self._owner
        if last == "startswith" and args and isinstance(args[0], str):
            return self._run.device_of(self._name).startswith(args[0])
        if OF_OTHERS.search(name):
            return False
        if last in FORKS:
            options.pop("device_type", None)
        given = [shown(each) for each in args]
        given += [f"{key}={shown(value)}" for key, value in sorted(options.items()) if key not in OPTIONS]
        made = f"{name}({', '.join(given)})"
        if not name.startswith(("torch.manual_seed", "gc.collect", "torch.set_default_")):
            self._run.note("call", made)
        return Symbol(made, self._run)

    def _of_cuda(self, last: str) -> Any:
        is_there = self._run.machine == "cuda"
        if last in ("is_available", "is_initialized"):
            return is_there
        if last == "device_count":
            return 2 if is_there else 0
        if is_there and last not in FIGURES:
            self._run.note("command", last)
            return Symbol(f"accelerator.{last}", self._run)
        if last in FIGURES:
            return 0
        if last in HARMLESS:
            return None
        raise NoCuda

    def name_of(self) -> str:
        """Return its name, whatever attributes its code has."""
        return str(self._name)

    def __bool__(self) -> bool:
        self._run.count()
        return bool(zlib.crc32(f"{self._run.seed} {self._name}".encode()) & 16)

    def __eq__(self, other: object) -> Any:
        if isinstance(other, str) and other.partition(":")[0] in ("cpu", "cuda", "mps", "xpu"):
            return other.partition(":")[0] == self._run.device_of(self._name)
        if other == "nccl" and self._name.startswith("torch.distributed.get_backend("):
            return False
        if isinstance(other, type):  # type(x) == C, which is true only for what this run has made with C
            return any(f"call {self._name}(" in each for each in self._run.events)
        return Symbol(f"({self._name} == {shown(other)})", self._run)

    def __ne__(self, other: object) -> Any:
        return not (self == other)

    def __hash__(self) -> int:
        return hash(self._name)

    def __contains__(self, value: object) -> bool:
        return bool(self == value)

    def __iter__(self) -> Any:
        self._run.count()
        return iter([Symbol(f"{self._name}[{i}]", self._run) for i in range(2)])

    def __getitem__(self, key: Any) -> Any:
        self._run.count()
        self._run.note("get", f"{self._name}[{shown(key)}]")  # it may be missing
        return Symbol(f"{self._name}[{shown(key)}]", self._run)

    def __setitem__(self, key: Any, value: Any) -> None:
        if str(key) not in OPTIONS:
            self._run.note("set", self._name, shown(key), shown(value))

    def __len__(self) -> int:
        return 2

    def __index__(self) -> int:
        return 1

    __int__ = __index__

    def __float__(self) -> float:
        return 1.0

    def __enter__(self) -> Any:
        self._run.note("with", self._name)
        return self

    def __exit__(self, *_: object) -> None:
        self._run.note("leave", self._name)

    def __repr__(self) -> str:
        return str(self._name)

    def __format__(self, _: str) -> str:
        return str(self._name)


def _needs_cuda(name: str, args: tuple[Any, ...], options: dict[str, Any]) -> bool:
    """Return whether torch would refuse a call: a move to CUDA, or a tensor in pinned memory."""
    moves = [*(args[:1] if name.endswith(".to") else ()), options.get("device")]
    is_factory = name.startswith("torch.") and not name.startswith(("torch.utils.", "torch.optim."))
    is_pinned = is_factory and options.get("pin_memory") is True
    return is_pinned or any(isinstance(each, str) and each.startswith("cuda") for each in moves)


def _operator(name: str) -> Any:
    return lambda self, *others: Symbol(f"{name}({self._name}, {', '.join(map(shown, others))})", self._run)


for _name in [
    "add",
    "sub",
    "mul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "lt",
    "le",
    "gt",
    "ge",
    "neg",
    "and",
    "or",
    "matmul",
]:
    setattr(Symbol, f"__{_name}__", _operator(_name))
    setattr(Symbol, f"__r{_name}__", _operator(f"r{_name}"))


class Accelerator:
    """The contract's CPU accelerator, as far as the rewritten code uses it."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __getattr__(self, name: str) -> Any:
        run = self._run
        if name in COMMANDS or name.startswith("reset_"):
            return lambda *_, **__: run.note("command", name) if run.machine != "cpu" else None
        if run.machine != "cpu" and name in _OF_OTHERS:
            return _OF_OTHERS[name](run)
        if name in FIGURES:
            return lambda *_: 0
        if name.endswith("Tensor"):
            return Symbol(f"torch.{name}", run)
        known = {
            "is_available": lambda: True,
            "is_initialized": lambda: True,
            "on_accelerator": lambda _: True,
            "device_name": lambda *_: "cpu",
            "current_device_name": lambda: "cpu",
            "current_device": lambda: 0,
            "device_count": lambda: 1 + run.seed % 2,
            "pin_memory": lambda x, *_: x,
            "stream": lambda *_: contextlib.nullcontext(),
            "device_guard": lambda *_: contextlib.nullcontext(),
            "communication_backend_name": lambda: "gloo",
        }
        return known.get(name) or Symbol(f"accelerator.{name}", run)


_OF_OTHERS: dict[str, Any] = {
    "on_accelerator": lambda run: lambda x: run.device_of(x.name_of() if isinstance(x, Symbol) else "") != "cpu",
    "device_name": lambda run: lambda *index: f"{run.machine}:{shown(index[0])}" if index else run.machine,
    "current_device_name": lambda run: lambda: f"{run.machine}:0",
    "device_count": lambda _: lambda: 2,
    "pin_memory": lambda run: lambda x, *_: run.note("move", x, "pin_memory") or x,
    "communication_backend_name": lambda run: lambda: {"cuda": "nccl", "xpu": "xccl"}[run.machine],
}


def shown(value: Any) -> str:
    """Return a value as it appears in an event: options that a CPU ignores are left out."""
    if isinstance(value, dict):
        return str({key: shown(each) for key, each in value.items() if str(key) not in OPTIONS})
    return ADDRESS.sub("", str(value))


class _Bare(ast.NodeTransformer):
    """Removes imports, bases and decorators, whose names are symbols, and remembers what imports bind."""

    def __init__(self) -> None:
        self.names: dict[str, str] = {}

    def visit_Import(self, node: ast.Import) -> ast.stmt:  # ast's name
        for each in node.names:
            root = each.name.partition(".")[0]
            self.names[each.asname or root] = each.name if each.asname else root
        return ast.Pass()

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.stmt:
        self.names.update({each.asname or each.name: f"{node.module}.{each.name}" for each in node.names})
        return ast.Pass()

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.stmt:
        node.bases, node.keywords, node.decorator_list = [], [], []
        self.generic_visit(node)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.stmt:
        node.decorator_list = []
        self.generic_visit(node)
        return node


def outcomes(source: str, *, is_new: bool, seed: int, machine: str = "cpu") -> dict[str, list[str] | None]:
    """Return what each function of a module does and returns; None for one that needs CUDA, or stops without it."""
    run = Run(is_new=is_new, seed=seed, machine=machine)
    bare = _Bare()
    tree = ast.fix_missing_locations(bare.visit(ast.parse(source)))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    space: dict[str, Any] = {name: Symbol(name, run) for name in names if not hasattr(builtins, name)}
    space |= {name: Symbol(name, run) for name in UNSAFE}
    space |= {name: Symbol(full, run) for name, full in bare.names.items()}
    space["print"] = lambda *args, **_: (
        run.note("print", *args) if NAMES_CUDA.search(" ".join(map(str, args))) else None
    )
    found = {"<module>": _done(run, lambda: exec(compile(tree, "<module>", "exec"), space))}  # noqa: S102  # the corpus
    for owner in [None, *(node for node in tree.body if isinstance(node, ast.ClassDef))]:
        for function in owner.body if owner is not None else tree.body:
            if isinstance(function, ast.FunctionDef):
                holder = space.get(owner.name) if owner is not None else None
                made = space.get(function.name) if owner is None else getattr(holder, function.name, None)
                every = [*function.args.posonlyargs, *function.args.args]
                given = [Symbol(each.arg, run) for each in every]
                only = {each.arg: Symbol(each.arg, run) for each in function.args.kwonlyargs}
                key = f"{owner.name}.{function.name}" if owner is not None else function.name
                found[key] = _done(run, lambda made=made, given=given, only=only: made(*given, **only))
    return found


def _done(run: Run, function: Any) -> list[str] | None:
    run.events, run.operations = [], 0
    try:
        returned = function()
    except (NoCuda, AssertionError, RuntimeError, ValueError, SystemExit):
        return None
    except (Exception, Enough) as error:  # symbols do not support everything
        return [*run.events, type(error).__name__]
    return [*run.events, f"returns {shown(returned)}"]
