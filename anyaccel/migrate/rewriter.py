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

    def new_source(self) -> str:
        """Return the module's code after all rewrites; only the expressions and statements around sites are generated again."""
        view = self._plan.view
        rewritten = [one.node for one in self._plan.decisions.values() if one.outcome is SiteOutcome.REWRITTEN]
        places = sorted(map(self._place_of, dict.fromkeys(rewritten)), key=view.place)
        outermost: list[cst.CSTNode] = []
        for node in places:
            if not (outermost and view.is_within(node, outermost[-1])):
                outermost.append(node)
        indented = (cst.IndentedBlock, cst.Match)
        new: dict[cst.CSTNode, tuple[cst.CSTNode, list[str]]] = {}
        for node in outermost:
            blocks = [each for each in view.ancestors(node) if isinstance(each, indented)]
            indents = [view.module.default_indent if each.indent is None else each.indent for each in reversed(blocks)]
            made: Any = node.visit(self)
            new[node] = (made, indents)
        return view.layout.spliced(new)

    def _place_of(self, node: cst.CSTNode) -> cst.CSTNode:
        """Return the innermost expression or statement with a site whose code does not depend on what is around it."""
        for each in (node, *self._plan.view.ancestors(node)):
            is_elif = isinstance(each, cst.If) and isinstance(self._plan.view.parent(each), cst.If)
            if isinstance(each, cst.BaseExpression | cst.BaseStatement) and not is_elif:
                return each
        return self._plan.view.module

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
