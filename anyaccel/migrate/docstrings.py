"""Docstrings that name what is rewritten: ``device: where to compute (default: "cuda")``, ``"cuda" if available, else "cpu"``."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from typing import TYPE_CHECKING

import libcst as cst

from .site import SiteOutcome
from .source_view import dotted, text_of

if TYPE_CHECKING:
    from .plan import Plan

__all__ = ["correct_docstrings", "docstring_of", "if_available"]

RULE = "device-name"
_MEMBERS = {"cuda": "device_name", "nccl": "communication_backend_name"}
_WORD = re.compile(r"^(cuda(:\d+)?|nccl)$")
_HEAD = r"^(?P<indent>[ \t]*)(?:[-*] +)?(?::param\b[^:\n]*\s)?[*`]*{name}[*`]*\s*(?:[(:=,]|--?\s)"
_DEFAULT = (
    r"((?:(?:by )?default(?:s|ed)?(?: value)?(?: to| is| ?:| ?=|,)?:?|默认值?[为是]?:?) *`*)"
    r"""(torch\.device\()?(["']?){word}\3(?(2)\))(?![\w:])"""
)
_VALUE_ALONE = r"""({head}[ \t]*)(torch\.device\()?(["']){word}\4(?(3)\))(?=[ \t]*$)"""  # `device : "cuda:0"`
_IF_AVAILABLE = re.compile(
    r"[\"'`]*\bcuda\b[\"'`]*(?=\s+(?:is used )?(?:if|when)\s+(?:it is |it's )?available)", re.IGNORECASE
)
_CHOICE_OF_BACKEND = re.compile(
    r"[\"'`]+nccl[\"'`]+\s(?:if|when|where)\s(?:CUDA|a GPU)\s+is\s+available,?(?:\s+and|\s+or)?(?:\s+else)?"
    r"\s+[\"'`]+gloo[\"'`]+(?:\s+otherwise)?",
    re.IGNORECASE,
)
_VALUE = re.compile(r"[\"'`]cuda([\"'`]+:|:\w)")
_RETURNS = re.compile(
    r"\A\W*[^\n]*|^[ \t]*:?(?:returns?|yields)\b.*?(?=\n[ \t]*\n|\Z)", re.IGNORECASE | re.MULTILINE | re.DOTALL
)
_NAMED = re.compile(r"(?P<quote>[\"'`]{1,2})cuda(?P=quote)")
_IN_LIST = re.compile(r"\bCUDA\b(?=(?:,| or| ?/)[^()\n]*\b(?:CPU|MPS)\b)|(?:(?<=\bCPU, )|(?<=\bCPU or ))CUDA\b")


def correct_docstrings(plan: Plan) -> None:
    """Rewrite the docstrings of functions, classes and fields that name a rewritten default, choice or result."""
    _correct_defaults(plan)
    for node, decision in list(plan.decisions.items()):
        is_device = decision.rule in ("device-choice", "device-name") and not isinstance(node, cst.Comparison)
        is_backend = decision.rule == "comm-backend" and isinstance(node, cst.IfExp)
        if decision.outcome is not SiteOutcome.REWRITTEN or not (is_device or is_backend):
            continue
        if _is_asked_for_cuda(plan, node):
            continue
        function = plan.view.function_around(node)
        is_init = isinstance(function, cst.FunctionDef) and function.name.value == "__init__"
        for owner in (function, plan.view.class_around(node) if is_init else None):
            _correct_choice(plan, owner, is_returned=_is_returned(plan, node))


def _correct_choice(plan: Plan, owner: cst.CSTNode | None, *, is_returned: bool) -> None:
    """Rewrite the docstring of a function, or of the class that it initializes, which chooses a device."""
    docstring = docstring_of(owner) if owner is not None else None
    if docstring is None or not plan.is_open(docstring):
        return
    start = len(docstring.prefix) + len(docstring.quote)
    old = docstring.value[start : -len(docstring.quote)]
    text = if_available(old)
    if is_returned:
        text = _RETURNS.sub(lambda found: _with_accelerator(found[0]), text)
    new = docstring.value[:start] + text + docstring.quote
    if text != old:
        plan.rewrite(docstring, RULE, lambda updated: updated.with_changes(value=new))


def _is_asked_for_cuda(plan: Plan, node: cst.CSTNode) -> bool:
    """Return whether a question about CUDA that stays decides whether a name is used: it is not the accelerator's choice."""
    tests = [each.test for each in plan.view.ancestors(node) if isinstance(each, cst.If)]
    asked = [call for test in tests for call in plan.view.inside(test, cst.Call) if call in plan.decisions]
    return any(
        plan.view.name(call.func) == "torch.cuda.is_available"
        and plan.decisions[call].outcome is not SiteOutcome.REWRITTEN
        for call in asked
    )


def if_available(text: str) -> str:
    """Return a text with "the accelerator if available" for "CUDA if available"."""
    return _IF_AVAILABLE.sub(_accelerator, _CHOICE_OF_BACKEND.sub("the accelerator's backend", text))


def _accelerator(found: re.Match[str]) -> str:
    """Return what stands for CUDA, unless the line is about the value: ``"cuda": CUDA if available, else the CPU``."""
    line = found.string[: found.start()].rpartition("\n")[2]
    if _VALUE.search(line):
        return found[0]
    is_start = not line.strip() or line.rstrip().endswith((".", ":"))
    return "The accelerator" if is_start and "C" in found[0] else "the accelerator"


def _is_returned(plan: Plan, node: cst.CSTNode) -> bool:
    """Return whether a device, or ``torch.device`` of it, is what a function returns."""
    around = plan.view.parent(node)
    if isinstance(around, cst.Arg):
        around = plan.view.parent(plan.view.parent(around) or around)
    return isinstance(around, cst.Return)


def _with_accelerator(text: str) -> str:
    return _IN_LIST.sub("accelerator", _NAMED.sub("the name of the accelerator", text))


def _correct_defaults(plan: Plan) -> None:
    """Rewrite the defaults of parameters and fields in the docstrings of their function and class."""
    told: dict[cst.SimpleString, list[tuple[str, str]]] = defaultdict(list)
    for node, decision in plan.decisions.items():
        word = (text_of(node) or "") if isinstance(node, cst.SimpleString) else ""
        if decision.outcome is SiteOutcome.REWRITTEN and _WORD.match(word):
            name, owners = _owners(plan, node)
            for docstring in filter(None, map(docstring_of, owners)):
                told[docstring].append((name, word))
    for docstring, defaults in told.items():
        new = docstring.value
        for name, word in defaults:
            kind, _, index = word.partition(":")
            new = _with_default(new, name, word, f"{plan.function(_MEMBERS[kind])}({index})")
        if new != docstring.value and plan.is_open(docstring):
            plan.rewrite(docstring, RULE, lambda updated, new=new: updated.with_changes(value=new))  # type: ignore[misc]


def _owners(plan: Plan, default: cst.CSTNode) -> tuple[str, list[cst.CSTNode]]:
    """Return the name of the parameter or field that a node is the default of, and the definitions that describe it."""
    around = [default, *plan.view.ancestors(default)]
    for child, node in itertools.pairwise(around):
        if isinstance(node, cst.Param):
            owners = [each for each in around if isinstance(each, cst.FunctionDef | cst.ClassDef)]
            is_init = bool(owners) and isinstance(owners[0], cst.FunctionDef) and owners[0].name.value == "__init__"
            return node.name.value, list(owners[: 2 if is_init else 1]) if node.default is child else []
        if isinstance(node, cst.AnnAssign) and node.value is child:
            owner = next((each for each in around if isinstance(each, cst.FunctionDef | cst.ClassDef)), None)
            return dotted(node.target) or "", [owner] if isinstance(owner, cst.ClassDef) else []
        if isinstance(node, cst.BaseStatement):
            break
    return "", []


def docstring_of(owner: cst.CSTNode) -> cst.SimpleString | None:
    """Return the docstring of a function or class; None without one."""
    body = owner.body.body if isinstance(owner, cst.FunctionDef | cst.ClassDef) else ()
    first = body[0].body[0] if body and isinstance(body[0], cst.SimpleStatementLine) else None
    value = first.value if isinstance(first, cst.Expr) else None
    return value if isinstance(value, cst.SimpleString) else None


def _with_default(text: str, name: str, word: str, new: str) -> str:
    """Return a docstring with the new default in the paragraph about a parameter."""
    head = re.search(_HEAD.format(name=re.escape(name)), text, re.MULTILINE)
    if head is None:
        return text
    indent = head["indent"]  # what follows is another parameter, an empty line or indented less
    end = re.compile(rf"\n(?:[ \t]*(?:\n|$)|{indent}(?::param\b|\**\w+ ?[:(=])|(?!{indent}))").search(text, head.end())
    first, last = head.start(), end.start() if end else len(text)
    changed = re.sub(
        _DEFAULT.format(word=word),
        lambda found: f"{found[1]}{found[2] or ''}{new}{')' if found[2] else ''}",
        text[first:last],
        flags=re.IGNORECASE,
    )
    alone = _VALUE_ALONE.format(head=_HEAD.format(name=re.escape(name)), word=word)
    changed = re.sub(
        alone, lambda found: f"{found[1]}{found[3] or ''}{new}{')' if found[3] else ''}", changed, flags=re.MULTILINE
    )
    return text[:first] + changed + text[last:]
