"""Reports rewrites that would leave half of what belongs together: a class, a comparison of names, a guarded block."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .choices import asks_availability
from .compared_together import keep_comparisons, sides_of
from .device_text import WRITTEN, is_device_literal
from .groups_together import keep_beside_groups, keep_counts
from .listed_devices import OF_LIST
from .questions import asked_in
from .questions_together import keep_questions
from .regions import following, leaves, regions_of
from .site import SiteOutcome
from .source_view import dotted, text_of
from .stored_answers import regions_of_name
from .values_of_cuda import decided_in

if TYPE_CHECKING:
    from .plan import Plan, SiteDecision
    from .regions import Regions

__all__ = ["keep_together"]

_MOVES = re.compile(r"\.(cuda|to)\(")
_CPU = re.compile(r"[\"']cpu[\"']")
_SAME = "asks the same, and is reported; decide on both together"
_OF_TWO = re.compile(
    r"^test_.*(cuda_(and_)?cpu|cpu_(and_)?cuda|device_?mismatch|(mismatch\w*|different|mixed|two)_device)"
)
_RAISES = re.compile(r"\b(raises|assertRaises\w*)\(")
_CLASSES = ("torch.cuda.Event", "torch.cuda.Stream")


def keep_together(plan: Plan) -> None:
    """Report the rewritten sites whose counterpart is reported."""
    _keep_classes(plan)
    _keep_compared(plan)
    _keep_constants(plan)
    _keep_guards(plan)
    keep_questions(plan)
    _keep_moves(plan)
    _keep_choices(plan)
    _keep_other_choices(plan)
    keep_beside_groups(plan)
    keep_counts(plan)
    keep_comparisons(plan)
    _keep_defaults(plan)
    _keep_fallbacks(plan)
    _keep_forked(plan)
    _keep_settings(plan)
    _keep_mismatches(plan)


def _keep_mismatches(plan: Plan) -> None:
    """Report the devices in a test that expects an error because two devices differ: on a CPU they would not."""
    for test in plan.view.of(cst.FunctionDef):
        if _OF_TWO.search(test.name.value) and _RAISES.search(plan.view.code(test.body)):
            _undo(plan, test.body, "the test expects an error of two devices that differ; skip it where there is one")


def _keep_settings(plan: Plan) -> None:
    """Report the devices that are the program's settings, if it refuses all but the CPU and CUDA: ``"device": "cuda:0"``."""
    for one in list(plan.decisions.values()) if plan.project.refuses_others else ():
        is_device = one.outcome is SiteOutcome.REWRITTEN and one.rule in ("device-name", "device-choice")
        if is_device and _is_setting(plan, one.node):
            plan.reconsider(one.node, OF_LIST)


def _is_setting(plan: Plan, node: cst.CSTNode) -> bool:
    """Return whether a value is the default of an option ``--device``, or what a dictionary has under that name."""
    around = plan.view.parent(node)
    if isinstance(around, cst.DictElement):
        return text_of(around.key) == "device"
    if isinstance(around, cst.Assign):
        target = around.targets[0].target
        inside = target.slice[0].slice if isinstance(target, cst.Subscript) else None
        return isinstance(inside, cst.Index) and text_of(inside.value) == "device"
    call = plan.view.parent(around) if isinstance(around, cst.Arg) else None
    names = [text_of(each.value) for each in call.args if not each.keyword] if isinstance(call, cst.Call) else []
    return "--device" in names


def _keep_fallbacks(plan: Plan) -> None:
    """Report ``device if torch.cuda.is_available() else "cpu"`` if the parameter's default stays CUDA's name."""
    for choice in plan.view.of(cst.IfExp):
        one = plan.decisions.get(choice.test)
        parameter = plan.view.parameter(choice.body) if one is not None else None
        default = parameter.default if parameter is not None else None
        kept = plan.decisions.get(default) if default is not None and is_device_literal(default) else None
        if one is not None and kept is not None and kept.outcome is SiteOutcome.REPORTED:
            line = plan.view.position(kept.node)[0]
            _undo(plan, choice.test, f"keeps the name that line {line} gives by default; decide on both together")


