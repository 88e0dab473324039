"""The rule device-choice: ``"cuda" if torch.cuda.is_available() else "cpu"``, and the same as an ``if`` statement.

Also ``torch.cuda.is_available() or torch.xpu.is_available()``, which checks for any accelerator.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .cpu_form import ASKED_ANYWHERE
from .device_positions import is_device_position
from .device_text import index_in, is_device_literal
from .listed_devices import OF_LIST, is_listed
from .other_libraries import (
    is_given_to_other_library,
    is_named_for_other_library,
    is_of_other_library,
    is_where_tensors_are,
)
from .regions import regions_of
from .source_view import dotted, text_of
from .targets import expression

if TYPE_CHECKING:
    from .plan import Plan
    from .source_view import SourceView

__all__ = ["asks_availability", "decide", "decide_any", "is_plain_other"]

RULE = "device-choice"
BACKEND_RULE = "comm-backend"
_OF_OTHER = "another library gets it, which has its own device names; decide which it takes"
_OF_HEIRS = (
    "classes of other files derive from this one and give it to a library for CUDA; decide which devices it takes"
)
_PARSES = re.compile(r"\.(replace|split|strip|lstrip|removeprefix|partition)\([\"']cuda")
_OTHERS = {"cpu", "mps", "xpu"}
_OTHER = re.compile(r"\b(mps|xpu|npu|hpu|mlu|musa|sdaa)\b|_(mps|xpu|npu|hpu|mlu|musa|sdaa)_")
_ASKED_OF_OTHER = re.compile(
    r"\b(torch\.)?(backends\.)?(mps|xpu)\.is_(available|built)\(\)|is_(torch_)?(mps|xpu)_available\(\)"
    r"|(has|get)attr\([\w.]+, *[\"'](mps|xpu|is_available)[\"'](, *None)?\)|\b(and|is|not|None|bool)\b"
)
_ASKS_OTHER = re.compile(
    r"^(torch\.(backends\.)?(mps|xpu|npu|hpu|mlu|musa|sdaa)\.is_available|is_(torch_)?(mps|xpu|npu|hpu|mlu|musa|sdaa)_available)\(\)$"
)


def is_plain_other(asked: str) -> bool:
    """Return whether a test only asks for Apple's GPU or an XPU, without a further condition."""
    return "available" in asked and not re.search(r"\w", _ASKED_OF_OTHER.sub("", asked))


def asks_availability(view: SourceView, test: cst.BaseExpression) -> bool | None:
    """Return True for ``torch.cuda.is_available()``, False for its negation, None for any other test."""
    if isinstance(test, cst.UnaryOperation) and isinstance(test.operator, cst.Not):
        inner = asks_availability(view, test.expression)
        return None if inner is None else not inner
    if isinstance(test, cst.Call) and view.name(test.func) == "torch.cuda.is_available" and not test.args:
        return True
    return None


def decide_any(plan: Plan) -> None:
    """Replace ``torch.cuda.is_available() or torch.xpu.is_available()`` with one check, whatever depends on it.

    The contract checks for the current accelerator, which is one of them wherever the old check was true. The code that
    depends on the check must not name any of the others. On a CPU the new check is true as well; :mod:`.consequences`
    handles that.
    """
    function = plan.function("is_available")
    for node in plan.view.of(cst.BooleanOperation):
        asked = [plan.view.code(each).strip() for each in _alternatives(node)]
        is_cuda = [asks_availability(plan.view, each) is True for each in _alternatives(node)]
        is_known = all(is_one or _ASKS_OTHER.match(code) for is_one, code in zip(is_cuda, asked, strict=True))
        if function is None or not any(is_cuda) or not is_known or not plan.is_open(node):
            continue
        found = regions_of(plan.view, node)
        others = [found.other] if found.other is not None else []  # where another accelerator is asked for
        if not any(_OTHER.search(plan.view.code(each)) for each in (*found.all, *others)):
            plan.rewrite(node, "runtime-call", lambda _: expression(f"{function}()"), tuple(node.children))


def _alternatives(node: cst.BaseExpression) -> list[cst.BaseExpression]:
    """Return ``a``, ``b`` and ``c`` of ``a or b or c``."""
    if isinstance(node, cst.BooleanOperation) and isinstance(node.operator, cst.Or):
        return [*_alternatives(node.left), *_alternatives(node.right)]
    return [node]


