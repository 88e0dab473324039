"""Reports devices that the rewritten code would choose at import, before the program says which devices it may see.

Or before it needs torch: where ``torch`` is another file's, which may import it late or not at all.

``def init(backend="nccl"): os.environ["CUDA_VISIBLE_DEVICES"] = …`` reads its default when the module is imported. The text
"nccl" touches no device; the accelerator's backend does, and the variable comes too late for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from .site import SiteOutcome
from .source_view import text_of
from .visible_devices import sets_visible_devices

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["keep_import_time"]

_FUNCTIONS = (cst.FunctionDef, cst.Lambda)


def keep_import_time(plan: Plan) -> None:
    """Report the rewritten texts that are read at import, if that is too early for this module."""
    lender = next(filter(_lends_torch, plan.view.of(cst.ImportFrom)), None)
    found = [each for each in plan.view.of(cst.SimpleString) if sets_visible_devices(plan, each)]
    in_functions = [plan.view.position(each)[0] for each in found if not _is_read_at_import(plan, each)]
    at_import = [plan.view.position(each)[0] for each in found if _is_read_at_import(plan, each)]
    for node, one in list(plan.decisions.items()) if found or lender else ():
        if one.outcome is SiteOutcome.REWRITTEN and text_of(node) is not None and _is_read_at_import(plan, node):
            if lender is not None:
                line = plan.view.position(lender)[0]
                plan.reconsider(node, f"is read at import, and line {line} may import torch later; choose it later")
                continue
            later = [*in_functions, *(line for line in at_import if line > plan.view.position(node)[0])]
            if later:
                reason = f"is read at import, before line {later[0]} sets CUDA_VISIBLE_DEVICES; choose it later"
                plan.reconsider(node, reason)


def _lends_torch(statement: cst.ImportFrom) -> bool:
    """Return whether ``torch`` comes from another module: ``from .optional import torch``."""
    names = [] if isinstance(statement.names, cst.ImportStar) else statement.names
    return any((each.evaluated_alias or each.evaluated_name) == "torch" for each in names)


def _is_read_at_import(plan: Plan, node: cst.CSTNode) -> bool:
    """Return whether an expression is a default, or is in no function."""
    inner = node
    for around in plan.view.ancestors(node):
        if isinstance(around, _FUNCTIONS):
            return isinstance(inner, cst.Parameters) and not any(
                isinstance(each, _FUNCTIONS) for each in plan.view.ancestors(around)
            )
        inner = around
    return True
