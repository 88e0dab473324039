"""Objections to rewriting a question that come from texts: a function's docstring, a message, a command, a library's name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import libcst as cst

from .answers import Objection
from .docstrings import docstring_of
from .kinds import DEVICE_NAME
from .source_view import dotted, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .plan import Plan

__all__ = ["texts_around", "texts_that_depend"]

_NVIDIAS = re.compile(r"(^|[\s/;|&(\"'])nvidia-smi\b")
_IS_COMMAND = re.compile(r"\w*[\"']{1,3}(/[\w./-]+/)?nvidia-smi\b|^(/[\w./-]+/)?nvidia-smi\b")
_STARTS = re.compile(
    r"(^|\.)(system|popen|Popen|run|call|check_call|check_output|getoutput|getstatusoutput|which|exec\w*|spawn\w*|split)$"
)
_FOR_LIBRARIES = ("gpu", "GPU", "CUDA")
_REFUSES = re.compile(
    r"(\b(cannot|unable|fails?|incompatible|unsupported)\b"
    r"|(\b(not|never)|n't) ([\w-]+ ){0,2}(work|run|support|implement|available|allowed|compatib|possible|deterministic)\w*\b)"
    r"[^.\n]*\b(with|on|for|from|by|using|in) (a )?CUDA\b"
    r"|\bCUDA\b[\w ]*\b(is|are|was|were)? ?(not|n't|never|un)[ ]?(yet |currently )?(support|implement|allow|compatib)",
    re.IGNORECASE,
)
_TELLS = re.compile(r"(^|\.)(print|info|debug|warning|warn|error|write|\w*(Error|Exception|Warning))$")
_FOR_CUDA_ONLY = re.compile(
    r"\bCUDA[- ]only\b|\bCUDA \w+ only\b|\bonly\s+(on|for|with)\s+CUDA\b(?! (is|if))|\b(on|for)\s+CUDA\s+only\b"
    r"|\bkernels?\s+(needs?|requires?)\s+(a\s+)?CUDA\b|\bCUDA,\s+[\w ]+\s+elsewhere\b"
)

_LINES_BEFORE, _LINES_AFTER = 3, 8


def texts_around(plan: Plan, asked: cst.CSTNode) -> Iterator[Objection]:
    """Yield the objection to a question in a function that says, in its docstring or nearby, that this is for CUDA only."""
    function = next((each for each in plan.view.ancestors(asked) if isinstance(each, cst.FunctionDef)), None)
    if function is None:
        return
    docstring, line = docstring_of(function), plan.view.position(asked)[0]
    own = set(plan.view.code(function).splitlines())
    around = plan.view.source.splitlines()[max(line - 1 - _LINES_BEFORE, 0) : line + _LINES_AFTER]
    near = "\n".join(each for each in around if each in own)
    said = _FOR_CUDA_ONLY.search(f"{docstring.value if docstring is not None else ''}\n{near}")
    if said is not None:
        text = " ".join(said[0].split())
        yield Objection("depends-on-cuda", f"{function.name.value}() says {text!r}; decide what other devices do")


def texts_that_depend(plan: Plan, region: cst.CSTNode) -> Iterator[Objection]:
    """Yield the objections to a region by its texts: CUDA's sources and tools, and a library's names for CUDA."""
    strings = list(plan.view.inside(region, cst.SimpleString))
    if any("cuBLAS" in each.value for each in plan.view.inside(region, cst.SimpleString, cst.FormattedStringText)):
        yield Objection("depends-on-cuda", "a text about cuBLAS depends on it; decide what other devices say")
    if any((text_of(each) or "").endswith(".cu") for each in strings):
        yield Objection("depends-on-cuda", "a CUDA source depends on it; decide what other devices use")
    if any(_is_refusal(plan, each) for each in plan.view.inside(region, cst.Call)):
        yield Objection(
            "depends-on-cuda",
            "a message says that something does not work on CUDA; decide whether it does on other devices",
        )
    if any(
        _runs_nvidia_smi(plan, each) for each in plan.view.inside(region, cst.SimpleString, cst.FormattedStringText)
    ):
        yield Objection("depends-on-cuda", "nvidia-smi depends on it, which only NVIDIA's drivers bring; keep it")
    texts = (each for each in strings if text_of(each) in _FOR_LIBRARIES)
    if any(not _is_request(plan, each) for each in texts):
        yield Objection(
            "depends-on-function", "a library's name for CUDA depends on it; decide what other devices use there"
        )


def _runs_nvidia_smi(plan: Plan, text: cst.SimpleString | cst.FormattedStringText) -> bool:
    """Return whether a text is, or begins, a command that runs nvidia-smi, and not a message about it."""
    if not _NVIDIAS.search(text.value):
        return False
    calls = (each for each in plan.view.ancestors(text) if isinstance(each, cst.Call | cst.BaseStatement))
    call = next(calls, None)
    if not isinstance(call, cst.Call):
        return _IS_COMMAND.match(text.value) is not None
    return _STARTS.search(dotted(call.func) or "") is not None


def _is_refusal(plan: Plan, call: cst.Call) -> bool:
    """Return whether a message or an error says that something does not work on CUDA."""
    texts = (plan.view.code(each) for each in plan.view.inside(call, cst.SimpleString, cst.FormattedString))
    return _TELLS.search(dotted(call.func) or "") is not None and any(_REFUSES.search(each) for each in texts)


def _is_request(plan: Plan, text: cst.CSTNode) -> bool:
    """Return whether a text is what ``device == "gpu"`` compares a function's parameter with: no library is given it."""
    target = plan.view.parent(text)
    around = plan.view.parent(target) if isinstance(target, cst.ComparisonTarget) else None
    if not isinstance(around, cst.Comparison) or len(around.comparisons) != 1:
        return False
    is_device = DEVICE_NAME.search((dotted(around.left) or "").lower()) is not None
    return is_device and plan.view.parameter(around.left) is not None
