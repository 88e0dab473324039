"""The decision on each site of a module: made by the rules, carried out by the rewriter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import libcst as cst

from .cudas_own import regions_that_stay
from .kernels import functions_of_kernels
from .nodes import dotted, parts
from .regions import case_around
from .site import SiteOutcome
from .targets import HELPERS, expression, parsed

if TYPE_CHECKING:
    from .answers import Decided
    from .source_view import SourceView
    from .targets import Target

__all__ = ["Build", "Plan", "SiteDecision"]

Build = Callable[[Any], cst.CSTNode]
"""Builds the new node from the old node, whose children have already been rewritten."""

_KEPT = "kept by the project's answer to {}"
_OF_PATTERN = "a pattern of a match statement takes no call; compare in its guard"


@dataclass(frozen=True)
class SiteDecision:
    """The decision on one site.

    Attributes:
        node: the node at the site.
        rule: the rule's id.
        outcome: whether the node is rewritten, reported or left.
        reason: why it is not rewritten.
        build: builds the new code; for a reported site, the code to use if the answer is "port".
        question: the kind of question that a report asks; see ``anyaccel/migrate/answers.py``.
        is_own: whether it is reported because only CUDA has anything like it.
    """

    node: cst.CSTNode
    rule: str
    outcome: SiteOutcome
    reason: str = ""
    build: Build | None = None
    question: str = ""
    is_own: bool = False

    def called(self, updated: cst.Call) -> Any:
        """Return the new code of a call, of which the decision is on the call or on its function only."""
        assert self.build is not None  # noqa: S101  # checked by the callers
        is_whole = isinstance(self.node, cst.Call)
        return self.build(updated) if is_whole else updated.with_changes(func=self.build(updated.func))


class Plan:
    """The decisions on a module. The first decision on a node wins, and other rules skip claimed nodes.

    Args:
        view: the module.
        target: the API that the new code calls.
        decided: the user's answers.

    Attributes:
        decisions: by node.
        changes: how often the decisions have changed, for what is computed from them and kept.
        questions: the comparisons with a CUDA device that are rewritten for now.
        exact: by its node, the question of a rewrite that a CPU answers with no (:mod:`.exact`).
        must_be_exact: the questions that have to be rewritten in that way.
        cuda_guards: by the node of a question, the statement that stops the program without CUDA.
    """

    def __init__(self, view: SourceView, target: Target, decided: Decided) -> None:
        self.view, self.target, self.decided, self.project = view, target, decided, view.project
        self.decisions: dict[cst.CSTNode, SiteDecision] = {}
        self.changes = 0
        self.needs_torch = False
        self.questions: set[cst.CSTNode] = set()
        self.exact: dict[cst.CSTNode, cst.CSTNode] = {}
        self.must_be_exact: set[cst.CSTNode] = set()
        self.cuda_guards: dict[cst.CSTNode, cst.CSTNode] = {}
        self._staying = regions_that_stay(view)
        self._claimed: set[cst.CSTNode] = set()
        self.accelerator, self.import_line = self._how_to_reach()

    def _how_to_reach(self) -> tuple[str, str]:
        """Return the accelerator expression and its import, which must not rebind a name of the module."""
        package = self.target.package
        if not package:
            taken = {name for name in HELPERS if name in self.view.bound_names and not self._is_helper(name)}
            return "torch_" if taken else "", ""
        full = f"{package}.get_accelerator"
        is_ours = any(name == full and dotted(node) == "get_accelerator" for node, name in self.view.imported.items())
        if is_ours or "get_accelerator" not in self.view.bound_names:
            return "get_accelerator()", f"from {package} import get_accelerator"
        if self.view.has_other_meaning(package.partition(".")[0]):
            return "_accelerators.get_accelerator()", f"import {package} as _accelerators"
        return f"{package}.get_accelerator()", f"import {package}"

    def _is_helper(self, name: str) -> bool:
        """Return whether an earlier run defined the helper function of this name."""
        found = [node for node in self.view.of(cst.FunctionDef) if node.name.value == name]
        return any("torch.accelerator" in self.view.code(node) for node in found)

    @cached_property
    def is_torch_imported(self) -> bool:
        """Whether the module uses torch, so that integers may be devices."""
        return any(full == "torch" for full in self.view.imported.values())

    @cached_property
    def functions_of_kernels(self) -> set[str]:
        """The functions and classes of the module that run a compiled extension's kernels."""
        return functions_of_kernels(self.view)

    def is_open(self, node: cst.CSTNode) -> bool:
        """Return whether a node has no decision yet and is not claimed."""
        return node not in self.decisions and node not in self._claimed

    def claim(self, *nodes: cst.CSTNode) -> None:
        """Exclude nodes and everything in them from other rules."""
        for node in nodes:
            self._claimed.add(node)
            self.claim(*parts(node))

    def rewrite(self, node: cst.CSTNode, rule: str, build: Build, claims: tuple[cst.CSTNode, ...] = ()) -> None:
        """Decide that a node is replaced."""
        self._decide(SiteDecision(node, rule, SiteOutcome.REWRITTEN, build=build))
        self.claim(*claims)

    def report(
        self,
        node: cst.CSTNode,
        rule: str,
        reason: str,
        question: str = "",
        build: Build | None = None,
        *,
        is_own: bool = False,
    ) -> None:
        """Report a node for manual work; the reason says why and what to do.

        Args:
            node: the node to report.
            rule: the rule's id.
            reason: the message for the user.
            question: the kind of question that the report asks; the project may have an answer to it.
            build: builds the new code if the answer is "port".
            is_own: whether only CUDA has anything like it.
        """
        question = question or rule
        answer = self.decided.answer_to(question)
        if answer == "port" and build is not None:
            self._decide(SiteDecision(node, rule, SiteOutcome.REWRITTEN, build=build, question=question))
        elif answer == "keep":
            self._decide(SiteDecision(node, rule, SiteOutcome.LEFT, _KEPT.format(question), question=question))
        else:
            self._decide(SiteDecision(node, rule, SiteOutcome.REPORTED, reason, build, question, is_own))

    def leave(self, node: cst.CSTNode, rule: str, reason: str) -> None:
        """Decide that a node stays because CUDA is correct there."""
        self._decide(SiteDecision(node, rule, SiteOutcome.LEFT, reason))

    def _decide(self, decision: SiteDecision) -> None:
        if not self.is_open(decision.node):
            return
        if self.view.is_ignored(decision.node, decision.rule):
            decision = replace(decision, outcome=SiteOutcome.LEFT, reason="a comment says to ignore it", build=None)
        elif case_around(self.view, decision.node) is not None and decision.outcome is not SiteOutcome.LEFT:
            decision = replace(decision, outcome=SiteOutcome.REPORTED, reason=_OF_PATTERN, build=None)
        elif self._staying:
            around = (decision.node, *self.view.ancestors(decision.node))
            stays = (self._staying[each] for each in around if each in self._staying)
            reason = next(stays, "")
            if reason:
                decision = replace(decision, outcome=SiteOutcome.LEFT, reason=reason, build=None)
        self._change(decision)

    def _change(self, decision: SiteDecision) -> None:
        self.decisions[decision.node] = decision
        self.changes += 1

    def move(self, one: SiteDecision, node: cst.CSTNode, build: Build) -> None:
        """Make a decision one on another node, with another way to build the new code."""
        self.forget(one.node)
        self._change(replace(one, node=node, build=build))

    def forget(self, node: cst.CSTNode) -> None:
        """Delete the decision on a node."""
        del self.decisions[node]
        self.changes += 1

    def is_rewritten(self, node: cst.CSTNode) -> bool:
        """Return whether a dotted name, or the call of it, is rewritten."""
        around = self.view.parent(node)
        ones = [self.decisions.get(node), self.decisions.get(around) if around is not None else None]
        return any(one is not None and one.outcome is SiteOutcome.REWRITTEN for one in ones)

    def reconsider(
        self, node: cst.CSTNode, reason: str, outcome: SiteOutcome = SiteOutcome.REPORTED, question: str = ""
    ) -> bool:
        """Change a decision to report or leave the site; return False if the project's answer is to port it instead."""
        one = self.decisions[node]
        asked = question or one.question or one.rule
        answer = self.decided.answer_to(asked)
        if answer == "port" and question:
            self._change(replace(one, question=question))
            return False
        if answer == "keep" and outcome is SiteOutcome.REPORTED:
            outcome, reason = SiteOutcome.LEFT, _KEPT.format(asked)
        build = one.build if question and outcome is SiteOutcome.REPORTED else None
        self._change(replace(one, outcome=outcome, reason=reason, build=build, question=asked))
        return True

    # Building new code

    def function(self, member: str) -> str | None:
        """Return the expression for a member of the accelerator contract, or None if the target lacks it."""
        return self.target.function(member, self.accelerator)

    def call_in_place(self, node: cst.CSTNode, rule: str, member: str) -> None:
        """Decide to replace the function in a call with a member of the contract; the arguments stay as they are."""
        function = self.function(member)
        if function is None:
            self.report(node, rule, self.without(member))
            return
        self.needs_torch |= not self.target.package
        self.rewrite(node, rule, lambda _: parsed(function))

    def without(self, member: str) -> str:
        """Return the reason for a report about a member that the target lacks."""
        return f"{self.target.name} has no {member}; --target anyaccel has"

    def named(self, index: cst.BaseExpression | None = None) -> cst.BaseExpression:
        """Return the expression for a device's name; the target is known to have one."""
        name = self.device_name(index)
        assert name is not None  # noqa: S101  # the rule has checked device_name() before
        return name

    def device_name(self, index: cst.BaseExpression | None = None) -> cst.BaseExpression | None:
        """Return the expression for a device's name, or None if the target has none."""
        function = self.function("device_name")
        if function is not None:
            self.needs_torch |= not self.target.package
            current = self.function("current_device_name")
            if index is not None and current and self.view.code(index) == f"{self.function('current_device')}()":
                return expression(f"{current}()")
            call = parsed(f"{function}()")
            return call if index is None else call.with_changes(args=[cst.Arg(index)])
        return None