def _keep_forked(plan: Plan) -> None:
    """Report the questions about CUDA in a function that forks CUDA's generators, which is reported: it lists their devices."""
    for fork in [each for each in plan.decisions.values() if "fork_rng(devices=" in plan.view.code(each.node)]:
        if fork.outcome is not SiteOutcome.REPORTED:
            continue
        reason = (
            f"line {plan.view.position(fork.node)[0]} forks CUDA's generators, and is reported; decide on both together"
        )
        function = plan.view.function_around(fork.node)
        values = [value for name in plan.view.inside(fork.node, cst.Name) for value in plan.view.values_of(name)]
        listed = [each for each in values if not isinstance(each, cst.IfExp)]  # whose question is kept, and is enough
        for one in list(plan.decisions.values()):
            around = plan.view.function_around(one.node)
            is_near = around is None if function is None else plan.view.is_within(one.node, function)
            is_near &= asked_in(plan, one) is not None
            if is_near or any(plan.view.is_within(one.node, each) for each in (fork.node, *listed)):
                _undo(plan, one.node, reason)


def _keep_defaults(plan: Plan) -> None:
    """Report the choices of a device in a program that chooses CUDA's or the CPU's own code by a device's type.

    ``if device.type == "cuda": CUDASampler(g)``, with ``else: CPUSampler(g)``, takes the CPU's for the tensors of others.
    """
    name = min(plan.project.chosen_by_device, default="")
    for one in list(plan.decisions.values()) if name else ():
        asked = asked_in(plan, one) if one.outcome is SiteOutcome.REWRITTEN else None
        is_asked = isinstance(asked, cst.Call) and asks_availability(plan.view, asked) is True
        blocks = regions_of(plan.view, asked).blocks if is_asked and asked is not None else []
        is_chosen = any(_sets_device(plan, block) for block in blocks)
        if one.outcome is SiteOutcome.REWRITTEN and (one.rule == "device-choice" or is_chosen):
            plan.reconsider(one.node, f"{name} is chosen by a device's type, and is CUDA's; decide on both together")


def _keep_moves(plan: Plan) -> None:
    """Report ``if torch.cuda.is_available():`` before a move if what meets it there does not move.

    Then another such statement stays: one that moves something else, or one in the same function that moves back:
    ``preds = preds.cpu()``.
    """
    moving: list[SiteDecision] = []
    kept: dict[cst.CSTNode | None, cst.CSTNode] = {}  # by function; None is for all
    for one in plan.decisions.values():
        asked = asked_in(plan, one) if one.outcome is not SiteOutcome.LEFT else None
        test = plan.view.parent(asked) if isinstance(asked, cst.Call) and asks_availability(plan.view, asked) else None
        if isinstance(test, cst.If) and asked is not None:
            moves = _MOVES.search(plan.view.code(test.body)) is not None
            if one.outcome is SiteOutcome.REWRITTEN:
                moving += [one] if moves else []
            elif not one.reason.endswith(_SAME) and (moves or ".cpu()" in plan.view.code(test.body)):
                kept.setdefault(None if moves else plan.view.function_around(test), asked)
    for one in moving:
        other = kept.get(None) or kept.get(plan.view.function_around(one.node))
        if other is not None:
            line = plan.view.position(other)[0]
            plan.reconsider(one.node, f"line {line} {_SAME}")


