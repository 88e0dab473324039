"""Objections to rewriting a question that come from the values in the code that runs only if the answer is yes.

No name in that code says that they are CUDA's: a name that holds ``"cuda"``, an attribute that is set only under another
question, a text that the program goes on with, an option of another library.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING

import libcst as cst

from .answers import Objection
from .choices import asks_availability
from .questions import asked_in
from .regions import regions_of
from .site import SiteOutcome
from .source_view import dotted, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from .plan import Plan, SiteDecision

__all__ = ["decided_in", "rewritten_in", "values_of_cuda"]

_OPTION = re.compile(r"^(accelerator|devices|gpus|n_gpus?|num_gpus?(_per_\w+)?|driver)$")  # driver= is of torch.linalg
_CLASS_OF_CUDA = re.compile(r"^_?(CUDA|Cuda)[A-Z][a-z]\w*$|^_?[A-Z]\w*[a-z](CUDA|Cuda)$")
_CONSTANT_OF_CUDA = re.compile(
    r"^_?(CUDA(_DEVICE)?|(FLAG|KIND|TYPE|MODE|BACKEND|TARGET|MEM|MEMORY|LOC)\w*_CUDA)$|(^|\.)[A-Z]\w*[a-z]\w*\.(CUDA|cuda)$"
)
_NAME_OF_CLASS = re.compile(r"^([\w.:]*[.:])?_?(CUDA|Cuda)[A-Z][a-z]\w*$")
_LABEL = re.compile(r"cuda[\w-]*[ :.(/]|[ :(/][\w-]*cuda|\w[._-]cuda$", re.IGNORECASE)
_DEVICE = re.compile(r"^cuda(:\d*)?$")
_NUMBERS = re.compile(r"^\d+(, ?\d+)*$")
_NAMES_CUDA = re.compile(r"\bCUDA\b|'cuda'|\"cuda\"")
_MISSING = re.compile(
    r"\bnot\b[\w ]* (available|installed|found|supported|detected|enabled)|unavailable|fall(s|ing)? ?back|CPU instead",
    re.IGNORECASE,
)
_TELLS = re.compile(
    r"(^|\.)(print|info|debug|warning|warn|error|critical|log|write|format|append|add_argument)$|^(\w*Error|\w*Exception|\w*Warning)$"
)


def values_of_cuda(plan: Plan, region: cst.CSTNode, asked: cst.CSTNode) -> Iterator[Objection]:
    """Yield the objections to a region by the values that it uses: these are CUDA's even where no name says so.

    A name may hold a string that stays ``"cuda"``; an attribute may be set only under another question that stays, so
    that it is not there on other devices; a text that is kept, such as a file's name, may say that CUDA was used.
    """
    if asked in plan.questions:
        yield from _of_request(plan, region)
    around = plan.view.parent(region)
    if isinstance(around, cst.IfExp) and _NUMBERS.match(text_of(region) or "") and text_of(around.orelse) == "cpu":
        yield Objection(
            "depends-on-cuda", "chooses numbers of CUDA devices or the CPU; decide how other devices are named there"
        )
    has_attributes = any((dotted(each) or "").startswith("self.") for each in plan.view.inside(region, cst.Attribute))
    kept = _set_under_other(plan, asked) if has_attributes else {}
    for node in plan.view.inside(region, cst.Name, cst.Attribute):
        text = dotted(node) or ""
        chosen = (each for each in plan.view.values_of(node) if isinstance(each, cst.IfExp))
        half = next((one for each in chosen for one in decided_in(plan, each) if _is_kept_name(one)), None)
        if half is not None:
            line = plan.view.position(half.node)[0]
            yield Objection(
                "depends-on-cuda", f"{text} may stay the name of CUDA (line {line}); decide on both together"
            )
        if _is_constant_of_cuda(plan, node):
            yield Objection("depends-on-cuda", f"{text} depends on it and is CUDA's; decide what other devices use")
        if isinstance(node, cst.Attribute):
            yield from _of_attribute(plan, node, kept)
            continue
        decided = [plan.decisions.get(value) for value in plan.view.values_of(node) if text_of(value)]
        stays = [one for one in decided if one is not None and one.outcome is not SiteOutcome.REWRITTEN]
        if stays and _DEVICE.match(text_of(stays[0].node) or ""):
            line = plan.view.position(stays[0].node)[0]
            yield Objection("depends-on-cuda", f"{text} stays the name of CUDA (line {line}); decide on both together")
        for value in plan.view.values_of(node):
            of_type = next((one for one in decided_in(plan, value) if _is_kept_type(one)), None)
            if of_type is not None:
                line = plan.view.position(of_type.node)[0]
                yield Objection(
                    "depends-on-cuda", f"{text} stays a type of CUDA's (line {line}); decide on both together"
                )
        if _CLASS_OF_CUDA.match(text) and not plan.view.name(node).startswith("torch."):
            yield Objection("depends-on-cuda", f"{text} depends on it and is for CUDA; decide what other devices use")
    yield from _texts_of_cuda(plan, region)


def _texts_of_cuda(plan: Plan, region: cst.CSTNode) -> Iterator[Objection]:
    """Yield the objections to a value that a library gets, and to a text that the program goes on with."""
    if option := _option_of_library(plan, region):
        yield Objection(
            "answer-goes-elsewhere", f"{option}= is an option that means CUDA; decide what it gets on other devices"
        )
    for label in plan.view.inside(region, cst.SimpleString, cst.FormattedStringText):
        written = text_of(label) if isinstance(label, cst.SimpleString) else label.value
        if _NAME_OF_CLASS.match(written or ""):
            yield Objection("depends-on-cuda", f"{written} depends on it and is CUDA's; decide what other devices use")
        if _LABEL.search(written or "") and not _DEVICE.match(written or "") and _is_kept_text(plan, label):
            yield Objection(
                "depends-on-cuda", "a text that names CUDA depends on it; decide what other devices are called"
            )


def _is_constant_of_cuda(plan: Plan, node: cst.Name | cst.Attribute) -> bool:
    """Return whether ``CUDA`` or ``Device.CUDA`` is a constant of another file; of this file, its value is a site itself."""
    around = plan.view.parent(node)
    is_part = isinstance(around, cst.Attribute) and around.attr is node
    is_number = all(isinstance(each, cst.Integer) for each in plan.view.values_of(node))
    is_set = not is_number or isinstance(around, cst.AssignTarget)
    is_torchs = plan.view.name(node).startswith("torch.") and not plan.view.name(node).endswith("DeviceType.CUDA")
    is_torchs |= isinstance(around, cst.Call) and around.func is node
    return not (is_part or is_set or is_torchs) and _CONSTANT_OF_CUDA.search(dotted(node) or "") is not None


def _of_attribute(plan: Plan, node: cst.Attribute, kept: Mapping[str, cst.CSTNode]) -> Iterator[Objection]:
    """Yield the objections to an attribute: a constant that stays CUDA's name, or one that is set under another question."""
    text = dotted(node) or ""
    for value in _constants_held(plan, node):
        line = plan.view.position(value)[0]
        yield Objection("depends-on-cuda", f"{text} stays the name of CUDA (line {line}); decide on both together")
    if text in kept:
        line = plan.view.position(kept[text])[0]
        yield Objection(
            "depends-on-cuda",
            f"{text} is set only under the question at line {line}, which stays; decide on both together",
        )


