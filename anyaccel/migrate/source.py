"""Migrates a module's source, and returns the new source with every site and its outcome."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import libcst as cst

from . import (
    amp,
    choices,
    communication,
    comparisons,
    consequences,
    device_ids,
    device_literals,
    guards,
    half_precision,
    leftovers,
    op_builders,
    runtime_calls,
    settled_questions,
    tensor_methods,
    typed_tensors,
)
from .answers import UNDECIDED
from .cuda_guards import without_lines
from .imports import TextModule
from .indentation import is_mixed, with_indentation
from .other_files import NOTHING_SHARED, shared_by
from .plan import Plan
from .positions import written
from .project import survey
from .rewriter import Rewriter
from .self_check import passed_over
from .site import Site, SiteOutcome
from .source_view import SourceView
from .targets import TARGETS, helpers_called, target_named

if TYPE_CHECKING:
    from .answers import Decided
    from .other_files import Shared
    from .project import Project
    from .self_check import Passed
    from .site import SourceError

__all__ = ["Migration", "migrate_source"]

_TYPICAL = re.compile(
    r"cuda|nccl|op_builder|is_autocast_enabled\(\)|autocast_gpu_dtype|fork_rng|gradscaler|pin_memory|device_ids|record_stream|(\.to\(|device\s*=\s*|torch\.device\()[\w.\[\]]*(rank|gpu|\d|id)"
)


_CUDA_IMPORT = re.compile(r"\btorch\.cuda|^from torch import\b.*\bcuda\b", re.DOTALL)


_NEEDS_TORCH = re.compile(r"\btorch\.|\.(cuda|pin_memory)\(|\.is_cuda\b")


@dataclass(frozen=True)
class Migration:
    """A module or a notebook before and after.

    Attributes:
        old: the text before.
        new: the text after; equal to ``old`` if nothing is rewritten.
        sites: every place that is tied to CUDA, in order.
        unread: the cells of a notebook that are not Python.
        passed_over: tokens that spell CUDA and are in no site: the tool does not understand them.
        shared: what other files need to know of this one.
    """

    old: str
    new: str
    sites: tuple[Site, ...] = ()
    unread: tuple[SourceError, ...] = ()
    passed_over: tuple[Passed, ...] = ()
    shared: Shared = NOTHING_SHARED


def migrate_source(
    source: str, target: str = "anyaccel", project: Project | None = None, decided: Decided = UNDECIDED
) -> Migration:
    """Rewrite a module.

    Args:
        source: the module's source.
        target: what the new code calls: ``"anyaccel"``, ``"deepspeed"`` or ``"torch.accelerator"``.
        project: facts about the project's modules; with None, only this module is used.
        decided: the user's answers to the tool's questions.

    Returns:
        The new source and the sites.

    Raises:
        SourceError: when it is not Python.
        MigrateError: when the target is unknown.
    """
    chosen = target_named(target)
    if not _TYPICAL.search(source.lower()):
        return Migration(source, source)
    project = survey([("", source)]) if project is None else project
    view = SourceView(source, project)
    if chosen.package and "deepspeed.accelerator.get_accelerator" in view.imported.values():
        chosen = TARGETS["deepspeed"]  # the module already uses deepspeed's accelerator
    plan = Plan(view, chosen, decided)
    _decide(plan)
    if decided.drops_cuda_guards and plan.cuda_guards:
        return _without_guards(plan, source, target, project)
    rewriter = Rewriter(plan)
    code = rewriter.new_source()
    if is_mixed(source):
        code = with_indentation(source, written(view.module, view.module), code)
    sites = [_site(plan, node, rewriter) for node in plan.decisions]
    if rewriter.replacements:
        code, import_sites = _with_imports(plan, code, rewriter)
        sites += import_sites
    else:
        sites += [_import_site(plan, node, is_changed=False) for node in _imports_of_cuda(plan)]
    new = code if rewriter.replacements else source
    in_order = tuple(sorted(sites, key=lambda site: (site.line, site.column)))
    return Migration(source, new, in_order, passed_over=passed_over(source, in_order), shared=shared_by(plan))


def _without_guards(plan: Plan, source: str, target: str, project: Project | None) -> Migration:
    """Delete the guards that only CUDA passes, and migrate the rest; line numbers refer to the old source."""
    guards = list(dict.fromkeys(plan.cuda_guards.values()))
    text, numbers = without_lines(plan.view, source, guards)
    rest = migrate_source(text, target, project, plan.decided)
    sites = [replace(site, line=numbers[site.line - 1]) for site in rest.sites]
    for asked, guard in plan.cuda_guards.items():
        line, column = plan.view.position(guard)
        code = plan.view.code(guard.with_changes(leading_lines=())).strip()
        sites.append(Site(plan.decisions[asked].rule, SiteOutcome.REWRITTEN, line, column, code))
    in_order = tuple(sorted(sites, key=lambda site: (site.line, site.column)))
    passed = tuple(replace(each, line=numbers[each.line - 1]) for each in rest.passed_over)
    return Migration(source, rest.new, in_order, passed_over=passed, shared=rest.shared)


def _decide(plan: Plan) -> None:
    """Apply every rule in turn; rules for larger constructs run before rules for parts of them."""
    choices.decide_any(plan)
    settled_questions.decide(plan)
    choices.decide(plan)
    comparisons.decide_types(plan)
    comparisons.decide(plan)
    device_literals.take_torch_device(plan)
    amp.decide(plan)
    typed_tensors.decide(plan)
    leftovers.decide_pinned_factories(plan)
    tensor_methods.decide(plan)
    runtime_calls.decide(plan)
    communication.decide(plan)
    device_ids.decide(plan)
    op_builders.decide(plan)
    guards.decide(plan)
    device_literals.decide(plan)
    leftovers.decide(plan)
    consequences.settle(plan)
    half_precision.decide(plan)


def _with_imports(plan: Plan, code: str, rewriter: Rewriter) -> tuple[str, list[Site]]:
    """Return the new source with updated imports, and the sites of imports of ``torch.cuda`` and of builders."""
    sites: list[Site] = []
    builders = op_builders.imports_of_builders(plan)
    found = [*_imports_of_cuda(plan), *builders]
    rules = {node: op_builders.RULE if node in builders else "imports" for node in found}
    statements = [node for node in found if not plan.view.is_ignored(node, rules[node])]
    if statements:
        used = {name for node in statements for name, uses in plan.view.import_references.get(node, {}).items() if uses}
        code, changed = TextModule(code).cleaned(used - plan.project.handed_on, amp.moving_names(plan))
        are_changed = {node: plan.view.code(node).strip() in changed for node in statements}
        sites = [
            _import_site(plan, node, rules[node], is_changed=is_changed)
            for node, is_changed in are_changed.items()
            if is_changed or node not in builders
        ]
    news = list(rewriter.replacements.values())
    is_needed = plan.needs_torch and not plan.view.has_torch and any("torch." in new for new in news)
    lines = ["import torch"] if is_needed else []
    if plan.import_line and any(plan.accelerator in new for new in news):
        lines.append(plan.import_line)
    needing = (node for node, new in rewriter.replacements.items() if plan.accelerator in new)
    with_torch = all(_NEEDS_TORCH.search(plan.view.code(_whole_expression(plan, each))) for each in needing)
    code = TextModule(code).added(lines, news, with_torch=with_torch)
    helpers = helpers_called(plan.target, plan.accelerator, news)
    return TextModule(code).defined(helpers, news), sites


def _whole_expression(plan: Plan, node: cst.CSTNode) -> cst.CSTNode:
    """Return the outermost expression around a node, which is in no other statement than the node is."""
    found = node
    for around in plan.view.ancestors(node):
        if isinstance(around, cst.BaseStatement | cst.BaseSmallStatement | cst.Lambda):
            break
        found = around if isinstance(around, cst.BaseExpression) else found
    return found


def _imports_of_cuda(plan: Plan) -> list[cst.CSTNode]:
    """Return the imports of ``torch.cuda`` and of its members that no rule has decided on."""
    found = plan.view.of(cst.Import, cst.ImportFrom)
    return [node for node in found if plan.is_open(node) and _CUDA_IMPORT.search(plan.view.code(node))]


def _site(plan: Plan, node: cst.CSTNode, rewriter: Rewriter) -> Site:
    decision = plan.decisions[node]
    line, column = plan.view.position(node)
    code = plan.view.code(node.with_changes(leading_lines=()) if hasattr(node, "leading_lines") else node).strip()
    is_reported = decision.outcome is SiteOutcome.REPORTED
    return Site(
        decision.rule,
        decision.outcome,
        line,
        column,
        code,
        rewriter.replacements.get(node, ""),
        plan.target.advice(decision.reason, plan.accelerator),
        question=decision.question or (decision.rule if is_reported else ""),
        can_be_ported=is_reported and decision.build is not None,
        is_guard=node in plan.exact and node in plan.cuda_guards and decision.outcome is SiteOutcome.REWRITTEN,
    )


def _import_site(plan: Plan, node: cst.CSTNode, rule: str = "imports", *, is_changed: bool) -> Site:
    line, column = plan.view.position(node)
    outcome = SiteOutcome.REWRITTEN if is_changed else SiteOutcome.LEFT
    reason = "" if is_changed else "still used; torch.cuda can be imported on every machine"
    given = {name for name in plan.view.import_references.get(node, {}) if name in plan.project.handed_on}
    is_kept = is_changed or plan.view.is_ignored(node, rule) or plan.decided.answer_to(rule) == "keep"
    if given and not is_kept:
        outcome, reason = (
            SiteOutcome.REPORTED,
            f"other files import {', '.join(sorted(given))} from here; port them, too",
        )
    question = rule if outcome is SiteOutcome.REPORTED else ""
    return Site(rule, outcome, line, column, plan.view.code(node), "", reason, question=question)
