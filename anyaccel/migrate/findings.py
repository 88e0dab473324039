"""The findings of ``anyaccel check`` as text, JSON, GitHub annotations and SARIF 2.1.0."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from .. import __version__
from .rules import RULES
from .site import SiteOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .files import FileResult
    from .site import Site

__all__ = ["FORMATS", "Finding", "findings_of"]

_UNREADABLE = "unreadable"
_PASSED_OVER = "not-understood"


@dataclass(frozen=True)
class Finding:
    """A place that is tied to CUDA, that is not understood, or that cannot be read.

    Attributes:
        path: the path of the file.
        line: the line, from 1; in a notebook, the line in the cell.
        column: the column, from 1.
        rule: the rule's id, ``"unreadable"`` or ``"not-understood"``.
        message: what is wrong and what to do.
        cell: the number of the cell in a notebook, else None.
    """

    path: str
    line: int
    column: int
    rule: str
    message: str
    cell: int | None = None


def findings_of(results: Iterable[FileResult]) -> list[Finding]:
    """Return what has to be corrected: read errors, tokens that no rule understands, and sites to rewrite or report."""
    found = []
    for result in results:
        for error in result.errors:
            found.append(Finding(str(result.path), error.line, 1, _UNREADABLE, str(error), error.cell))
        for each in result.passed_over:
            message = f"{each.text}: no rule understands this; report it with the line"
            found.append(Finding(str(result.path), each.line, each.column, _PASSED_OVER, message, each.cell))
        for site in result.sites:
            if site.outcome is not SiteOutcome.LEFT:
                found.append(Finding(str(result.path), site.line, site.column, site.rule, _message(site), site.cell))
    return found


def _message(site: Site) -> str:
    if site.outcome is SiteOutcome.REPORTED:
        return f"{site.code.splitlines()[0]}: {site.reason}"
    code, new = _first_change(site.code, site.replacement)
    fix = f"anyaccel migrate writes {new}" if new else "anyaccel migrate moves or removes it"
    tie = "deepspeed's" if site.rule == "op-builder" else "tied to CUDA"
    return f"{code} is {tie}; {fix}"


def _first_change(old: str, new: str) -> tuple[str, str]:
    """Return the first pair of lines in which a site and its replacement differ."""
    olds, news = old.splitlines(), new.splitlines()
    if not news:
        return olds[0], ""
    pairs = zip_longest(olds, news, fillvalue="")
    before, after = next(((a, b) for a, b in pairs if a != b), (olds[0], news[0]))
    return before.strip() or olds[0], after.strip() or news[0]


def _as_text(findings: list[Finding]) -> str:
    return "\n".join(
        f"{one.path}:{f'cell {one.cell}:' if one.cell else ''}{one.line}:{one.column}: {one.rule}: {one.message}"
        for one in findings
    )


def _as_json(findings: list[Finding]) -> str:
    return json.dumps([dataclasses.asdict(one) for one in findings], indent=2)


def _as_github(findings: list[Finding]) -> str:
    return "\n".join(
        f"::error file={_escaped(one.path, is_property=True)}{_github_place(one)},title=anyaccel {one.rule}"
        f"::{_escaped(_with_cell(one))}"
        for one in findings
    )


def _github_place(one: Finding) -> str:
    """Return where a finding is; nothing for a notebook, whose lines are those of its JSON."""
    return f",line={one.line},col={one.column}" if one.cell is None else ""


def _with_cell(one: Finding) -> str:
    return one.message if one.cell is None else f"cell {one.cell}, line {one.line}: {one.message}"


def _escaped(text: str, *, is_property: bool = False) -> str:
    """Return a string escaped for GitHub's workflow commands.

    Source: https://docs.github.com/actions/reference/workflow-commands-for-github-actions
    """
    for old, new in (
        ("%", "%25"),
        ("\r", "%0D"),
        ("\n", "%0A"),
        *(((":", "%3A"), (",", "%2C")) if is_property else ()),
    ):
        text = text.replace(old, new)
    return text


def _as_sarif(findings: list[Finding]) -> str:
    rules = [{"id": name, "shortDescription": {"text": rule.title}} for name, rule in RULES.items()]
    rules.append({"id": _UNREADABLE, "shortDescription": {"text": "a file that cannot be read"}})
    rules.append({"id": _PASSED_OVER, "shortDescription": {"text": "what spells CUDA in a way that no rule knows"}})
    run = {
        "tool": {"driver": {"name": "anyaccel", "version": __version__, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "results": [_sarif_result(one) for one in findings],
    }
    return json.dumps(
        {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}, indent=2
    )


def _sarif_result(one: Finding) -> dict[str, Any]:
    place: dict[str, Any] = {"artifactLocation": {"uri": _uri(one.path)}}
    if one.cell is None:  # the lines of a notebook are those of its JSON
        place["region"] = {"startLine": one.line, "startColumn": one.column}
    return {
        "ruleId": one.rule,
        "level": "error",
        "message": {"text": _with_cell(one)},
        "locations": [{"physicalLocation": place}],
    }


def _uri(path: str) -> str:
    """Return a path as a percent-encoded URI: a file URI if it is absolute, else a relative reference.

    Source: SARIF 2.1.0, section 3.4.3; RFC 3986, section 4.2: the first segment of a relative reference has no colon.
    """
    place = Path(path)
    return place.as_uri() if place.is_absolute() else quote(place.as_posix(), safe="/", errors="surrogateescape")


FORMATS: dict[str, Callable[[list[Finding]], str]] = {
    "text": _as_text,
    "json": _as_json,
    "github": _as_github,
    "sarif": _as_sarif,
}
