"""Reports rewrites in code that tries whether CUDA works: on a CPU the new code never fails, so the answer changes.

``try: torch.zeros(1, device="cuda"); return True`` with ``except Exception: return False`` is a question about CUDA, and
so is a ``try`` that lists the devices that exist. One that pins memory or sets the device is a question if its failure ends
what the code does.
"""

from __future__ import annotations

import re
from itertools import takewhile
from typing import TYPE_CHECKING, Any

import libcst as cst

from .site import SiteOutcome
from .source_view import dotted, text_of

if TYPE_CHECKING:
    from .plan import Plan
    from .source_view import SourceView

__all__ = ["keep_probes"]

_TRUTH = ("True", "False")
_LINES = 20  # a longer body is the program, and not a test
_SHORT = 4  # statements
_ANSWERS = re.compile(r"^\s*(return (True|1)|[\w.]+ = True|[\w.]+\.append\(.*)\s*$", re.MULTILINE)
_IGNORES = re.compile(r"^(pass|continue|return( (False|None|0|-1))?|[\w.]+ = (False|None))$")
_CATCHES = re.compile(r"\b(Exception|BaseException|RuntimeError|AssertionError|DGLError|\w*(Cuda|CUDA)\w*Error)\b")
_LEAVES = re.compile(r"^(return|raise|continue|break)\b|^[\w.]+ = (False|None)$")
_ASKS = re.compile(r"\b(set_device|get_device_(properties|name))\b")
_FIGURES = re.compile(r"torch\.cuda\.(get_device_properties|get_device_capability|get_device_name|mem_get_info)\(")
_COUNTS = re.compile(r"\.(device_count|(max_)?memory_(allocated|reserved))$")
_OF_LIST = "tries which CUDA devices exist; a CPU accepts every number, so use get_accelerator().device_count()"
_OF_PROBE = "tries whether CUDA works, which a CPU always does in its place; decide what other devices answer"
_OF_PINNED = "tries whether memory can be pinned, which never fails on a CPU in its place; decide what a CPU does"


def keep_probes(plan: Plan) -> None:
    """Report the rewritten sites in every ``try`` whose failure is an answer."""
    for attempt in plan.view.of(cst.Try):
        caught = _last_lines_of_handlers(plan.view, attempt)
        is_long = len(plan.view.code(attempt.body).splitlines()) > _LINES
        if not caught or (is_long and not _ASKS.search(plan.view.code(attempt.body))):
            continue
        is_probe = not is_long and _is_probe(plan.view, attempt, caught)
        tried = [attempt.body, *(_device_before(plan.view, attempt) if is_probe else ())]
        of_all = _OF_LIST if ".append(" in plan.view.code(attempt.body) else _OF_PROBE
        leaves = all(map(_LEAVES.match, caught))
        inside = [
            (node, one)
            for node, one in plan.decisions.items()
            if one.outcome is SiteOutcome.REWRITTEN and any(plan.view.is_within(node, each) for each in tried)
        ]
        if all(isinstance(node, cst.Comparison) for node, _ in inside):
            continue  # none can fail
        for node, one in inside:
            is_pinned, is_set = (
                one.rule == "pinning",
                one.rule == "runtime-call" and _ASKS.search(plan.view.code(node)) is not None,
            )
            asks = one.rule != "env" if is_probe else leaves and ((is_pinned and not is_long) or is_set)
            if asks:
                plan.reconsider(node, _OF_PINNED if is_pinned and not is_probe else of_all)


def _is_probe(view: SourceView, attempt: cst.Try, caught: list[str]) -> bool:
    """Return whether the failure of a ``try`` is an answer, or what ends a loop: the largest batch that CUDA has memory for."""
    is_answer = _ANSWERS.search(view.code(attempt.body)) is not None and all(map(_IGNORES.match, caught))
    is_loop = any(dotted(each.test) == "True" for each in view.inside(attempt.body, cst.While))
    is_endless = is_loop and all(map(_IGNORES.match, caught)) and len(attempt.body.body) == 1
    is_told = _gives_another_answer(view, attempt) or _keeps_answer(view, attempt, caught)
    is_told = is_told or _ends_early(view, attempt, caught)
    return is_answer or is_endless or is_told or _switches(view, attempt)


def _ends_early(view: SourceView, attempt: cst.Try, caught: list[str]) -> bool:
    """Return whether a function returns something because of what CUDA's memory or properties are, and goes on if it fails."""
    returns = next(iter(view.inside(attempt.body, cst.Return)), None) is not None
    return returns and _FIGURES.search(view.code(attempt.body)) is not None and set(caught) <= {"pass", "..."}


def _keeps_answer(view: SourceView, attempt: cst.Try, caught: list[str]) -> bool:
    """Return whether a constant stays what a name holds if a short ``try`` fails: ``found = None; try: …; except …: pass``."""
    given = _given_at_end(attempt.body)
    if given is None or not given[0] or not set(caught) <= {"pass", "..."} or len(attempt.body.body) > _SHORT:
        return False
    if not _is_of_device(view, attempt.body, given[1]):
        return False
    before: list[str] = []
    inner: Any = attempt
    for around in takewhile(lambda each: not isinstance(each, cst.FunctionDef), view.ancestors(attempt)):
        if isinstance(around, cst.IndentedBlock | cst.Module):
            before += [view.code(line) for line in around.body[: list(around.body).index(inner)]]
        inner = around
    constant = r"(None|False|-?\d+|\[\]|\{\}|[\"'][^\"'\n]*[\"'])"
    held = re.compile(rf"^{re.escape(given[0])}(: [^=\n]+)? = {constant}[ ]*([;#][^\n]*)?\r?$", re.MULTILINE)
    return any(map(held.search, before))


