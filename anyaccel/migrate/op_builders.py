"""The rule op-builder: deepspeed's builders, which ``create_op_builder`` finds for every device.

``CPUAdamBuilder()`` of ``deepspeed.ops.op_builder`` is itself a call of deepspeed's ``get_accelerator().create_op_builder``, so
that nothing changes where the module has deepspeed's accelerator. With ours, the op is ours: its functions have the same names
and arguments (docs/deepspeed.md). A class that is not called, such as the base of another one, is left as it is.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .targets import parsed

if TYPE_CHECKING:
    from .plan import Build, Plan

__all__ = ["RULE", "decide", "imports_of_builders"]

RULE = "op-builder"
_BUILDER = re.compile(r"^deepspeed\.ops\.op_builder\.(?:\w+\.)?(\w+Builder)$")
_BASES = ("OpBuilder", "CPUOpBuilder", "CUDAOpBuilder", "TorchCPUOpBuilder", "SYCLOpBuilder", "NotImplementedBuilder")


def decide(plan: Plan) -> None:
    """Decide on every builder of deepspeed's that is made."""
    function = plan.function("create_op_builder")
    for node, name in plan.view.imported.items():
        match, call = _BUILDER.match(name), plan.view.parent(node)
        is_made = isinstance(call, cst.Call) and call.func is node and not call.args
        if match and match[1] not in _BASES and is_made and isinstance(call, cst.Call) and function is not None:
            plan.rewrite(call, RULE, _always(f'{function}("{match[1]}")'), (node,))


def _always(code: str) -> Build:
    """Return a builder that writes some code, whatever stood there."""
    return lambda _: parsed(code)


def imports_of_builders(plan: Plan) -> list[cst.CSTNode]:
    """Return the imports of builders of which some are not needed any longer."""
    return [
        statement
        for statement, names in plan.view.import_references.items()
        if any(
            _BUILDER.match(plan.view.name(use)) and plan.is_rewritten(use) for uses in names.values() for use in uses
        )
    ]