def _keep_choices(plan: Plan) -> None:
    """Report the choices of a device in a function, or at a module's top, that has a reported choice by the same question.

    ``accelerator = "gpu" if torch.cuda.is_available() else "cpu"`` says where a library puts its model, and ``device`` beside
    it where its input goes.
    """
    kept: dict[cst.CSTNode | None, cst.CSTNode] = {}
    for one in plan.decisions.values():
        asked = asked_in(plan, one) if one.outcome is SiteOutcome.REPORTED else None
        choice = (
            plan.view.parent(asked) if isinstance(asked, cst.Call) and asks_availability(plan.view, asked) else None
        )
        if isinstance(choice, cst.IfExp) and choice.test is asked and text_of(choice.orelse) == "cpu":
            kept.setdefault(plan.view.function_around(choice), choice)
    for one in list(plan.decisions.values()) if kept else ():
        other = kept.get(plan.view.function_around(one.node))
        if other is not None and one.rule == "device-choice" and one.outcome is SiteOutcome.REWRITTEN:
            line = plan.view.position(other)[0]
            plan.reconsider(
                one.node, f"line {line} chooses by the same question, and is reported; decide on both together"
            )


def _keep_other_choices(plan: Plan) -> None:
    """Report the choices of a device or a backend in a file of which one that chooses a device is reported, and its moves.

    There, the device of another accelerator stays the CPU, and autocast and the group's backend must be for that.
    """
    kept = None
    for one in plan.decisions.values():
        asked = asked_in(plan, one) if one.outcome is SiteOutcome.REPORTED else None
        if isinstance(asked, cst.Call) and asks_availability(plan.view, asked):
            found = regions_of(plan.view, asked)
            if any(_chooses_device(plan, each) for each in (found, *regions_of_name(plan.view, found))):
                kept = kept or asked
    for one in list(plan.decisions.values()) if kept is not None else ():
        asked = asked_in(plan, one)
        choice = plan.view.parent(asked) if isinstance(asked, cst.Call) else None
        is_move = isinstance(choice, cst.IfExp) and _MOVES.search(plan.view.code(choice.body)) is not None
        is_choice = one.rule == "device-choice" or (one.rule == "comm-backend" and isinstance(one.node, cst.IfExp))
        is_choice |= isinstance(choice, cst.If) and _chooses_device(plan, regions_of(plan.view, choice.test))
        if (is_choice or is_move) and one.outcome is SiteOutcome.REWRITTEN and kept is not None:
            line = plan.view.position(kept)[0]
            plan.reconsider(one.node, f"line {line} chooses a device, and is reported; decide on both together")


def _chooses_device(plan: Plan, found: Regions) -> bool:
    """Return whether code for CUDA stores or returns a device, and the other branch, or what follows, is for the CPU."""
    others = [found.other] if found.other is not None else []
    test = plan.view.parent(found.blocks[0]) if found.blocks else None
    if isinstance(test, cst.If) and test.orelse is None and leaves(plan.view, test.body):
        others += following(plan.view, test)
    is_for_cpu = any(_CPU.search(plan.view.code(each)) for each in others)
    return is_for_cpu and any(
        _sets_device(plan, block) or is_device_literal(block) or _is_name_of_device(plan, block)
        for block in found.blocks
    )


def _is_name_of_device(plan: Plan, block: cst.CSTNode) -> bool:
    """Return whether a branch of a choice is the name of a device that an earlier run wrote."""
    return isinstance(block, cst.BaseExpression) and WRITTEN.search(plan.view.code(block)) is not None


def _sets_device(plan: Plan, block: cst.CSTNode) -> bool:
    """Return whether code stores or returns a device by its name."""
    for statement in plan.view.inside(block, cst.Assign, cst.Return):
        value = statement.value
        made = value.args[0].value if isinstance(value, cst.Call) and value.args else value
        found = [plan.decisions.get(each) for each in (value, made) if each is not None]
        is_ported = value is not None and WRITTEN.search(plan.view.code(value)) is not None  # by an earlier run
        if is_ported or any(one is not None and one.rule == "device-name" for one in found):
            return True
    return False