def _constants_held(plan: Plan, node: cst.Attribute) -> Iterator[cst.CSTNode]:
    """Yield the names of CUDA that stay, and that an attribute of an object of constants has: ``Names(GPU="cuda").GPU``."""
    for made in plan.view.values_of(node.value) if node.attr.value.isupper() else ():
        for given in made.args if isinstance(made, cst.Call) else ():
            is_asked = given.keyword is not None and given.keyword.value == node.attr.value
            one = plan.decisions.get(given.value) if is_asked and _DEVICE.match(text_of(given.value) or "") else None
            if one is not None and one.outcome is not SiteOutcome.REWRITTEN:
                yield one.node


def _of_request(plan: Plan, region: cst.CSTNode) -> Iterator[Objection]:
    """Yield the objections to a comparison with a device that was asked for, by what depends on it."""
    missing = _what_is_missing(plan, region)
    if missing is not None:
        yield Objection(
            "depends-on-cuda",
            f"line {plan.view.position(missing)[0]} says what is missing where CUDA was asked for; decide what other devices say",
        )
    again = _asked_again(plan, region)
    if again is not None:
        yield Objection(
            "depends-on-cuda",
            f"line {plan.view.position(again)[0]} asks whether CUDA is there after all; decide which device was asked for",
        )


def _option_of_library(plan: Plan, region: cst.CSTNode) -> str:
    """Return the option of a call that gets a choice, if it is a trainer's or Ray's: ``devices=``, ``num_gpus=``; else ''."""
    around = plan.view.parent(plan.view.parent(region) or region)
    uses = plan.view.uses(around.targets[0].target) if isinstance(around, cst.Assign) else None
    given = [around, *(plan.view.parent(use) for use in uses or ())]
    named = [each for each in given if isinstance(each, cst.Arg) and each.keyword is not None]
    options = [each.keyword.value for each in named if each.keyword and not _is_told_type(plan, plan.view.parent(each))]
    options += [text_of(each.key) or "" for each in given if isinstance(each, cst.DictElement)]
    for assigned in plan.view.inside(region, cst.Assign):
        keys = [each.target.slice[0].slice for each in assigned.targets if isinstance(each.target, cst.Subscript)]
        options += [text_of(key.value) or "" for key in keys if isinstance(key, cst.Index)]
    return next(filter(_OPTION.match, options), "")


