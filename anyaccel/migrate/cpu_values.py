"""What the expressions of a file are on a machine without accelerators, as far as the file alone tells."""

from __future__ import annotations

import ast
import operator
import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["UNKNOWN", "CpuValues", "Scope"]

UNKNOWN: Final = object()
Scope = ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

_OF_CUDA = {"is_available": False, "is_initialized": False, "device_count": 0}
_OF_ACCELERATOR = {
    "is_available": True,
    "is_initialized": True,
    "device_count": 1,
    "device_name": "cpu",
    "current_device_name": "cpu",
    "current_device": 0,
    "on_accelerator": True,
}
_BUILTINS: dict[str, Callable[[Any], Any]] = {"bool": bool, "int": int, "str": str, "range": range, "len": len}
_COMPARES: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.eq,  # of constants
    ast.IsNot: operator.ne,
    ast.In: lambda one, many: one in many,
    ast.NotIn: lambda one, many: one not in many,
}
_ERRORS = (TypeError, ValueError, AttributeError, KeyError, OverflowError)
_DEPTH = 20
_OPTIONS = re.compile(r"(^|[._])(args?|opts?|options|flags)$")
_SETS_NAMES = re.compile(r"^(globals|vars|locals|exec|setattr)$|\.set_defaults$")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
_ASSIGNS = (ast.Assign, ast.AnnAssign, ast.AugAssign)
_Bound = tuple[ast.AST, "ast.expr | None"]
_Bindings = dict[str, list[_Bound]]


