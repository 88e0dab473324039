"""``anyaccel migrate --pr``: a summary in Markdown for the commit or the pull request of a migration."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING
from urllib.parse import quote

from .. import __version__
from .moved_lines import moved, moved_verdict
from .rules import RULES
from .site import SiteOutcome
from .verdict import verdicts

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from pathlib import Path

    from .files import FileResult
    from .settings import Settings
    from .site import Site

__all__ = ["FEW_PROGRAMS", "ported_by_answers", "summary"]

FEW_PROGRAMS = 5
"""The programs that are named though there is nothing to say of them."""


def summary(
    results: list[FileResult], settings: Settings, target: str, *, is_written: bool, unsaved: Collection[Path] = ()
) -> str:
    """Return what changed by rule, what is left to decide, how it was checked, and how to undo it.

    Args:
        results: the results for the files.
        settings: the project's settings; links are relative to its folder.
        target: what the new code calls.
        is_written: whether the files have been written.
        unsaved: the files that were written although git cannot restore them.
    """
    changed = [one for one in results if one.new != one.old]
    parts = [
        "# Port from torch.cuda to any accelerator",
        f"`anyaccel migrate` {__version__}, target `{target}`: {len(changed)} of {len(results)} files "
        f"{'changed' if is_written else 'would change'}.",
        _changes(results, settings),
        _decisions(results, settings),
        _programs(results),
        _checks(results),
        _undoing(changed, settings, unsaved, is_written=is_written),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def ported_by_answers(results: Iterable[FileResult]) -> Counter[str]:
    """Return how many sites were ported because of an answer of the user's, by the question."""
    sites = (site for one in results for site in one.sites)
    return Counter(site.question for site in sites if site.question and site.outcome is SiteOutcome.REWRITTEN)


def _changes(results: list[FileResult], settings: Settings) -> str:
    counts = Counter(site.rule for one in results for site in one.sites if site.outcome is SiteOutcome.REWRITTEN)
    lines = ["## What changed", "", "| rule | places | what it is about |", "|---|---|---|"]
    lines += [f"| {rule} | {count} | {_cell(RULES[rule].title)} |" for rule, count in sorted(counts.items())]
    if settings.answers.assumes_any_accelerator:
        lines += ["", "Assumed: questions about CUDA mean any accelerator (`--assume any-accelerator`)."]
    if answered := ported_by_answers(results):
        counts_of = ", ".join(f"`{question}` {count}" for question, count in sorted(answered.items()))
        lines += ["", f"Of these, a person's answers ported some, which the tool could not decide: {counts_of}."]
    if settings.answers.drops_cuda_guards:
        lines += ["", "Assertions and exits that only CUDA passes are deleted (`--drop-cuda-guards`)."]
    return "\n".join(lines) if counts else "## What changed\n\nNothing."


def _decisions(results: list[FileResult], settings: Settings) -> str:
    lines = []
    for one in map(moved, results):
        for error in one.errors:
            lines.append(f"- [ ] {_link(settings, one.path, error.line)}: {_text(str(error))}")
        for site in one.sites:
            if site.outcome is SiteOutcome.REPORTED:
                lines.append(f"- [ ] {_place(settings, one, site)}: {_code(site)}: {_text(site.reason)}")
    return "\n".join(["## For a person", "", *(lines or ["Nothing."])])


def _place(settings: Settings, one: FileResult, site: Site) -> str:
    """Return a link to a site, which is where it is in the new text."""
    if site.cell is not None:
        return f"{_link(settings, one.path, None)}, cell {site.cell}, line {site.line}"
    return _link(settings, one.path, site.line)


def _link(settings: Settings, path: Path, line: int | None) -> str:
    name = settings.relative(path)
    where = "" if line is None else f"#L{line}"
    url = quote(name, errors="surrogateescape")
    return f"[{_text(_printable(name))}{f':{line}' if line else ''}]({url}{where})"


def _printable(name: str) -> str:
    """Return a name without the bytes of other encodings than UTF-8, which no stream of text takes."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _programs(results: list[FileResult]) -> str:
    found = verdicts(results)
    fine = sum(each.stops is None for each in found)
    shown = [each for each in found if each.stops is not None or fine <= FEW_PROGRAMS]
    lines = [f"- {_text(str(moved_verdict(each, results)))}" for each in shown]
    if fine > FEW_PROGRAMS:
        lines.append(f"- {fine} others: start on a CPU: yes")
    return "\n".join(["## Programs", "", *lines]) if lines else ""


def _checks(results: list[FileResult]) -> str:
    passed = sum(len(one.passed_over) for one in results)
    unread = sum(len(one.errors) for one in results)
    return "\n".join(
        [
            "## How it was checked",
            "",
            "- Every new file is parsed by Python before it is written.",
            '- Every `.cuda`, `"cuda` and `nccl` of the code is rewritten, listed above, or left on purpose; '
            f"{passed} are not understood.",
            f"- {unread} files or cells could not be read.",
            "- No program was run: run the tests, on a CPU as well. `anyaccel check` finds what is still tied to CUDA.",
        ]
    )


def _undoing(changed: list[FileResult], settings: Settings, unsaved: Collection[Path], *, is_written: bool) -> str:
    if not changed:
        return ""
    if not is_written:
        return "## How to undo it\n\nNothing is written yet; `anyaccel migrate --write` does it."
    saved = " ".join(_quoted(settings.relative(one.path)) for one in changed if one.path not in unsaved)
    parts = ["## How to undo it"]
    if saved:
        parts.append(f"Before the commit, in the project's folder:\n\n```sh\ngit checkout HEAD -- {saved}\n```")
    others = [_link(settings, one.path, None) for one in changed if one.path in unsaved]
    if others:
        parts.append(f"By hand, as git does not have what was there before: {', '.join(others)}.")
    if settings.answers.given:
        parts.append(
            f"The answers in `{settings.file.name}` stay; without its `[tool.anyaccel.migrate]` you are asked again."
        )
    return "\n\n".join(parts)


def _quoted(name: str) -> str:
    from shlex import quote as quoted

    return quoted(_printable(name))


def _code(site: Site) -> str:
    """Return a site's first line as inline code; a line with a backtick is enclosed in double backticks."""
    text = site.code.splitlines()[0]
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _text(text: str) -> str:
    """Return a string with Markdown's special characters escaped."""
    for each in ("\\", "`", "*", "_", "[", "]", "<", "#"):
        text = text.replace(each, f"\\{each}")
    return text


def _cell(text: str) -> str:
    return _text(text).replace("|", "\\|")