def decide(plan: Plan) -> None:
    """Decide on every choice between CUDA and the CPU that tests whether CUDA is available."""
    for node in plan.view.of(cst.IfExp):
        if plan.is_open(node):
            _decide_expression(plan, node)
    for node in plan.view.of(cst.If):
        if plan.is_open(node):
            _decide_statement(plan, node)


def _decide_expression(plan: Plan, node: cst.IfExp) -> None:
    asked = asks_availability(plan.view, node.test)
    if asked is None and plan.view.code(node.test).endswith("is_nccl_available()") and text_of(node.body) == "nccl":
        reason = (
            "checks for NCCL; use get_accelerator().communication_backend_name() if the result is a group's backend"
        )
        plan.report(node, BACKEND_RULE, reason)
        plan.claim(node.body)
    if asked is None:
        return
    chosen, other = (node.body, node.orelse) if asked else (node.orelse, node.body)
    new = _choice(plan, chosen, other)
    is_text = text_of(chosen) is not None or text_of(other) is not None
    if new is not None and is_text and not _is_for_device(plan, node):
        return  # the name of something else, such as a folder; the rule device-name handles it
    is_made = is_where_tensors_are(plan.view) or (isinstance(chosen, cst.Call) and is_of_other_library(plan.view, node))
    stored = next((each for each in plan.view.ancestors(node) if isinstance(each, cst.Assign)), None)
    is_of_heirs = stored is not None and _is_for_heirs(plan, stored.targets[0].target)
    if new is not None and (is_made or is_of_heirs or is_given_to_other_library(plan.view, node)):
        plan.report(node, RULE, _OF_HEIRS if is_of_heirs else _OF_OTHER)
        plan.claim(*node.children)
        return
    if new is not None:
        plan.rewrite(node, RULE, lambda _: new, tuple(node.children))
    elif text_of(chosen) == "nccl" and text_of(other) == "gloo":
        function = plan.function("communication_backend_name")
        if function is not None:
            plan.rewrite(node, BACKEND_RULE, lambda _: expression(f"{function}()"), tuple(node.children))


def _is_for_heirs(plan: Plan, target: cst.BaseExpression) -> bool:
    """Return whether a class stores a device for those that derive from it, and give it to a library for CUDA."""
    owner = plan.view.class_around(target) if dotted(target) == "self.device" else None
    return isinstance(owner, cst.ClassDef) and owner.name.value in plan.project.bases_of_cudas


def _is_for_device(plan: Plan, node: cst.IfExp) -> bool:
    around = plan.view.parent(node)
    if isinstance(around, cst.DictElement):
        return "device" in (text_of(around.key) or "")
    return is_device_position(plan.view, node).is_device


def _choice(plan: Plan, chosen: cst.BaseExpression, other: cst.BaseExpression) -> cst.BaseExpression | None:
    """Return the replacement for a choice between two devices; None for any other choice."""
    if _is_current(plan, chosen, other):
        function = plan.function("current_device_name")
        return None if function is None else expression(f"{function}()")
    for unwrap, wrap in ((_itself, "{name}"), (_inside_torch_device, "torch.device({name})")):
        literal = unwrap(plan.view, chosen)
        if literal is None or not is_device_literal(literal) or not _is_other(plan.view, other, unwrap):
            continue
        index = index_in(literal)
        if index is not None and _needs_cuda(plan.view, index):
            return None  # a CPU does not ask for the index either
        asked = index is not None and "torch.cuda." in " ".join(
            map(plan.view.name, plan.view.inside(index, cst.Attribute, cst.Name))
        )
        is_current = isinstance(index, cst.Call) and plan.view.name(index.func) == "torch.cuda.current_device"
        function = plan.function("current_device_name")
        if asked and not (is_current and function is not None):
            return None  # the rules for the index and for the name rewrite both
        name = expression(f"{function}()") if asked else plan.device_name(index)
        if name is None:
            return None
        made = plan.view.code(chosen.func) if isinstance(chosen, cst.Call) and unwrap is not _itself else ""
        return expression(wrap.replace("torch.device", made), name=name)
    return None


def _needs_cuda(view: SourceView, index: cst.BaseExpression) -> bool:
    """Return whether an index may not exist on a CPU: ``os.environ["LOCAL_RANK"]``, or what ``gpu_with_most_memory()`` asks."""
    calls = [dotted(each.func) or "" for each in view.inside(index, cst.Call)]
    is_asked = any(not ASKED_ANYWHERE.search(each.lower()) for each in calls)
    return is_asked or next(iter(view.inside(index, cst.Subscript)), None) is not None


