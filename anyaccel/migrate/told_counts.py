"""Numbers of devices in a message behind a question about them: ``if i >= device_count(): print(f"{device_count()} GPUs")``.

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


def _is_compared_before(plan: Plan, call: cst.Call) -> bool:
    """Return whether a call runs only after a test in which a number of devices is rewritten."""
    inner: cst.CSTNode = call
    for around in plan.view.ancestors(call):
        if isinstance(around, cst.FunctionDef):
            return False
        if isinstance(around, cst.If) and around.body is inner:
            tested = (plan.view.code(each.node) for each in rewritten_in(plan, [around.test]))
            if any("torch.cuda.device_count" in code for code in tested):
                return True
        inner = around
    return False