def _is_of_device(view: SourceView, body: cst.BaseSuite, value: cst.BaseExpression) -> bool:
    """Return whether what a ``try`` sets tells whether CUDA works: a constant, or anything after code that needs CUDA.

    Counts have exact answers, and a checkpoint's ``map_location`` says where it goes.
    """
    is_constant = isinstance(value, cst.SimpleString | cst.Integer | cst.Name) and _is_constant(value)
    if is_constant and "map_location" not in view.code(body):
        return True
    calls = list(view.inside(body, cst.Call))
    moves = any(isinstance(each.func, cst.Attribute) and each.func.attr.value == "cuda" for each in calls)
    texts = [each for each in view.inside(body, cst.SimpleString) if (text_of(each) or "").startswith("cuda")]
    named = any("map_location" not in view.code(view.parent(each) or each) for each in texts)
    called = [view.name(each.func) for each in calls]
    return moves or named or any(each.startswith("torch.cuda.") and not _COUNTS.search(each) for each in called)


def _gives_another_answer(view: SourceView, attempt: cst.Try) -> bool:
    """Return whether a short ``try`` and its handler give different constants: ``return device, True`` and ``…, False``."""
    handler = attempt.handlers[0] if len(attempt.handlers) == 1 else None
    if handler is None or not _last_lines_of_handlers(view, attempt):
        return False
    if _goes_without(view, attempt, handler):
        return True
    if len(attempt.body.body) > _SHORT:
        return False
    given, other = (_given_at_end(each) for each in (attempt.body, handler.body))
    if given is None or other is None or given[0] != other[0]:
        return False
    values = (
        [value, *_assigned(view, block, value)] for (_, value), block in ((given, attempt.body), (other, handler.body))
    )
    constants = (
        [
            view.code(each)
            for value in found
            for each in view.inside(value, cst.SimpleString, cst.Integer, cst.Name)
            if _is_constant(each)
        ]
        for found in values
    )
    return next(constants) != next(constants)


def _goes_without(view: SourceView, attempt: cst.Try, handler: cst.ExceptHandler) -> bool:
    """Return whether a handler goes on without a group that the ``try`` could not join.

    It sets the group's size to 1, ``world_size, rank = 1, 0``, or a name to False that the ``try`` sets to True.
    """
    joins = any((dotted(each.func) or "").endswith("init_process_group") for each in view.inside(attempt, cst.Call))
    values = [each.value for each in view.inside(handler.body, cst.Assign)]
    pairs = (
        {(dotted(each.targets[0].target), view.code(each.value)) for each in view.inside(block, cst.Assign)}
        for block in (attempt.body, handler.body)
    )
    given, other = pairs
    if joins and any((name, "False") in other for name, value in given if value == "True"):
        return True
    return joins and any(isinstance(each, cst.Integer) for value in values for each in view.inside(value, cst.Integer))


def _switches(view: SourceView, attempt: cst.Try) -> bool:
    """Return whether a ``try`` calls something with True that a handler calls with False: ``box.setChecked(True)``."""
    given, other = (
        {(dotted(each.func), view.code(each.args[0])) for each in view.inside(block, cst.Call) if len(each.args) == 1}
        for block in (attempt.body, attempt.handlers[0])
    )
    return any((called, "False" if value == "True" else "True") in other for called, value in given if value in _TRUTH)


def _device_before(view: SourceView, attempt: cst.Try) -> list[cst.CSTNode]:
    """Return the statement before a ``try`` if it assigns what the ``try`` uses and a handler assigns again."""
    block = view.parent(attempt)
    lines = list(block.body) if isinstance(block, cst.IndentedBlock | cst.Module) else []
    number = next((number for number, line in enumerate(lines) if line is attempt), 0)
    line = lines[number - 1] if number else None
    first = line.body[0] if isinstance(line, cst.SimpleStatementLine) else None
    name = dotted(first.targets[0].target) if isinstance(first, cst.Assign) else None
    again = [dotted(each.target) for handler in attempt.handlers for each in view.inside(handler, cst.AssignTarget)]
    return [line] if line is not None and name is not None and name in again and name in view.code(attempt.body) else []


def _given_at_end(block: cst.BaseSuite) -> tuple[str, cst.BaseExpression] | None:
    """Return what a block's last statement assigns to, or an empty string for ``return``, and the value."""
    line = block.body[-1] if block.body else None
    last = line.body[-1] if isinstance(line, cst.SimpleStatementLine) else None
    if isinstance(last, cst.Return) and last.value is not None:
        return "", last.value
    is_one = isinstance(last, cst.Assign) and len(last.targets) == 1
    return (cst.Module([]).code_for_node(last.targets[0].target), last.value) if is_one else None  # type: ignore[union-attr]


def _assigned(view: SourceView, block: cst.BaseSuite, name: cst.BaseExpression) -> list[cst.BaseExpression]:
    """Return what a block assigns to a name; nothing if it is no name."""
    found = [each for each in view.inside(block, cst.Assign) if isinstance(name, cst.Name)]
    return [each.value for each in found if dotted(each.targets[0].target) == dotted(name)]


def _is_constant(node: cst.SimpleString | cst.Integer | cst.Name) -> bool:
    return not isinstance(node, cst.Name) or node.value in ("True", "False", "None")


def _last_lines_of_handlers(view: SourceView, attempt: cst.Try) -> list[str]:
    """Return the last line of each handler that catches torch's errors."""
    catching = [each for each in attempt.handlers if each.type is None or _CATCHES.search(view.code(each.type))]
    return [view.code(each.body).strip().rpartition("\n")[2].strip() for each in catching]
