"""``anyaccel migrate --pr``: a summary in Markdown for the commit or the pull request of a migration."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING
from urllib.parse import quote

from .. import __version__
from .rules import RULES
from .site import SiteOutcome
from .verdict import verdicts

if TYPE_CHECKING:
    from pathlib import Path

    from .files import FileResult
    from .settings import Settings
    from .site import Site

__all__ = ["summary"]


def summary(results: list[FileResult], settings: Settings, target: str, *, is_written: bool) -> str:
    """Return what changed by rule, what is left to decide, how it was checked, and how to undo it.

    Args:
        results: the results for the files.
        settings: the project's settings; links are relative to its folder.
        target: what the new code calls.
        is_written: whether the files have been written.
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
        _undoing(changed, settings, is_written=is_written),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _changes(results: list[FileResult], settings: Settings) -> str:
    counts = Counter(site.rule for one in results for site in one.sites if site.outcome is SiteOutcome.REWRITTEN)
    lines = ["## What changed", "", "| rule | places | what it is about |", "|---|---|---|"]
    lines += [f"| {rule} | {count} | {_cell(RULES[rule].title)} |" for rule, count in sorted(counts.items())]
    if settings.answers.assumes_any_accelerator:
        lines += ["", "Assumed: questions about CUDA mean any accelerator (`--assume any-accelerator`)."]
    if settings.answers.drops_cuda_guards:
        lines += ["", "Assertions and exits that only CUDA passes are deleted (`--drop-cuda-guards`)."]
    return "\n".join(lines) if counts else "## What changed\n\nNothing."


def _decisions(results: list[FileResult], settings: Settings) -> str:
    lines = []
    for one in results:
        for error in one.errors:
            lines.append(f"- [ ] {_link(settings, one.path, error.line)}: {_text(str(error))}")
        for site in one.sites:
            if site.outcome is SiteOutcome.REPORTED:
                lines.append(f"- [ ] {_place(settings, one, site)}: {_code(site)}: {_text(site.reason)}")
    return "\n".join(["## For a person", "", *(lines or ["Nothing."])])


def _place(settings: Settings, one: FileResult, site: Site) -> str:
    """Return a link to a site in the new text, where added imports may have moved the lines."""
    if site.cell is not None:
        return f"{_link(settings, one.path, None)}, cell {site.cell}, line {site.line}"
    return _link(settings, one.path, _line_after(one, site.line))


def _line_after(one: FileResult, line: int) -> int:
    """Return the number in the new text of a line of the old text."""
    from difflib import SequenceMatcher

    olds, news = one.old.splitlines(), one.new.splitlines()
    if olds == news:
        return line
    for _, start, end, new_start, new_end in SequenceMatcher(None, olds, news, autojunk=False).get_opcodes():
        if start < line <= end:
            return min(new_start + line - start, max(new_end, 1))
    return line


def _link(settings: Settings, path: Path, line: int | None) -> str:
    name = settings.relative(path)
    where = "" if line is None else f"#L{line}"
    return f"[{_text(name)}{f':{line}' if line else ''}]({quote(name)}{where})"


def _programs(results: list[FileResult]) -> str:
    lines = [f"- {_text(str(each))}" for each in verdicts(results)]
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


def _undoing(changed: list[FileResult], settings: Settings, *, is_written: bool) -> str:
    if not changed:
        return ""
    if not is_written:
        return "## How to undo it\n\nNothing is written yet; `anyaccel migrate --write` does it."
    names = " ".join(_quoted(settings.relative(one.path)) for one in changed)
    return f"## How to undo it\n\nBefore the commit, in the project's folder:\n\n```sh\ngit checkout -- {names}\n```"


def _quoted(name: str) -> str:
    from shlex import quote as quoted

    return quoted(name)


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
