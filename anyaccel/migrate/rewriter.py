"""Applies a plan to the tree; everything outside the sites stays the same, byte for byte."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import libcst as cst

from .site import SiteOutcome

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["Rewriter"]

_COMMENT = re.compile(r"#[^\n]*")


class Rewriter(cst.CSTTransformer):
    """Replaces the nodes that a plan rewrites, innermost first, so that nested sites are all rewritten.

    Attributes:
        replacements: the new code by old node.
    """

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self._plan = plan
        self.replacements: dict[cst.CSTNode, str] = {}
        self._on_the_way = {around for node in plan.decisions for around in (node, *plan.view.ancestors(node))}

    def on_visit(self, node: cst.CSTNode) -> bool:
        return node in self._on_the_way

    def on_leave(self, original_node: cst.CSTNode, updated_node: Any) -> Any:
        updated_node = super().on_leave(original_node, updated_node)
        decision = self._plan.decisions.get(original_node)
        if decision is None or decision.outcome is not SiteOutcome.REWRITTEN or decision.build is None:
            return updated_node
        new: Any = decision.build(updated_node)
        parentheses = getattr(updated_node, "lpar", None)
        has_them = parentheses and any(each is parentheses[0] for each in getattr(new, "lpar", ()))
        is_needless = self._is_in_its_own_place(original_node) and isinstance(original_node, cst.IfExp)
        if parentheses and hasattr(new, "lpar") and not has_them and not (is_needless and isinstance(new, cst.Call)):
            new = new.with_changes(lpar=[*updated_node.lpar, *new.lpar], rpar=[*new.rpar, *updated_node.rpar])
        code, old = self._plan.view.code(new), self._plan.view.code(updated_node)
        if "#" in old and len(_COMMENT.findall(code)) < len(_COMMENT.findall(old)):
            self._plan.reconsider(
                original_node, "contains a comment that would be lost; move the comment, then run again"
            )
            return updated_node
        self.replacements[original_node] = code.strip()
        return new

    def _is_in_its_own_place(self, node: cst.CSTNode) -> bool:
        """Return whether a call that replaces a conditional expression needs no parentheses.

        The positions listed here always follow a space or a character that cannot be part of a name.
        """
        around = self._plan.view.parent(node)
        if isinstance(around, cst.BooleanOperation):
            return around.right is node and not around.operator.whitespace_after.empty
        return isinstance(around, cst.Assign | cst.Arg)
