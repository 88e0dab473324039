"""The normal form of code on a machine whose accelerator is the CPU.

Two pieces of code with the same normal form do the same on a CPU: moves to the device that tensors are already on, the
accelerator's commands that a CPU ignores, and options such as ``pin_memory`` are removed; questions about the device
get the CPU's answer. Everything else stays, so that the comparison says "different" when in doubt.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys

__all__ = ["ACCELERATOR", "ASKED_ANYWHERE", "cpu_form"]

ACCELERATOR = "__accelerator__"
"""The name that stands for the accelerator in the code that is compared."""

ASKED_ANYWHERE = re.compile(
    r"(^|[._])(int|max|min|len|abs|str|get|getenv|getattr|\w*rank|current_device|device_count|randint|randrange)$"
)
"""The functions, in small letters, that give an index on every machine; others may ask CUDA's tools for it."""

_CPU = "__cpu__"
_FIGURE = "__figure__"  # of the process's memory; 0 only on a machine without CUDA
_NAMES = ("device_name", "current_device_name")
_QUESTIONS = ("is_available", "on_accelerator")
_ASKED_OF_OTHERS = ("torch.cuda.is_available", "torch.xpu.is_available", "torch.backends.mps.is_available")
_COMMANDS = frozenset(
    [
        *("synchronize", "empty_cache", "set_device", "range_push", "range_pop", "record_stream", "set_stream"),
        *("pin_memory", "reset_accumulated_memory_stats"),
    ]
)
_FIGURES = re.compile(r"^(max_)?memory_(allocated|reserved|cached)$")
_OF_MEMORY = re.compile(r"memory|mem_get_info")
_CONTEXTS = ("stream", "device_guard")
_OPTIONS = ("pin_memory", "non_blocking", "persistent_workers", "fused", "prefetch_factor")
_FLAG = re.compile(r"(^|_)(pin(_?mem(ory)?)?|non_blocking|fused|persistent_workers|prefetch|benchmark|deterministic)$")
_DEVICE = re.compile(r"(^|_)(dev|device)$|^(device|dev)_?(name|str)?$", re.IGNORECASE)
_SHOWN = re.compile(r"^(print|.*\.(info|debug|warning|warn|error|log|write))$")
_NAMES_CUDA = re.compile(r"cuda|gpu|nvidia|cudnn|tf32|tensor ?cores?|accelerat|\bcpu\b", re.IGNORECASE)
_HARMLESS = (
    "gc.collect",
    "torch.set_default_tensor_type",
    "torch.set_default_device",
)


_BUILTINS = frozenset(dir(builtins))


def cpu_form(code: str, *, is_end: bool = False) -> str | None:
    """Return the normal form of statements or of an expression; empty if they do nothing, None if they cannot be read.

    Args:
        code: the code.
        is_end: whether a function ends behind it, so that a ``return`` without a value at its end does nothing.
    """
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError):
        return None
    body = _OnCpu().block(tree.body)
    if is_end and body and isinstance(body[-1], ast.Return) and _is_none(body[-1].value):
        body = body[:-1]
    return "\n".join(ast.unparse(each) for each in body)


