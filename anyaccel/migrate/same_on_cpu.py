"""Proves that a question about CUDA may get the answer "yes" on a CPU: the program must do the same there as before.

Without CUDA, a program ran the branch for "no". After a rewrite, a CPU runs the branch for "yes". Both must have the
same normal form (:mod:`.cpu_form`); otherwise the question is reported.
"""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, Any

import libcst as cst

from .answers import Objection
from .cpu_form import ACCELERATOR, cpu_form
from .positions import written
from .regions import following, leaves
from .source_view import dotted
from .values_of_cuda import rewritten_in

if TYPE_CHECKING:
    from .plan import Plan, SiteDecision
    from .regions import Regions

__all__ = ["of_cpu"]

_REQUEST = re.compile(r"(^|[._])(cuda|gpu)s?$")
_DEVICE_ONLY = re.compile(r"^[\w.\[\]'\"]*(dev|device)\w*[\"'\]]* = __cpu__$", re.IGNORECASE)


def of_cpu(plan: Plan, found: Regions, *, is_start: bool) -> Objection | None:
    """Return an objection if a CPU would do anything else than before when this question is answered with yes.

    At the start of a program, the other branch may stop it: the program can now run.
    """
    if found.refuses:
        return Objection(
            "changes-cpu", "stops the program with CUDA; decide whether other devices stop it", is_of_cpu=True
        )
    ways = _ways(plan, found, is_start=is_start)
    if ways is None:
        return None
    is_end = _is_at_end(plan, found, ways)
    yes = _form(plan, ways[0], is_end=is_end)
    no = _form(plan, ways[1], is_end=is_end) if yes is not None else None
    is_same = yes is not None and (yes == no or (not no and _DEVICE_ONLY.match(yes)))
    if is_same and not any(_is_compared_text(plan, each) for each in ways[0]):
        return None
    line = plan.view.position(ways[0][0] if ways[0] else ways[1][0])[0]
    return Objection(
        "changes-cpu",
        f"a CPU would run other code than before (line {line}); decide which branch other devices take",
        is_of_cpu=not found.stops or _is_requested(plan, found.asked),
    )


def _is_compared_text(plan: Plan, node: cst.CSTNode) -> bool:
    """Return whether code sets a ``torch.device`` that the module compares with the text ``"cpu"``, which it does not equal."""
    made = [each for each in plan.view.inside(node, cst.Assign) if "device(" in plan.view.code(each.value)]
    names = [re.escape(name) for each in made if (name := dotted(each.targets[0].target))]
    return any(re.search(rf"(?<![\w.]){name} *[=!]= *[\"']cpu[\"']", plan.view.source) for name in names)


def _is_requested(plan: Plan, asked: cst.CSTNode) -> bool:
    """Return whether a question is asked only where CUDA was requested: ``if use_cuda: if torch.cuda.is_available(): …``.

    Then the branch that stops the program says that the request cannot be met, which stays true on a CPU.
    """
    inner = asked
    for around in plan.view.ancestors(asked):
        if isinstance(around, cst.If) and around.body is inner:
            return _REQUEST.search((dotted(around.test) or "").lower()) is not None
        if isinstance(around, cst.FunctionDef):
            return False
        inner = around
    return False


def _ways(plan: Plan, found: Regions, *, is_start: bool) -> tuple[list[cst.CSTNode], list[cst.CSTNode]] | None:
    """Return the code for the answers yes and no; None if the answer is used as a value, or the program ends without CUDA."""
    view, asked = plan.view, found.asked
    if not found.is_test or found.is_entry:
        return None
    test = next(
        (each for each in view.ancestors(asked) if isinstance(each, cst.If | cst.IfExp | cst.BaseStatement)), None
    )
    yes, no = list(found.blocks), [found.other] if found.other is not None else []
    if isinstance(test, cst.If):
        if found.stops and is_start:
            return None
        if found.stops and isinstance(test.orelse, cst.Else):
            no = [test.body if yes == [test.orelse] else test.orelse]
        if found.other is None and yes == [test.body] and leaves(view, test.body):
            no = following(view, test)
    return (yes, no) if yes or no else None


def _is_at_end(plan: Plan, found: Regions, ways: tuple[list[cst.CSTNode], list[cst.CSTNode]]) -> bool:
    """Return whether a function ends behind both ways, so that a ``return`` without a value at their end does nothing."""
    tests = (each for each in plan.view.ancestors(found.asked) if isinstance(each, cst.If | cst.FunctionDef))
    test = next(tests, None)
    function = plan.view.function_around(found.asked)
    if not isinstance(test, cst.If) or function is None or plan.view.parent(test) is not function.body:
        return False
    after = following(plan.view, test)
    return not after or ways[1] == after


def _form(plan: Plan, nodes: list[cst.CSTNode], *, is_end: bool) -> str | None:
    """Return the normal form of some statements, of a block or of an expression after the decisions so far."""
    texts = []
    for node in nodes:
        old = node.body if isinstance(node, cst.Else) else node
        ones = rewritten_in(plan, [old])
        new: Any = old.visit(_Rewritten(plan, ones)) if ones else old
        code = textwrap.dedent(written(plan.view.module, new).replace("\r\n", "\n"))  # \r would count as text
        texts.append(f"__value__ = ({code})" if isinstance(new, cst.BaseExpression) else code)
    text = "\n".join(texts)
    for name in {plan.accelerator, "get_accelerator()"} - {""}:
        text = text.replace(name, ACCELERATOR)
    return cpu_form(text, is_end=is_end)


class _Rewritten(cst.CSTTransformer):
    """Applies the decisions so far to a part of the tree."""

    def __init__(self, plan: Plan, ones: list[SiteDecision]) -> None:
        super().__init__()
        self._decisions = {one.node: one for one in ones}
        self._on_the_way = {around for one in ones for around in (one.node, *plan.view.ancestors(one.node))}

    def on_visit(self, node: cst.CSTNode) -> bool:
        return node in self._on_the_way

    def on_leave(self, original_node: cst.CSTNode, updated_node: Any) -> Any:
        updated_node = super().on_leave(original_node, updated_node)
        decision = self._decisions.get(original_node)
        return updated_node if decision is None or decision.build is None else decision.build(updated_node)
