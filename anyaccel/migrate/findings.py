"""What ``anyaccel check`` finds, as text, JSON, GitHub's annotations and SARIF 2.1.0."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .. import __version__
from .rules import RULES
from .site import SiteOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .files import FileResult
    from .site import Site

__all__ = ["FORMATS", "Finding", "findings_of"]

_UNREADABLE = "unreadable"


@dataclass(frozen=True)
class Finding:
    """A place that is tied to CUDA, or that cannot be read.

    Attributes:
        path: of the file.
        line: from 1; in a notebook, in the cell.
        column: from 1.
        rule: the rule's id, or ``"unreadable"``.
        message: what is wrong, and what to do.
        cell: in a notebook, the number of the cell.
    """

    path: str
    line: int
    column: int
    rule: str
    message: str
    cell: int | None = None


def findings_of(results: Iterable[FileResult]) -> list[Finding]:
    """Return what is to be corrected in files: all that would be rewritten or reported."""
    found = []
    for result in results:
        for error in result.errors:
            found.append(Finding(str(result.path), error.line, 1, _UNREADABLE, str(error)))
        for site in result.sites:
            if site.outcome is not SiteOutcome.LEFT:
                found.append(Finding(str(result.path), site.line, site.column, site.rule, _message(site), site.cell))
    return found


def _message(site: Site) -> str:
    code = site.code.splitlines()[0]
    if site.outcome is SiteOutcome.REPORTED:
        return f"{code}: {site.reason}"
    new = site.replacement.splitlines()[0] if site.replacement else ""
    fix = f"anyaccel migrate writes {new}" if new else "anyaccel migrate moves or removes it"
    return f"{code} is tied to CUDA; {fix}"


def _as_text(findings: list[Finding]) -> str:
    return "\n".join(
        f"{one.path}:{f'cell {one.cell}:' if one.cell else ''}{one.line}:{one.column}: {one.rule}: {one.message}"
        for one in findings
    )


def _as_json(findings: list[Finding]) -> str:
    return json.dumps([dataclasses.asdict(one) for one in findings], indent=2)


def _as_github(findings: list[Finding]) -> str:
    return "\n".join(
        f"::error file={_escaped(one.path, is_property=True)},line={one.line},col={one.column},title=anyaccel {one.rule}"
        f"::{_escaped(one.message)}"
        for one in findings
    )


def _escaped(text: str, *, is_property: bool = False) -> str:
    """Return a text as GitHub's workflow commands want it.

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
    run = {
        "tool": {"driver": {"name": "anyaccel", "version": __version__, "rules": rules}},
        "columnKind": "unicodeCodePoints",
        "results": [_sarif_result(one) for one in findings],
    }
    return json.dumps(
        {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}, indent=2
    )


def _sarif_result(one: Finding) -> dict[str, Any]:
    place = {
        "artifactLocation": {"uri": one.path.replace("\\", "/")},
        "region": {"startLine": one.line, "startColumn": one.column},
    }
    return {
        "ruleId": one.rule,
        "level": "error",
        "message": {"text": one.message if one.cell is None else f"cell {one.cell}: {one.message}"},
        "locations": [{"physicalLocation": place}],
    }


FORMATS: dict[str, Callable[[list[Finding]], str]] = {
    "text": _as_text,
    "json": _as_json,
    "github": _as_github,
    "sarif": _as_sarif,
}