def _is_current(plan: Plan, chosen: cst.BaseExpression, other: cst.BaseExpression) -> bool:
    """Return whether a choice is between the current device and the CPU; ``current_device_name()`` covers both."""
    if not isinstance(chosen, cst.Call) or chosen.args:
        return False
    return plan.view.name(chosen.func) == "torch.cuda.current_device" and text_of(other) == "cpu"


def _is_other(view: SourceView, node: cst.BaseExpression, unwrap: object) -> bool:
    """Return whether an expression is the CPU, MPS or XPU, or a choice between them."""
    if isinstance(node, cst.IfExp):
        is_plain = is_plain_other(view.code(node.test))
        return is_plain and _is_other(view, node.body, unwrap) and _is_other(view, node.orelse, unwrap)
    literal = unwrap(view, node)  # type: ignore[operator]  # one of the two functions below
    return literal is not None and text_of(literal) in _OTHERS


def _itself(view: SourceView, node: cst.BaseExpression) -> cst.BaseExpression | None:
    return node


def _inside_torch_device(view: SourceView, node: cst.BaseExpression) -> cst.BaseExpression | None:
    if isinstance(node, cst.Call) and view.name(node.func) == "torch.device" and len(node.args) == 1:
        return node.args[0].value
    return None


def _decide_statement(plan: Plan, node: cst.If) -> None:
    asked = asks_availability(plan.view, node.test)
    if asked is None or not isinstance(node.orelse, cst.Else | cst.If) or _is_elif(plan.view, node):
        return
    branches = _branches(plan.view, node)
    if branches is None or "#" in plan.view.code(node.with_changes(leading_lines=())):
        return
    target, values = branches
    chosen, others = (values[0], values[1:]) if asked else (values[-1], values[:-1])
    news = [_choice(plan, chosen, other) for other in others]
    if any(new is None for new in news):
        return
    is_of_other = is_of_other_library(plan.view, node) or is_named_for_other_library(plan.view, target)
    is_of_heirs = _is_for_heirs(plan, target)
    if is_of_other or is_of_heirs or is_listed(plan.view, target):
        plan.report(node, RULE, _OF_OTHER if is_of_other else _OF_HEIRS if is_of_heirs else OF_LIST)
        plan.claim(*node.children)
        return
    line = _parsed_at(plan, target)
    if line:
        plan.report(node, RULE, f"line {line} parses the name of a CUDA device; change both together")
        plan.claim(*node.children)
        return
    statement = cst.SimpleStatementLine([cst.Assign([cst.AssignTarget(target)], news[0])])  # type: ignore[arg-type]
    plan.rewrite(
        node, RULE, lambda updated: statement.with_changes(leading_lines=updated.leading_lines), tuple(node.children)
    )


def _parsed_at(plan: Plan, target: cst.BaseExpression) -> int:
    """Return the line that takes CUDA's name out of a variable: ``str(device).replace("cuda:", "")``; 0 for none."""
    for use in plan.view.uses(target) or ():
        for around in plan.view.ancestors(use):
            if isinstance(around, cst.BaseStatement | cst.BaseSmallStatement):
                break
            if isinstance(around, cst.Call) and _PARSES.search(plan.view.code(around)):
                return plan.view.position(around)[0]
    return 0


def _is_elif(view: SourceView, node: cst.If) -> bool:
    around = view.parent(node)
    return isinstance(around, cst.If) and around.orelse is node


def _branches(view: SourceView, node: cst.If) -> tuple[cst.BaseAssignTargetExpression, list[cst.BaseExpression]] | None:
    """Return the one target that all branches assign to, and the values; None if a branch does anything else."""
    targets, values = [], []
    branch: cst.If | cst.Else | None = node
    while branch is not None:
        assigned = _only_assignment(branch)
        if assigned is None:
            return None
        targets.append(assigned.targets[0].target)
        values.append(assigned.value)
        if isinstance(branch, cst.Else):
            break
        if branch is not node and not is_plain_other(view.code(branch.test)):
            return None
        branch = branch.orelse
    is_one = len({dotted(target) for target in targets}) == 1 and dotted(targets[0]) is not None
    return (targets[0], values) if is_one and isinstance(branch, cst.Else) else None


def _only_assignment(branch: cst.If | cst.Else) -> cst.Assign | None:
    body = branch.body.body
    if len(body) != 1:
        return None
    line = body[0]
    statement = line.body[0] if isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1 else line
    return statement if isinstance(statement, cst.Assign) and len(statement.targets) == 1 else None
