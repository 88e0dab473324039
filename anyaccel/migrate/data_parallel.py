"""``DataParallel`` works on CUDA devices, and on no others: a question whether there are any, or several, before it stays."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .left_questions import leave_names, leave_questions, leave_unless_stored
from .source_view import dotted

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["DATA_PARALLEL", "PARALLEL_ON", "SEVERAL", "WRAPPED", "leave_data_parallel"]

SEVERAL = re.compile(r"device_count\(\)\s*(>\s*[1-9]|>=\s*[2-9])")
DATA_PARALLEL = re.compile(r"(?<!Distributed)\bDataParallel\(")
PARALLEL_ON = re.compile(r"(?<!Distributed)\bDataParallel\([^(),]+,")  # numbers of CUDA devices follow
WRAPPED = re.compile(r"\bDataListLoader\b|\b(\w*model|net|network)\.module\b")
"""What only a model under ``DataParallel`` has or takes."""
_STORED = re.compile(r"^[\w.]+\s*(>\s*1|>=\s*2|!=\s*1)$")
_REASON = "asks for several CUDA devices before DataParallel, which works on no others"
_OF_ANY = "asks for CUDA before DataParallel, which works on no other device"
_MOVES = re.compile(r"\.(cuda|to)\(|\bcuda\b")
_TELLS = re.compile(r"(^|\.)(print|info|debug|warning|warn|log|write)$")


def leave_data_parallel(plan: Plan) -> None:
    """Leave the tests for CUDA, or for several devices, under which a model becomes ``DataParallel``, and nothing else happens.

    A number of devices that is stored, and asked under such a test, stays too.
    """
    for test in plan.view.of(cst.If):
        if not DATA_PARALLEL.search(plan.view.code(test.body)):
            continue
        is_alone = _is_data_parallel(plan, test.body)
        if SEVERAL.search(plan.view.code(test.test)) and is_alone:
            leave_names(plan, test.test, _REASON)
            leave_questions(plan, test.body, _REASON)
            continue
        for asked in plan.view.inside(test.test, cst.Comparison):
            if _STORED.search(plan.view.code(asked)):
                for count in plan.view.values_of(asked.left):
                    leave_questions(plan, count, _REASON)
        if is_alone and test.orelse is None and not _MOVES.search(plan.view.code(test.body)):
            leave_unless_stored(plan, test.test, _OF_ANY)


def _is_data_parallel(plan: Plan, region: cst.CSTNode) -> bool:
    """Return whether a branch does nothing but make a model ``DataParallel``, and tell about it."""
    lines = region.body if isinstance(region, cst.IndentedBlock) else ()
    simple = [line for line in lines if isinstance(line, cst.SimpleStatementLine)]
    if len(simple) != len(lines):
        return False
    statements = [each for line in simple for each in line.body]
    made = [
        each
        for each in statements
        if isinstance(each, cst.Assign | cst.Return) and DATA_PARALLEL.search(plan.view.code(each))
    ]
    return bool(made) and all(each in made or _is_told(each) for each in statements)


def _is_told(statement: cst.CSTNode) -> bool:
    call = statement.value if isinstance(statement, cst.Expr) else None
    return isinstance(call, cst.Call) and _TELLS.search(dotted(call.func) or "") is not None
