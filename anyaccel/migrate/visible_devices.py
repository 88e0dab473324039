"""What sets ``CUDA_VISIBLE_DEVICES``, for this process or for a new one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import libcst as cst

from .source_view import dotted, text_of

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["is_of_new_process", "only_sets_visible_devices", "sets_visible_devices"]


def sets_visible_devices(plan: Plan, name: cst.SimpleString) -> bool:
    """Return whether the environment's variable is set here: ``os.environ["CUDA_VISIBLE_DEVICES"] = …``."""
    if text_of(name) != "CUDA_VISIBLE_DEVICES":
        return False
    around = list(plan.view.ancestors(name))[:5]
    return any(isinstance(each, cst.AssignTarget) for each in around)


def only_sets_visible_devices(plan: Plan, node: cst.BaseExpression) -> bool:
    """Return whether all that depends on a comparison is ``os.environ["CUDA_VISIBLE_DEVICES"] = …``."""
    around = plan.view.parent(node)
    if not isinstance(around, cst.If) or around.test is not node or around.orelse is not None:
        return False
    return all(
        any(sets_visible_devices(plan, text) for text in plan.view.inside(each, cst.SimpleString))
        for each in around.body.body
    )


def is_of_new_process(plan: Plan, target: cst.Subscript) -> bool:
    """Return whether this is ``env["CUDA_VISIBLE_DEVICES"] = …`` for some other environment than this process's."""
    names = [each for each in plan.view.inside(target, cst.SimpleString) if sets_visible_devices(plan, each)]
    return bool(names) and not (dotted(target.value) or "").endswith("environ")