class CpuValues:
    """Computes constants: questions for CUDA are false, and names hold what their only assignment that runs gives them.

    Args:
        tree: the file.
        replaced: the new code of the expressions that are rewritten, by line and column, from 1, and by the old code as
            :func:`ast.unparse` writes it.
        column: returns the column of a node in characters, from 1.

    Attributes:
        dead: the nodes that do not run, which assign nothing; whoever finds them adds them.
        asked: how often a question about CUDA or the accelerator has been answered.
    """

    def __init__(
        self,
        tree: ast.Module,
        replaced: Mapping[tuple[int, int, str], ast.expr],
        column: Callable[[ast.AST], int],
    ) -> None:
        self.dead: set[ast.AST] = set()
        self._tree, self._replaced, self._column = tree, replaced, column
        self._places = {(line, start) for line, start, _ in replaced}
        self._functions = {each.name: each for each in tree.body if isinstance(each, ast.FunctionDef)}
        self._unclear: set[str] = set()
        self._unclear_at_top: set[str] = set()
        self._owners: dict[str, set[str]] = {}
        self._is_open = False
        self._outer: dict[Scope, Scope] = {}
        self._flags: set[str] = set()
        self._imports: list[ast.alias] = []
        self._imported: dict[str, object] = {}
        self._attributes: _Bindings = {}
        self._bound: dict[Scope, _Bindings] = {}
        self._depth = 0
        self.asked = 0
        for node in ast.walk(tree):
            self._survey(node)

    def _survey(self, node: ast.AST) -> None:
        """Collect what belongs to the whole file: options, imports, names without a clear scope, and attributes."""
        if isinstance(node, ast.Global | ast.Nonlocal):
            self._unclear.update(node.names)
        elif isinstance(node, ast.ImportFrom):
            self._imports += node.names
        elif isinstance(node, ast.Lambda):
            self._unclear.update(each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inside = (each for each in ast.walk(node) if each is not node)
            self._outer.update((each, node) for each in inside if isinstance(each, _FUNCTIONS))
        elif isinstance(node, ast.ClassDef):
            for name, value in (each for line in node.body for each in _bound_by(line)):
                self._attributes.setdefault(name, []).append((node, value))
                self._unclear_at_top.add(name)
        elif isinstance(node, ast.Call):
            self._flags |= _flag_made_by(node)
            self._is_open |= _SETS_NAMES.search(ast.unparse(node.func)) is not None
        elif isinstance(node, _ASSIGNS):
            for name, value in _bound_by(node):
                owner, _, attribute = name.rpartition(".")
                if owner:
                    self._attributes.setdefault(attribute, []).append((node, value))
                    self._owners.setdefault(owner, set()).add(attribute)

    @property
    def set_in_modules(self) -> set[str]:
        """The names that the file sets in modules that it imports: ``settings.FAST = True``."""
        modules = (name for name, given in self._bindings(self._tree).items() if isinstance(given[0][0], ast.alias))
        return {attribute for name in modules for attribute in self._owners.get(name, ())}

    @property
    def defined(self) -> set[str]:
        """The names that the module binds, without imports."""
        bound = self._bindings(self._tree).items()
        return {name for name, given in bound if not all(isinstance(made, ast.alias) for made, _ in given)}

    def use(self, shared: Mapping[str, object], unclear: set[str]) -> None:
        """Take the values of names that other files define, for those that this one imports, and names that they set."""
        self._imported = {each.asname or each.name: shared[each.name] for each in self._imports if each.name in shared}
        self._unclear_at_top |= unclear

    def answers(self) -> dict[str, object]:
        """Return the names of the module, and of its functions, whose values come from questions about CUDA."""
        found: dict[str, object] = {}
        for name in (*self._bindings(self._tree), *self._functions):
            before = self.asked
            made: ast.expr = ast.Name(name)
            value = self.value(ast.Call(made, [], []) if name in self._functions else made, self._tree)
            if self.asked > before and value is not UNKNOWN:
                found[name] = value
        return found

    def truth(self, node: ast.expr, scope: Scope) -> bool | None:
        """Return whether an expression is true on such a machine; None if the file does not tell."""
        value = self.value(node, scope)
        return None if value is UNKNOWN else bool(value)

    def value(self, node: ast.expr, scope: Scope) -> Any:
        """Return the value of an expression in a function, or at the module's top; ``UNKNOWN`` if the file does not tell."""
        if self._depth > _DEPTH:
            return UNKNOWN
        self._depth += 1
        try:
            return self._value(self._new_code(node), scope)
        except _ERRORS:  # of what the program compares or calls
            return UNKNOWN
        finally:
            self._depth -= 1

    def _new_code(self, node: ast.expr) -> ast.expr:
        place = (node.lineno, self._column(node)) if self._replaced and hasattr(node, "lineno") else None
        return self._replaced.get((*place, ast.unparse(node)), node) if place in self._places else node

    def _value(self, node: ast.expr, scope: Scope) -> Any:
        if isinstance(node, ast.Constant):
            return node.value
        if isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node).endswith("TYPE_CHECKING"):
            return False
        if isinstance(node, ast.Name):
            return self._named(node.id, scope)
        if isinstance(node, ast.Attribute):
            return self._attribute(node, scope)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            known = self.truth(node.operand, scope)
            return UNKNOWN if known is None else not known
        if isinstance(node, ast.BoolOp):
            return self._operands(node, scope)
        if isinstance(node, ast.IfExp):
            known = self.truth(node.test, scope)
            return UNKNOWN if known is None else self.value(node.body if known else node.orelse, scope)
        if isinstance(node, ast.Compare):
            return self._compared(node, scope)
        if isinstance(node, ast.Tuple | ast.List | ast.Set):
            found = tuple(self.value(each, scope) for each in node.elts)
            return UNKNOWN if any(each is UNKNOWN for each in found) else found
        return self._called(node, scope) if isinstance(node, ast.Call) else UNKNOWN

    def _operands(self, node: ast.BoolOp, scope: Scope) -> Any:
        """Return what ``and`` or ``or`` gives; an operand that decides it need not be the first."""
        is_and = isinstance(node.op, ast.And)
        found = [self.value(each, scope) for each in node.values]
        for each in found:
            if each is not UNKNOWN and bool(each) != is_and:
                return each if found[0] is not UNKNOWN else not is_and
        return UNKNOWN if any(each is UNKNOWN for each in found) else found[-1]

    def _compared(self, node: ast.Compare, scope: Scope) -> Any:
        sides = [self.value(each, scope) for each in (node.left, *node.comparators)]
        pairs = zip(sides, sides[1:], node.ops, strict=False)
        found = [
            UNKNOWN if left is UNKNOWN or right is UNKNOWN else _COMPARES[type(how)](left, right)
            for left, right, how in pairs
        ]
        if any(each is not UNKNOWN and not each for each in found):
            return False
        return UNKNOWN if any(each is UNKNOWN for each in found) else True

    def _attribute(self, node: ast.Attribute, scope: Scope) -> Any:
        if node.attr == "type":
            device = self.value(node.value, scope)
            return device.partition(":")[0] if isinstance(device, str) else UNKNOWN
        bound = self._attributes.get(node.attr, [])
        if node.attr in self._flags and not bound:
            return False if _OPTIONS.search(ast.unparse(node.value)) and not self._is_open else UNKNOWN
        is_clear = len(bound) == 1 and not self._is_open
        return self._only(bound, self._tree) if is_clear else UNKNOWN

    def _called(self, node: ast.Call, scope: Scope) -> Any:
        new = self._new_code(node.func)
        name = ast.unparse(new) if isinstance(new, ast.Attribute | ast.Name) else ""
        owner, _, member = name.rpartition(".")
        if owner.endswith("get_accelerator()") and member in _OF_ACCELERATOR:
            self.asked += 1
            return _OF_ACCELERATOR[member]
        if (owner == "cuda" or owner.endswith(".cuda")) and member in _OF_CUDA:
            self.asked += 1
            return _OF_CUDA[member]
        given = [self.value(each, scope) for each in node.args]
        if any(each is UNKNOWN for each in given) or node.keywords:
            given = []
        if given and name in _BUILTINS and name not in self._functions and len(given) == 1:
            return _BUILTINS[name](given[0])
        if given and name == "torch.device" and isinstance(given[0], str):
            return given[0]
        if name in self._imported and name not in self._functions:
            self.asked += 1
            return self._imported[name]
        is_shadowed = scope is not self._tree and name in self._bindings(scope)
        function = None if is_shadowed else self._functions.get(name)
        body = [each for each in function.body if not _is_docstring(each)] if function is not None else []
        if function is not None and len(body) == 1 and isinstance(body[0], ast.Return) and body[0].value is not None:
            return self.value(body[0].value, function) if not function.decorator_list else UNKNOWN
        return UNKNOWN

    def _named(self, name: str, scope: Scope) -> Any:
        bound = self._bindings(scope).get(name)
        while bound is None and scope is not self._tree:
            scope = self._outer.get(scope, self._tree)
            bound = self._bindings(scope).get(name)
        if name in self._imported and bound is not None and all(isinstance(made, ast.alias) for made, _ in bound):
            self.asked += 1
            return self._imported[name]
        is_unclear = name in self._unclear
        if scope is self._tree:
            is_unclear |= self._is_open or name in self._unclear_at_top
        return UNKNOWN if is_unclear else self._only(bound or [], scope)

    def _only(self, bound: list[_Bound], scope: Scope) -> Any:
        """Return the value of the only assignment that runs."""
        given = [value for made, value in bound if made not in self.dead]
        return UNKNOWN if len(given) != 1 or given[0] is None else self.value(given[0], scope)

    def _bindings(self, scope: Scope) -> _Bindings:
        """Return what binds the names of a scope, each with the value that it gives, if it is one expression."""
        if scope not in self._bound:
            found = self._bound[scope] = {}
            for node in _inside(scope):
                for name, value in _bound_by(node):
                    found.setdefault(name, []).append((node, value))
        return self._bound[scope]