def _is_told_type(plan: Plan, call: cst.CSTNode | None) -> bool:
    """Return whether a call is a ``fork_rng(devices=…)`` that gets the devices' type."""
    one = plan.decisions.get(call) if call is not None else None
    return one is not None and one.rule == "rng" and one.outcome is SiteOutcome.REWRITTEN


def _asked_again(plan: Plan, region: cst.CSTNode) -> cst.CSTNode | None:
    """Return the question in a region whether CUDA is available; None if there is none.

    Then the comparison is with what a user asked for, which a machine without CUDA may not have.
    """
    if isinstance(plan.view.parent(region), cst.BooleanOperation):
        return None  # `device == "cuda" and torch.cuda.is_available()`
    for one in decided_in(plan, region):
        asked = asked_in(plan, one)
        if isinstance(asked, cst.Call) and asks_availability(plan.view, asked):
            return asked
    return None


def _is_kept_name(one: SiteDecision) -> bool:
    is_name = one.rule in ("device-name", "device-choice") and not isinstance(one.node, cst.Comparison)
    return is_name and one.outcome is SiteOutcome.REPORTED


def _is_kept_type(one: SiteDecision) -> bool:
    return one.rule == "typed-tensor" and one.outcome is SiteOutcome.REPORTED


def _set_under_other(plan: Plan, asked: cst.CSTNode) -> dict[str, cst.CSTNode]:
    """Return the attributes that are set only under a question about CUDA that stays, each with that question."""
    found: dict[str, cst.CSTNode] = {}
    for one in plan.decisions.values():
        is_answer = one.rule == "is-cuda" and one.outcome is SiteOutcome.LEFT  # an attribute that holds an answer
        other = asked_in(plan, one) if one.outcome is not SiteOutcome.REWRITTEN and not is_answer else None
        for region in regions_of(plan.view, other).blocks if other is not None and other is not asked else ():
            for assigned in plan.view.inside(region, cst.Assign, cst.AnnAssign):
                targets = (
                    [each.target for each in assigned.targets]
                    if isinstance(assigned, cst.Assign)
                    else [assigned.target]
                )
                names = [dotted(each) or "" for each in targets if isinstance(each, cst.Attribute)]
                found.update((name, one.node) for name in names if name.startswith("self."))
    return found


def _is_kept_text(plan: Plan, text: cst.CSTNode) -> bool:
    """Return whether a text is a value that the program goes on with, and not a message, a key or a docstring."""
    decided = plan.decisions.get(text)
    if not plan.is_open(text) and (decided is None or decided.rule != "env"):
        return False  # a site of its own, or a part of one
    for around in plan.view.ancestors(text):
        if isinstance(around, cst.Call) and _TELLS.search(dotted(around.func) or ""):
            return False
        if isinstance(around, cst.Raise | cst.Assert | cst.Expr | cst.Index | cst.Comparison | cst.BaseSuite):
            return False
        if isinstance(around, cst.Assign | cst.AugAssign | cst.AnnAssign | cst.Return):
            return True
    return True


def _what_is_missing(plan: Plan, region: cst.CSTNode) -> cst.CSTNode | None:
    """Return the error or message in a region that says that a device is not there; None if there is none."""
    for each in plan.view.inside(region, cst.Raise, cst.Call):
        code = plan.view.code(each)
        is_told = isinstance(each, cst.Raise) or _TELLS.search(dotted(each.func) or "") is not None
        if (is_told and _MISSING.search(code)) or (isinstance(each, cst.Raise) and _NAMES_CUDA.search(code)):
            return each  # type: ignore[no-any-return]  # a node
    return None


def decided_in(plan: Plan, region: cst.CSTNode) -> list[SiteDecision]:
    """Return the decisions on sites in a region, in the order in which they were made."""
    order, kinds = _order_of_decisions(plan, plan.changes)
    found = (node for node in plan.view.inside(region, *kinds) if node in order)
    return [plan.decisions[node] for node in sorted(found, key=order.__getitem__)]


@lru_cache(maxsize=1)  # asked many times between two changes
def _order_of_decisions(plan: Plan, changes: int) -> tuple[dict[cst.CSTNode, int], tuple[type[cst.CSTNode], ...]]:
    """Return the number of each decision by its node, and the types of these nodes."""
    kinds = sorted({type(node) for node in plan.decisions}, key=lambda kind: kind.__name__)
    return {node: number for number, node in enumerate(plan.decisions)}, tuple(kinds)


def rewritten_in(plan: Plan, regions: list[cst.CSTNode]) -> list[SiteDecision]:
    """Return the decisions to rewrite a site in some regions."""
    return [one for region in regions for one in decided_in(plan, region) if one.outcome is SiteOutcome.REWRITTEN]
