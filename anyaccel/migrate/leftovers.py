"""The rule env: what is CUDA's own and stays, or names CUDA in a way that no rule knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from .source_view import text_of

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["decide", "decide_pinned_factories"]

RULE = "env"
_LEFT = {
    "torch.backends.cudnn": "cuDNN's own switches, which other devices ignore",
    "torch.backends.cuda": "CUDA's own switches, which other devices ignore",
    "torch.version.cuda": "the version of CUDA that torch was built with; None where it was not",
}
_REPORTED = {
    "torch.profiler.ProfilerActivity.CUDA": "torch.profiler.supported_activities() has what this machine can record",
    "torch.utils.cpp_extension.CUDAExtension": "builds for CUDA only; anyaccel.op_builder builds for each device",
    "torch.backends.cuda.is_built": "asks how torch was built; get_accelerator().device_name() says what is used",
}


def decide(plan: Plan) -> None:
    """Decide on everything that nothing else has taken."""
    for node, name in plan.view.imported.items():
        around = plan.view.parent(node)
        if not plan.is_open(node) or (isinstance(around, cst.Attribute) and around.value is node):
            continue
        if _REPORTED.get(name):
            plan.report(node, RULE, _REPORTED[name])
        else:
            reason = next((why for prefix, why in _LEFT.items() if f"{name}.".startswith(f"{prefix}.")), "")
            if reason:
                plan.leave(node, RULE, reason)
    for node in plan.view.of(cst.ImportFrom):
        if isinstance(node.names, cst.ImportStar) and plan.view.code(node).startswith("from torch.cuda"):
            plan.report(node, "imports", "what it brings cannot be told from other names; import what is used by name")
    for node in plan.view.of(cst.SimpleString):
        value = text_of(node)
        if value and "cuda" in value.lower() and plan.is_open(node) and not _is_docstring(plan, node):
            _decide_text(plan, node, value)


def _is_docstring(plan: Plan, node: cst.CSTNode) -> bool:
    return isinstance(plan.view.parent(node), cst.Expr)


def _decide_text(plan: Plan, node: cst.SimpleString, value: str) -> None:
    if value.startswith("torch.cuda"):
        plan.report(node, RULE, "names torch.cuda in a text; decide what reads it")
    elif value == "CUDA_VISIBLE_DEVICES":
        plan.leave(node, RULE, "CUDA's own variable; get_accelerator().visible_devices_envs() has this device's")
    else:
        plan.leave(node, RULE, "a text that only contains the word")


def decide_pinned_factories(plan: Plan) -> None:
    """The rule pinning, for ``torch.empty(…, pin_memory=True)``, and DataLoader's flag, which is left."""
    for call in plan.view.of(cst.Call):
        name = plan.view.name(call.func)
        flag = next((arg for arg in call.args if arg.keyword and arg.keyword.value == "pin_memory"), None)
        if flag is None:
            continue
        if name.startswith("torch.") and not name.startswith("torch.utils"):
            _decide_factory(plan, call, flag)


def _decide_factory(plan: Plan, call: cst.Call, flag: cst.Arg) -> None:
    function = plan.function("pin_memory")
    if not isinstance(flag.value, cst.Name) or flag.value.value != "True" or function is None:
        plan.report(flag, "pinning", "get_accelerator().pin_memory(t) pins for this device, where this is true")
        return
    place = call.args.index(flag)

    def build(updated: cst.Call) -> cst.CSTNode:
        kept = [arg for number, arg in enumerate(updated.args) if number != place]
        if kept:
            kept[-1] = kept[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
        return cst.Call(cst.parse_expression(function), [cst.Arg(updated.with_changes(args=kept))])

    plan.rewrite(call, "pinning", build)
