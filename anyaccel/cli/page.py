"""A self-contained HTML page of tables and bars, without scripts or external files, in light and dark."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING

from .. import __version__
from ..accelerator.errors import AnyaccelError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["Bar", "Page", "PageError", "require_writable", "write"]

_STYLE = """
:root { color-scheme: light dark; --line: #8884; --ours: #0a7d4f; --theirs: #8a8f98; --faint: #808080; }
@media (prefers-color-scheme: dark) { :root { --ours: #35c98b; --theirs: #6b7079; } }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 70rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.6rem; margin: 0 0 .2rem; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 .5rem; }
p { margin: .2rem 0 .8rem; }
nav a { display: inline-block; margin-right: .8rem; }
.lead, figcaption { color: var(--faint); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; }
th, td { border-bottom: 1px solid var(--line); padding: .3rem .9rem .3rem 0; text-align: left; vertical-align: top; }
th { font-weight: 600; white-space: nowrap; }
td:last-child:not(.number) { min-width: 14rem; }
td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.good { color: var(--ours); }
figure { margin: 1rem 0; }
.bars { display: grid; grid-template-columns: minmax(8rem, 16rem) 1fr; gap: .15rem .8rem; font-size: .85rem; }
.bars .label { text-align: right; padding-top: .1rem; overflow-wrap: anywhere; }
.bar { display: flex; align-items: center; gap: .5rem; line-height: 1.15rem; white-space: nowrap; }
.bar i { display: block; height: .7rem; min-width: 2px; background: var(--theirs); border-radius: 1px; }
.bar:first-child i { background: var(--ours); }
.bar span { color: var(--faint); }
.group { border-bottom: 1px solid var(--line); padding-bottom: .25rem; }
@media (max-width: 40rem) { .bars { grid-template-columns: 1fr; } .bars .label { text-align: left; font-weight: 600; } }
"""
_WIDEST_PERCENT = 60


class PageError(AnyaccelError, OSError):
    """Raised when a page cannot be written."""


@dataclass(frozen=True)
class Bar:
    """One bar: its name, its length relative to the others, and the text at its end."""

    name: str
    value: float
    text: str


@dataclass
class Page:
    """A page that is built section by section.

    Attributes:
        title: the heading.
        lead: a line below the title that says what the figures show.
    """

    title: str
    lead: str
    _sections: list[tuple[str, list[str]]] = field(default_factory=list)

    def section(self, title: str, text: str = "") -> None:
        """Begin a section."""
        self._sections.append((title, [f"<p>{escape(text)}</p>"] if text else []))

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[str]], chosen: Sequence[bool] = ()) -> None:
        """Add a table to the section.

        Args:
            columns: the headings.
            rows: the cells; columns of numbers are right-aligned.
            chosen: for each row, whether it is the one in use.
        """
        head = "".join(f"<th scope=col>{escape(column)}</th>" for column in columns)
        numbers = [all(_is_number(cell) for cell in column if cell) for column in zip(*rows, strict=True)]
        marks = chosen or [False] * len(rows)
        body = "".join(_row(row, numbers, is_chosen) for row, is_chosen in zip(rows, marks, strict=True))
        self._add(f"<div class=scroll><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>")

    def bars(self, caption: str, groups: Sequence[tuple[str, Sequence[Bar]]]) -> None:
        """Add a plot to the section: groups of bars, each scaled to its longest bar.

        Args:
            caption: what the bars show.
            groups: the label of each group, and its bars, ours first.
        """
        drawn = "".join(_group(label, bars) for label, bars in groups)
        self._add(f"<figure><figcaption>{escape(caption)}</figcaption><div class=bars>{drawn}</div></figure>")

    def html(self) -> str:
        """Return the page."""
        links = "".join(f'<a href="#s{place}">{escape(title)}</a>' for place, (title, _) in enumerate(self._sections))
        sections = "".join(
            f'<section><h2 id="s{place}">{escape(title)}</h2>{"".join(parts)}</section>'
            for place, (title, parts) in enumerate(self._sections)
        )
        return (
            '<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">'
            f"<title>{escape(self.title)}</title><style>{_STYLE}</style></head><body>"
            f"<h1>{escape(self.title)}</h1><p class=lead>{escape(self.lead)}</p><nav>{links}</nav>{sections}"
            f"<p class=lead>anyaccel {__version__}</p></body></html>\n"
        )

    def _add(self, part: str) -> None:
        self._sections[-1][1].append(part)


def require_writable(path: Path) -> None:
    """Check that a page can be written before doing the work that fills it.

    Raises:
        PageError: saying why.
    """
    try:
        if path.is_dir():
            raise IsADirectoryError(21, "it is a directory", str(path))
        with tempfile.TemporaryFile(
            dir=path.parent
        ):  # in the same folder, so that no empty page is left if the work fails
            pass
    except OSError as error:
        msg = f"writing {path} failed: {error.strerror}. Fix: choose another path."
        raise PageError(msg) from error


def write(path: Path, page: Page) -> None:
    """Write a page to a file.

    Raises:
        PageError: when that fails.
    """
    require_writable(path)
    try:
        path.write_text(page.html(), encoding="utf-8")
    except OSError as error:
        msg = f"writing the page failed: {error}. Fix: free some space, or choose another path."
        raise PageError(msg) from error


def _row(cells: Sequence[str], numbers: Sequence[bool], is_chosen: bool) -> str:
    kind = " class=good" if is_chosen else ""
    kinds = [" class=number" if is_number else "" for is_number in numbers]
    shown = (f"<td{kind_of_cell}>{escape(cell)}</td>" for cell, kind_of_cell in zip(cells, kinds, strict=True))
    return f"<tr{kind}>{''.join(shown)}</tr>"


def _is_number(text: str) -> bool:
    bare = text.rstrip("%").removeprefix("1/").replace(",", "")
    return bare.replace(".", "", 1).isdigit()


def _group(label: str, bars: Sequence[Bar]) -> str:
    longest = max(bar.value for bar in bars) or 1.0
    drawn = "".join(
        f'<div class=bar><i style="width:{bar.value / longest * _WIDEST_PERCENT:.1f}%"></i>{escape(bar.text)} '
        f"<span>{escape(bar.name)}</span></div>"
        for bar in bars
    )
    return f"<div class=label>{escape(label)}</div><div class=group>{drawn}</div>"
