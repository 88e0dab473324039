"""Numbers of devices in a message behind a question about them: ``if i >= device_count(): print(f"{device_count()} GPUs")``.

The message of an assertion that compares with such a number is one.

Proof: the number is 0 on a CPU, as before, and CUDA's on CUDA. Elsewhere the message says the number that the question compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from .dependents import MESSAGES
from .exact import rewrite_count
from .site import SiteOutcome
from .values_of_cuda import rewritten_in

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["tell_counts"]


def tell_counts(plan: Plan) -> None:
    """Rewrite the numbers of devices in messages that are shown after a rewritten comparison with such a number."""
    for one in list(plan.decisions.values()):
        call = plan.view.parent(one.node)
        is_shown = one.outcome is SiteOutcome.LEFT and one.reason == MESSAGES[0]
        if is_shown and isinstance(call, cst.Call) and _is_compared_before(plan, call):
            plan.forget(one.node)
            rewrite_count(plan, call)
        elif is_shown and isinstance(call, cst.Call) and _is_asserted(plan, call):
            plan.forget(one.node)
            plan.call_in_place(call.func, one.rule, "device_count")


def _is_compared_before(plan: Plan, call: cst.Call) -> bool:
    """Return whether a call runs only after a test in which a number of devices is rewritten."""
    inner: cst.CSTNode = call
    for around in plan.view.ancestors(call):
        if isinstance(around, cst.FunctionDef):
            return False
        if isinstance(around, cst.If) and around.body is inner and _compares_count(plan, around.test):
            return True
        inner = around
    return False


def _is_asserted(plan: Plan, call: cst.Call) -> bool:
    """Return whether a number is in the message of an assertion that compares with it: it is the one that is compared."""
    around = next((each for each in plan.view.ancestors(call) if isinstance(each, cst.Assert)), None)
    return around is not None and _compares_count(plan, around.test)


def _compares_count(plan: Plan, test: cst.CSTNode) -> bool:
    tested = (plan.view.code(each.node) for each in rewritten_in(plan, [test]))
    return any("torch.cuda.device_count" in code for code in tested)
