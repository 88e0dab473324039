"""Messages and docstrings about rewritten code: ``print("Emptying CUDA cache")`` before ``get_accelerator().empty_cache()``.

Only phrases that are false on another device are changed, and only where everything they are about is rewritten. So are errors
and messages for a machine without CUDA, which say that CUDA is missing or required: another accelerator would do as well.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .docstrings import docstring_of, if_available
from .questions import OF_WORD, asked_in
from .regions import following
from .shown_messages import answered_in, in_branches, is_message, of_stored_answer, shown_with, texts_in, told_without
from .site import SiteOutcome
from .source_view import dotted
from .torch_names import MEMBERS, QUESTIONS
from .values_of_cuda import decided_in, rewritten_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .plan import Build, Plan, SiteDecision

__all__ = ["correct_messages"]

_RULE = "message"
_OPTIONS = re.compile(r"(^|\.)(add_argument|[oO]ption|Argument|[fF]ield)$")
_CUDA = r"(?<![\w./:\"'`=-])(?P<article>\b[Aa] )?(?P<cuda>CUDA|Cuda|cuda)"
_END = r"(?=[ ]?(?:\Z|[.,!;)]|:\s|for\b|if\b|in\b))"  # not "using cuda:0"
_NOUN = re.compile(rf"{_CUDA} (?:device|GPU|card)(?P<plural>s|\(s\))?(?![\w-])")
_OWN = re.compile(rf"{_CUDA}(?= (?:memory|cache|OOM)\b)")
_USED = re.compile(
    rf"(?P<verb>\b(?:us(?:e|ed|es|ing)|activat(?:e|ed|ing)|enabl(?:e|ed|ing)|running on|moved? to|moving \w+ to) )"
    rf"{_CUDA}{_END}",
    re.IGNORECASE,
)
_FOUND = re.compile(rf"{_CUDA}(?= (?:is )?(?:available|detected|found|(?:being )?used)\b)")
_LACKED = re.compile(
    rf"{_CUDA}(?: (?:device|GPU|card)s?)?(?P<rest> (?:is |was )?(?:not |un)(?:available|detected|found|enabled))\b"
)
_REQUIRED = re.compile(rf"{_CUDA}(?: (?:device|GPU|card))?(?= (?P<verb>(?:is|was) )?(?:required|requested|needed)\b)")
_STOP = r"(?=[ ]?(?:\Z|[.,!;:)]|for\b|to\b|but\b|and\b))"  # not "requires CUDA 12"
_REQUIRES = re.compile(
    rf"(?P<verb>\b(?:requires?|needs?|expects?|without)) {_CUDA}(?: (?:device|GPU|card))?{_STOP}", re.IGNORECASE
)
_ENSURED = re.compile(
    rf"(?P<verb>\b(?:make sure|ensure)(?: that)?) {_CUDA}(?= is (?:available|installed))", re.IGNORECASE
)
_IF_NOT = re.compile(r"\b(?P<if>if|when|where) CUDA (?:is not|isn't) available", re.IGNORECASE)
_NAMES_DEVICE = re.compile(r"[\"'`]cuda:\w")
_OF_DEVICE = re.compile(r"(\bdefault(?:s to|:|=| is)? *['`\"]*)cuda(?::\d+)?\b(?!-|['`\"]*,?\s+(?:if|when|where)\b)")
_OF_BACKEND = re.compile(r"(\bdefault(?:s to|:|=| is)? *['`\"]*)nccl\b(?!-)", re.IGNORECASE)
_IF = re.compile(r"\b(?P<if>if|when|where) CUDA (?:is )?available", re.IGNORECASE)
_NUMBERED = re.compile(rf"{_CUDA}(?= #?\Z)")
_OF_INDEX = re.compile(rf"{_CUDA}(?= device is:? ?\Z)")
_LEFT = re.compile(r"(?<![\w./:\"'`=-])(?:CUDA|Cuda)(?![\w:-])")
_CALLED = re.compile(r"torch\.cuda\.(\w+)")
_MEMORY = re.compile(r"cache|memory|mem_get_info")
_VERSION = re.compile(r"version[._]?cuda|cuda[._]?version", re.IGNORECASE)
_NAMED = re.compile(rf"{_MEMORY.pattern}|set_device")
_OF_CUDA = re.compile(
    r"torch\.cuda|cuda_|cudnn|nvidia|nvcc|apex|rocm|\bhip\b|\bxpu\b|\bmps\b"
    r"|cuda[ -](version|toolkit|driver|runtime|kernel|graph|extension|compute|capab|stream|alloc)",
    re.IGNORECASE,
)


def correct_messages(plan: Plan) -> None:
    """Rewrite the phrases of messages and docstrings that name CUDA, where all that they are about is rewritten."""
    rewritten = [one for one in plan.decisions.values() if one.outcome is SiteOutcome.REWRITTEN]
    of_branches = {call for one in rewritten for call in in_branches(plan, asked_in(plan, one))}
    for one in rewritten:
        _correct_missing(plan, asked_in(plan, one))
    of_places = {call for one in rewritten for call in shown_with(plan, one.node)}
    of_answers = {call for one in rewritten for call in of_stored_answer(plan, asked_in(plan, one))}
    for call in plan.view.of(cst.Call):
        if call in of_branches or call in of_places or call in of_answers or _is_before(plan, call):
            _correct(plan, call, in_branch=call in of_branches or call in of_answers)
        if _OPTIONS.search(dotted(call.func) or ""):
            _correct_help(plan, call)
    for asserted in plan.view.of(cst.Assert):
        counted = any(
            "torch.cuda.device_count" in plan.view.code(one.node) for one in rewritten_in(plan, [asserted.test])
        )
        if counted and asserted.msg is not None and not plan.project.expects_errors:
            _correct_told(plan, texts_in(asserted.msg))
    for owner in plan.view.of(cst.FunctionDef, cst.ClassDef):
        _correct_docstring(plan, owner)


def _correct_missing(plan: Plan, asked: cst.CSTNode | None) -> None:
    """Rewrite what is said, or raised, only if there is no accelerator: "CUDA is required", "CUDA is not available"."""
    if asked is None or plan.project.expects_errors:
        return
    _correct_told(plan, dict.fromkeys(each for one in answered_in(plan, asked) for each in told_without(plan, one)))


def _correct_told(plan: Plan, texts: Iterable[cst.SimpleString | cst.FormattedString]) -> None:
    for text in texts:
        if text in plan.decisions and plan.decisions[text].reason != OF_WORD:
            continue
        if isinstance(text, cst.SimpleString):
            _reword(plan, text, _without_missing)
        elif _is_rewritten(_decided(plan, text)):
            _reword_parts(plan, text, lambda place, words: _without_missing(words, is_first=place == 0))


def _without_missing(text: str, *, is_first: bool = True) -> str:
    """Return a text that says of an accelerator what it said of CUDA: that it is missing, or required."""
    if _OF_CUDA.search(text):
        return text

    def told(found: re.Match[str], noun: str) -> str:
        is_start = is_first and not text[: found.start()].strip()
        return noun.capitalize() if is_start and found["cuda"][0] == "C" else noun

    old = text
    text = _LACKED.sub(
        lambda found: told(found, f"no accelerator{found['rest'].replace('not ', '').replace('un', '')}"), text
    )
    text = _REQUIRED.sub(lambda found: told(found, "an accelerator" if found["verb"] else "accelerator"), text)
    text = _ENSURED.sub(lambda found: f"{found['verb']} an accelerator", text)
    text = _REQUIRES.sub(lambda found: f"{found['verb']} an accelerator", text)
    return _whole(old, _NOUN.sub(lambda found: told(found, _noun(found)), text))


def _whole(old: str, new: str) -> str:
    """Return a new text, or the old one if the new one would speak of both CUDA and an accelerator."""
    return old if _LEFT.search(new) else new


def _is_before(plan: Plan, call: cst.Call) -> bool:
    """Return whether a message stands directly before a rewritten call that it names, such as ``empty_cache()``."""
    line = plan.view.parent(plan.view.parent(call) or call)
    if not is_message(call) or not isinstance(line, cst.SimpleStatementLine):
        return False
    after = following(plan.view, line)[:1]
    ones = [one for each in after if isinstance(each, cst.SimpleStatementLine) for one in _decided(plan, each)]
    return bool(ones) and _is_rewritten(ones) and all(_NAMED.search(plan.view.code(one.node)) for one in ones)


def _correct(plan: Plan, call: cst.Call, *, in_branch: bool) -> None:
    if not _is_rewritten(_decided(plan, call)):
        return
    for text in [each for arg in call.args for each in texts_in(arg.value)]:
        if isinstance(text, cst.SimpleString):
            _reword(plan, text, lambda words: _without_cuda(words, in_branch=in_branch))
        else:
            _correct_formatted(plan, text, in_branch=in_branch)


def _correct_formatted(plan: Plan, formatted: cst.FormattedString, *, in_branch: bool) -> None:
    shown = [each.expression for each in formatted.parts if isinstance(each, cst.FormattedStringExpression)]
    shown += [value for each in shown for value in plan.view.values_of(each)]
    if any(_VERSION.search(plan.view.code(each)) for each in shown):
        return

    def reworded(place: int, words: str) -> str:
        after = formatted.parts[place + 1] if place + 1 < len(formatted.parts) else None
        is_number = isinstance(after, cst.FormattedStringExpression) and isinstance(after.expression, cst.Name)
        return _without_cuda(words, in_branch=in_branch, is_first=place == 0, is_number=is_number)

    _reword_parts(plan, formatted, reworded)


def _reword_parts(plan: Plan, formatted: cst.FormattedString, change: Callable[[int, str], str]) -> None:
    """Change the words of an f-string, between its expressions."""
    new = {
        place: part.with_changes(value=change(place, part.value))
        for place, part in enumerate(formatted.parts)
        if isinstance(part, cst.FormattedStringText) and change(place, part.value) != part.value
    }
    if new:
        _rewrite(
            plan,
            formatted,
            lambda updated: updated.with_changes(parts=[new.get(n, each) for n, each in enumerate(updated.parts)]),
        )


def _correct_help(plan: Plan, option: cst.Call) -> None:
    """Rewrite "CUDA if available" in the help of an option whose default is rewritten."""
    given = {each.keyword.value: each.value for each in option.args if each.keyword is not None}
    told, default = given.get("help", given.get("description")), given.get("default")
    ones = _decided(plan, default) if default is not None else []
    if told is None or not ones or not _is_rewritten(ones):
        return
    is_backend = any(one.rule == "comm-backend" for one in ones)
    fills_in = (dotted(option.func) or "").endswith("add_argument")
    filled_in = _OF_BACKEND if is_backend else _OF_DEVICE
    for text in texts_in(told):
        if isinstance(text, cst.SimpleString):
            _reword(
                plan,
                text,
                lambda old: filled_in.sub(r"\1%(default)s", if_available(old)) if fills_in else if_available(old),
            )


def _decided(plan: Plan, region: cst.CSTNode) -> list[SiteDecision]:
    """Return the decisions on code in a region, without the texts that only contain the word CUDA."""
    return [one for one in decided_in(plan, region) if one.reason != OF_WORD]


def _is_rewritten(ones: list[SiteDecision]) -> bool:
    return all(one.outcome is SiteOutcome.REWRITTEN for one in ones)


def _reword(plan: Plan, text: cst.SimpleString, change: Callable[[str], str]) -> None:
    """Change the words of a string, between its quotes."""
    start = len(text.prefix) + len(text.quote)
    value = text.value[:start] + change(text.value[start : -len(text.quote)]) + text.quote
    if value != text.value:
        _rewrite(plan, text, lambda updated: updated.with_changes(value=value))


def _rewrite(plan: Plan, text: cst.CSTNode, build: Build) -> None:
    """Rewrite a text, unless another rule has decided that it is more than a text that contains the word CUDA."""
    one = plan.decisions.get(text)
    if one is not None and one.reason == OF_WORD:
        plan.forget(text)
    plan.rewrite(text, _RULE, build)


def _without_cuda(text: str, *, in_branch: bool, is_first: bool = True, is_number: bool = False) -> str:
    """Return a message in which the phrases that name CUDA name the accelerator.

    Args:
        text: the text, or a part of it.
        in_branch: whether it is shown only if there is an accelerator.
        is_first: whether it begins the message.
        is_number: whether a variable follows it.
    """
    if _OF_CUDA.search(text):
        return text

    def named(found: re.Match[str]) -> str:
        is_start = is_first and not found["article"] and not found.string[: found.start()].strip(" \\n[(=-*>#")
        noun = _noun(found)
        return noun.capitalize() if is_start and found["cuda"][0] == "C" else noun

    old = text
    for phrase in (_OF_INDEX, _NOUN, _OWN, *((_FOUND,) if in_branch else ()), *((_NUMBERED,) if is_number else ())):
        text = phrase.sub(named, text)
    return _whole(old, _USED.sub(lambda found: f"{found['verb']}the accelerator", text) if in_branch else text)


def _noun(found: re.Match[str]) -> str:
    """Return the word for CUDA, or for its device, with the article that it had."""
    article = {"A ": "An ", "a ": "an "}.get(found["article"] or "", "")
    return f"{article}accelerator{found.groupdict().get('plural') or ''}"


def _correct_docstring(plan: Plan, owner: cst.FunctionDef | cst.ClassDef) -> None:
    """Rewrite what a docstring says of the memory, or of a machine without CUDA, if the code asks for the accelerator."""
    docstring = docstring_of(owner)
    ones = _decided(plan, owner.body) if docstring is not None and "cuda" in docstring.value.lower() else []
    if docstring is None or not ones or not _is_rewritten(ones):
        return
    called = {plan.view.name(one.node.func if isinstance(one.node, cst.Call) else one.node) for one in ones}
    is_asked = any(asked_in(plan, one) is not None for one in ones)
    is_memory = any(_MEMORY.search(plan.view.code(one.node)) for one in ones)

    def corrected(text: str) -> str:
        text = _CALLED.sub(lambda found: _in_contract(plan, found[1]) if found[0] in called else found[0], text)
        if is_asked:
            text = "".join(_of_question(line) for line in text.splitlines(keepends=True))
        return _OWN.sub(_noun, text) if is_memory else text

    _reword(plan, docstring, corrected)


def _in_contract(plan: Plan, member: str) -> str:
    """Return what a call of ``torch.cuda`` became, if that is not a question, whose new form depends on its place."""
    function = plan.function(MEMBERS[member]) if member in MEMBERS and member not in QUESTIONS else None
    return function or f"torch.cuda.{member}"


def _of_question(line: str) -> str:
    if _NAMES_DEVICE.search(line):
        return line  # "``cuda:0`` if CUDA is available" is as false as before, and not more
    new = _IF.sub(r"\g<if> an accelerator is available", _IF_NOT.sub(r"\g<if> no accelerator is available", line))
    new = line if new == line else _NOUN.sub(_noun, new)
    return line if _LEFT.search(new) else new  # "if an accelerator is available, use CUDA" is no better