def _keep_classes(plan: Plan) -> None:
    """Report every construction of ``torch.cuda.Event`` or ``Stream`` if another use of that class is reported.

    ``type(event) == torch.cuda.Event`` is false for the accelerator's events.
    """
    reported = [one for one in plan.decisions.values() if one.outcome is SiteOutcome.REPORTED]
    for name in {name for one in reported if (name := plan.view.name(one.node)) in _CLASSES}:
        line = min(plan.view.position(one.node)[0] for one in reported if plan.view.name(one.node) == name)
        for one in list(plan.decisions.values()):
            made = one.node.func if isinstance(one.node, cst.Call) else one.node
            if one.outcome is SiteOutcome.REWRITTEN and plan.view.name(made) == name:
                plan.reconsider(one.node, f"{name} is used as a class at line {line}; change both together")


def _keep_compared(plan: Plan) -> None:
    """Report the names that are stored and compared with a reported one: ``"cuda:" + str(k) != self.last_device``.

    A reported comparison also keeps the texts that its function stores: ``device = "cuda"``, then ``is_cuda = device == "cuda"``.
    """
    for one in list(plan.decisions.values()):
        around = plan.view.parent(one.node)
        comparison = plan.view.parent(around) if isinstance(around, cst.ComparisonTarget) else around
        is_name = is_device_literal(one.node) and isinstance(comparison, cst.Comparison)
        is_question = isinstance(one.node, cst.Comparison) and one.rule == "device-name"
        if one.outcome is not SiteOutcome.REPORTED or not (is_name or is_question):
            continue
        line, function = plan.view.position(one.node)[0], plan.view.function_around(one.node)
        sides = sides_of(one.node if is_question else comparison)  # type: ignore[arg-type]
        values = [value for side in sides for value in plan.view.assigned.get(dotted(side) or "", ())]
        if is_question:
            texts = [each for each in values if isinstance(each, cst.SimpleString)]
            values = [each for each in texts if function is not None and plan.view.function_around(each) is function]
            given = [plan.view.parameter(side) for side in sides]
            values += [each.default for each in given if each is not None and each.default is not None]
        for value in values:
            _undo(plan, value, f"compared with a CUDA device's name at line {line}; change both together")


def _keep_constants(plan: Plan) -> None:
    """Report ``KIND = "cuda"`` if what depends on ``x.device.type == KIND`` is reported: a CPU's tensor is of that kind, too."""
    for one in list(plan.decisions.values()):
        around = plan.view.parent(one.node) if is_device_literal(one.node) else None
        if one.outcome is not SiteOutcome.REWRITTEN or not isinstance(around, cst.Assign):
            continue
        for use in plan.view.uses(around.targets[0].target) or ():
            target = plan.view.parent(use)
            asked = plan.view.parent(target) if isinstance(target, cst.ComparisonTarget) else target
            found = regions_of(plan.view, asked).all if isinstance(asked, cst.Comparison) else []
            inside = [each for region in found for each in decided_in(plan, region)]
            stays = next((each for each in inside if each.outcome is SiteOutcome.REPORTED), None)
            if stays is not None:
                _undo(plan, one.node, f"is compared before line {plan.view.position(stays.node)[0]}, which is reported")


def _keep_guards(plan: Plan) -> None:
    """Report ``with torch.cuda.device(i):`` before code of which all that names CUDA stays."""
    for block in plan.view.of(cst.With):
        inside = [one for one in plan.decisions.values() if plan.view.is_within(one.node, block.body)]
        stays = next((one for one in inside if one.outcome is SiteOutcome.REPORTED), None)
        if stays is None or any(one.outcome is SiteOutcome.REWRITTEN for one in inside):
            continue
        line = plan.view.position(stays.node)[0]
        for item in block.items:
            if isinstance(item.item, cst.Call) and plan.view.name(item.item.func) == "torch.cuda.device":
                _undo(plan, item, f"the code that it is for stays specific to CUDA (line {line}); change both together")


def _undo(plan: Plan, where: cst.CSTNode, reason: str) -> None:
    for node, one in list(plan.decisions.items()):
        if one.outcome is SiteOutcome.REWRITTEN and plan.view.is_within(node, where):
            plan.reconsider(node, reason)