class _OnCpu(ast.NodeTransformer):
    """Rewrites a tree to its normal form, innermost nodes first."""

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        """Return the statements of a block that do something on a CPU."""
        kept: list[ast.stmt] = []
        for statement in body:
            new = self.visit(statement)
            kept += new if isinstance(new, list) else [new] if new is not None else []
        return kept

    def _blocks(self, node: ast.stmt) -> None:
        """Rewrite a compound statement's expressions and blocks in place."""
        for name, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                setattr(node, name, self.visit(value))
            elif isinstance(value, list) and value and isinstance(value[0], ast.stmt):
                setattr(node, name, self.block(value))
            elif isinstance(value, list):
                setattr(node, name, [self.visit(each) if isinstance(each, ast.AST) else each for each in value])

    # Expressions

    def visit_Call(self, node: ast.Call) -> ast.expr:  # ast's name
        self.generic_visit(node)
        name = ast.unparse(node.func)
        is_factory = name.startswith("torch.") and not name.startswith(("torch.utils.", "torch.optim."))
        kept = ("pin_memory",) if is_factory else ()  # torch.empty(pin_memory=True) fails on a CPU
        node.keywords = [each for each in node.keywords if each.arg not in _OPTIONS or each.arg in kept]
        member = _member(node.func)
        if member in _NAMES and not any(map(_may_fail, node.args)):
            return ast.Name(_CPU)
        if member in _QUESTIONS:
            return ast.Constant(value=True)
        if member == "pin_memory" and node.args:
            return node.args[0]
        if member == "pin_empty":
            return ast.Call(ast.parse("torch.empty", mode="eval").body, node.args, node.keywords)
        if member is not None and _FIGURES.match(member):
            return ast.Name(_FIGURE)
        if name in _ASKED_OF_OTHERS:
            return ast.Constant(value=False)
        if name in ("torch.device", "device", "str") and node.args and _is_cpu(node.args[0]) and not node.keywords:
            return ast.Name(_CPU)
        if name in ("bool", "list", "tuple") and len(node.args) == 1 and _is_plain(node.args[0], name):
            return node.args[0]
        if isinstance(node.func, ast.Attribute) and _is_move(node):
            return node.func.value
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return ast.Name(_CPU) if node.value == "cpu" else node

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        typed = node.attr if _member(node) is not None and node.attr.endswith("Tensor") else None
        return ast.parse(f"torch.{typed}", mode="eval").body if typed else node

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        self.generic_visit(node)
        sides = [node.left, *node.comparators]
        pairs = zip(sides, node.ops, sides[1:], strict=False)
        if any(_is_cpu(a) and _is_cpu(b) and isinstance(operator, ast.NotEq) for a, operator, b in pairs):
            return ast.Constant(value=False)  # device.type == get_accelerator().device_name() != "cpu"
        if len(sides) != 2 or not any(_is_cpu(each) for each in sides):
            return node
        return ast.Constant(value=isinstance(node.ops[0], ast.Eq | ast.In | ast.Is))

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.expr:
        self.generic_visit(node)
        settles = isinstance(node.op, ast.Or)
        kept: list[ast.expr] = []
        for value in node.values:
            if _truth(value) is None:
                kept.append(value)
            elif _truth(value) is settles:
                return ast.Constant(value=settles)
        if not kept:
            return ast.Constant(value=not settles)
        return kept[0] if len(kept) == 1 else ast.BoolOp(node.op, kept)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        self.generic_visit(node)
        truth = _truth(node.operand)
        return ast.Constant(value=not truth) if isinstance(node.op, ast.Not) and truth is not None else node

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        truth = _truth(node.test)
        if truth is not None:
            return node.body if truth else node.orelse
        return node.body if ast.unparse(node.body) == ast.unparse(node.orelse) else node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        is_zero = isinstance(node.left, ast.Constant) and node.left.value == 0
        return node.left if is_zero and isinstance(node.op, ast.Mult | ast.Div | ast.FloorDiv) else node

    def visit_ListComp(self, node: ast.ListComp) -> ast.expr:
        self.generic_visit(node)
        return self._same_elements(node.elt, node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.expr:
        self.generic_visit(node)
        return self._same_elements(node.elt, node)

    def visit_DictComp(self, node: ast.DictComp) -> ast.expr:
        self.generic_visit(node)
        return self._same_elements(ast.Tuple([node.key, node.value], ast.Load()), node)

    def _same_elements(self, made: ast.expr, node: ast.ListComp | ast.GeneratorExp | ast.DictComp) -> ast.expr:
        """Return the collection itself for a comprehension that only moves its elements."""
        loop = node.generators[0]
        if len(node.generators) > 1 or loop.ifs or ast.unparse(made) != ast.unparse(loop.target):
            return node
        if isinstance(node, ast.DictComp):
            is_items = isinstance(loop.iter, ast.Call) and isinstance(loop.iter.func, ast.Attribute)
            is_items = is_items and loop.iter.func.attr == "items"  # type: ignore[attr-defined]  # checked above
            return loop.iter.func.value if is_items else node  # type: ignore[attr-defined]
        return loop.iter

    # Statements: a list of what is left

    def visit_Expr(self, node: ast.Expr) -> list[ast.stmt]:
        call = node.value
        if isinstance(call, ast.Call):
            name = ast.unparse(call.func)
            # a text elsewhere may lack the place for a value
            is_formatted = len(call.args) > 1 and isinstance(call.args[0], ast.Name)
            told = ast.unparse(call).replace(ACCELERATOR, "")
            shows = _SHOWN.match(name) is not None and not is_formatted and not _NAMES_CUDA.search(told)
            shows = shows and not any(_is_of_memory(each) for each in ast.walk(call))
            is_command = _member(call.func) in _COMMANDS and not any(_may_fail(each) for each in call.args)
            is_harmless = name in _HARMLESS and not any(isinstance(each, ast.Name) for each in call.args)
            if is_command or is_harmless or shows:
                return []
        value = self.visit(node.value)
        is_read = isinstance(value, ast.Constant | ast.Name | ast.Attribute | ast.Subscript | ast.List)
        return [] if is_read else [ast.Expr(value)]

    def visit_Dict(self, node: ast.Dict) -> ast.expr:
        self.generic_visit(node)
        pairs = [
            (key, value) for key, value in zip(node.keys, node.values, strict=True) if _option_of(key) not in _OPTIONS
        ]
        return ast.Dict([key for key, _ in pairs], [value for _, value in pairs])

    def visit_Assign(self, node: ast.Assign) -> list[ast.stmt]:
        self._blocks(node)
        if len(node.targets) == 1 and _is_same(node.targets[0], node.value):
            return []
        if all(_is_flag(each, node.value) for each in node.targets):
            return []
        return [node]

    def visit_Pass(self, node: ast.Pass) -> list[ast.stmt]:  # noqa: ARG002
        return []

    def visit_Import(self, node: ast.Import) -> list[ast.stmt]:
        return [] if all(_is_known(each.name) for each in node.names) else [node]

    def visit_ImportFrom(self, node: ast.ImportFrom) -> list[ast.stmt]:
        return [] if not node.level and _is_known(node.module or "") else [node]

    def visit_If(self, node: ast.If) -> list[ast.stmt]:
        self._blocks(node)
        truth = _truth(node.test)
        if truth is not None:
            return node.body if truth else node.orelse
        if [ast.unparse(each) for each in node.body] == [ast.unparse(each) for each in node.orelse]:
            return [*([ast.Expr(node.test)] if _is_unknown(node.test) else []), *node.body]
        node.body = node.body or [ast.Pass()]
        return [node]

    def visit_For(self, node: ast.For) -> list[ast.stmt]:
        self._blocks(node)
        return [node] if node.body or node.orelse else []

    def visit_With(self, node: ast.With) -> list[ast.stmt]:
        self._blocks(node)
        node.items = [each for each in node.items if _context_of(each) not in _CONTEXTS]
        return [node] if node.items and node.body else node.body

    def visit_FunctionDef(self, node: ast.FunctionDef) -> list[ast.stmt]:
        self._blocks(node)
        node.body = node.body or [ast.Pass()]
        return [node]


def _member(node: ast.AST) -> str | None:
    """Return the member of the accelerator that an expression names, else None."""
    is_member = isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == ACCELERATOR
    return node.attr if is_member and isinstance(node, ast.Attribute) else None


def _is_of_memory(node: ast.AST) -> bool:
    """Return whether a call gives figures of the memory in use, which on a CPU are the process's own."""
    member = _member(node.func) if isinstance(node, ast.Call) else None
    return member is not None and _OF_MEMORY.search(member) is not None


def _may_fail(argument: ast.expr) -> bool:
    """Return whether an argument may not exist on a CPU: ``environ["LOCAL_RANK"]``, or what ``most_free_gpu()`` looks for."""
    calls = [ast.unparse(each.func).lower() for each in ast.walk(argument) if isinstance(each, ast.Call)]
    is_asked = any(not ASKED_ANYWHERE.search(each) for each in calls)
    return is_asked or any(isinstance(each, ast.Subscript) for each in ast.walk(argument))


def _is_unknown(test: ast.expr) -> bool:
    """Return whether a test calls a function that may fail, or change something."""
    calls = [ast.unparse(each.func) for each in ast.walk(test) if isinstance(each, ast.Call)]
    others = (name for name in calls if name not in _BUILTINS and not name.startswith((f"{ACCELERATOR}.", "torch.")))
    return any(not ASKED_ANYWHERE.search(name.lower()) for name in others)


def _context_of(item: ast.withitem) -> str | None:
    return _member(item.context_expr.func) if isinstance(item.context_expr, ast.Call) else None


def _is_cpu(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == _CPU


def _is_none(node: ast.AST | None) -> bool:
    return node is None or (isinstance(node, ast.Constant) and node.value is None)


def _truth(node: ast.AST) -> bool | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, bool) else None


def _is_plain(node: ast.expr, function: str) -> bool:
    """Return whether ``function(node)`` is the same value for the comparison: ``bool(True)``, ``list(tensors)``."""
    return isinstance(node, ast.Constant) if function == "bool" else isinstance(node, ast.Name | ast.Attribute)


def _is_move(node: ast.Call) -> bool:
    """Return whether a call is ``x.to(device)``, which returns ``x`` on a CPU, or ``x.cpu()``."""
    assert isinstance(node.func, ast.Attribute)  # noqa: S101  # checked by the caller
    given = [*node.args, *(each.value for each in node.keywords if each.arg == "device")]
    if node.func.attr == "cpu":
        return not node.args
    if node.func.attr == "pin_memory":
        return True
    return node.func.attr == "to" and len(given) == 1 and len(node.keywords) <= 1 and _is_device(given[0])


def _is_device(node: ast.expr) -> bool:
    if isinstance(node, ast.Attribute):
        return _DEVICE.search(node.attr) is not None
    return _is_cpu(node) or (isinstance(node, ast.Name) and _DEVICE.search(node.id) is not None)


def _is_same(target: ast.expr, value: ast.expr) -> bool:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        return all(_is_same(*each) for each in zip(target.elts, value.elts, strict=True))
    return ast.unparse(target) == ast.unparse(value)


def _is_flag(target: ast.expr, value: ast.expr) -> bool:
    """Return whether an assignment sets an option that a CPU accepts and ignores."""
    text = ast.unparse(target)
    if text.startswith(("torch.backends.", "cudnn.")):
        return True
    is_named = isinstance(target, ast.Subscript) and _option_of(target.slice) in _OPTIONS
    is_named |= _FLAG.search(text.rpartition(".")[2].lower()) is not None
    return is_named and isinstance(value, ast.Constant)


def _option_of(key: ast.expr | None) -> object:
    return key.value if isinstance(key, ast.Constant) else None


def _is_known(module: str) -> bool:
    root = module.partition(".")[0]
    return root == "torch" or root in sys.stdlib_module_names