def _flag_made_by(call: ast.Call) -> set[str]:
    """Return the option of a command line that a call makes, if it is false unless it is given: ``action="store_true"``."""
    given = {one.arg: one.value for one in call.keywords}
    action = given.get("action")
    if not isinstance(action, ast.Constant) or action.value != "store_true" or "default" in given:
        return set()
    names = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
    return {max(names, key=len, default="").lstrip("-").replace("-", "_")} - {""}


def _bound_by(node: ast.AST) -> list[tuple[str, ast.expr | None]]:
    """Return the names that a node binds; an attribute is a name of its own."""
    if isinstance(node, ast.Assign):
        is_one = len(node.targets) == 1 and isinstance(node.targets[0], ast.Name | ast.Attribute)
        if is_one:
            return [(ast.unparse(node.targets[0]), node.value)]
        parts = [each for target in node.targets for each in ast.walk(target)]
        return [(ast.unparse(each), None) for each in parts if isinstance(each, ast.Name | ast.Attribute)]
    if isinstance(node, ast.AnnAssign | ast.NamedExpr):
        return [(ast.unparse(node.target), node.value)] if node.value is not None else []
    if isinstance(node, ast.AugAssign):
        return [(ast.unparse(node.target), None)]
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return [(node.name, None)]
    if isinstance(node, ast.alias):
        return [((node.asname or node.name).partition(".")[0], None)]
    if isinstance(node, ast.arg):
        return [(node.arg, None)]
    if isinstance(node, ast.MatchAs | ast.MatchStar | ast.ExceptHandler):
        return [(node.name, None)] if node.name is not None else []
    is_other = isinstance(node, ast.For | ast.AsyncFor | ast.comprehension | ast.withitem)
    target = getattr(node, "target", getattr(node, "optional_vars", None)) if is_other else None
    return [(each.id, None) for each in ast.walk(target) if isinstance(each, ast.Name)] if target is not None else []


def _inside(scope: Scope) -> list[ast.AST]:
    """Return the nodes of a scope, with the definitions in it but without their insides."""
    found: list[ast.AST] = []
    waiting: list[ast.AST] = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        found.append(node)
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
            waiting += ast.iter_child_nodes(node)
    return found


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
