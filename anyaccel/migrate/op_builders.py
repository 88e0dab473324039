"""The rule op-builder: deepspeed's op builders, which ``create_op_builder`` returns for every device.

``CPUAdamBuilder()`` from ``deepspeed.ops.op_builder`` itself calls deepspeed's ``get_accelerator().create_op_builder``,
so nothing changes in a module that uses deepspeed's accelerator. With anyaccel's accelerator, the op is anyaccel's: its
functions have the same names and arguments (docs/deepspeed.md). A class that is not called, such as a base class, is
left as it is, and one that anyaccel has for no device is reported.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from anyaccel.op_builder.all_ops import find_builder

from .targets import parsed

if TYPE_CHECKING:
    from .plan import Build, Plan

__all__ = ["RULE", "decide", "imports_of_builders"]

RULE = "op-builder"
_BUILDER = re.compile(r"^deepspeed\.ops\.op_builder\.(?:\w+\.)?(\w+Builder)$")
_BASES = ("OpBuilder", "CPUOpBuilder", "CUDAOpBuilder", "TorchCPUOpBuilder", "SYCLOpBuilder", "NotImplementedBuilder")


def decide(plan: Plan) -> None:
    """Decide on every call that creates one of deepspeed's builders."""
    function = plan.function("create_op_builder")
    for node, name in plan.view.imported.items():
        match, call = _BUILDER.match(name), plan.view.parent(node)
        is_made = isinstance(call, cst.Call) and call.func is node and not call.args
        if not match or match[1] in _BASES or not is_made or not isinstance(call, cst.Call) or function is None:
            continue
        if plan.target.name == "anyaccel" and not any(find_builder(match[1], device) for device in ("cpu", "cuda")):
            plan.report(
                node, RULE, "anyaccel has no op of this builder; keep deepspeed's, or use another implementation"
            )
        else:
            plan.rewrite(call, RULE, _always(f'{function}("{match[1]}")'), (node,))


def _always(code: str) -> Build:
    """Return a build function that returns the same code for every old node."""
    return lambda _: parsed(code)


def imports_of_builders(plan: Plan) -> list[cst.CSTNode]:
    """Return the imports of builders for which at least one use is rewritten."""
    return [
        statement
        for statement, names in plan.view.import_references.items()
        if any(
            _BUILDER.match(plan.view.name(use)) and plan.is_rewritten(use) for uses in names.values() for use in uses
        )
    ]
