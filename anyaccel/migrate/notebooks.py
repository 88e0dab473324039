"""Migrates notebooks: the code cells form one module, because they share names; magics are masked meanwhile."""

from __future__ import annotations

import ast
import json
import re
import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from .answers import UNDECIDED
from .notebook_text import with_sources
from .site import SourceError
from .source import Migration, migrate_source

if TYPE_CHECKING:
    from .answers import Decided
    from .project import Project

__all__ = ["migrate_notebook"]

_MARK = "# anyaccel-cell "
_MASK = "pass  # anyaccel-magic "
_MAGIC = re.compile(r"^\s*(?:[%!?]|[\w.,\s]+=\s*[%!])|\?\s*$")
_PYTHON_CELL_MAGICS = ("%%time", "%%timeit", "%%capture", "%%prun")


@dataclass
class _Cell:
    """A code cell.

    Attributes:
        number: the cell's number in the notebook, from 1.
        text: the source as it is in the module, with magics masked.
        magics: the masked lines.
    """

    number: int
    text: str
    magics: list[str]


def migrate_notebook(
    text: str, target: str = "anyaccel", project: Project | None = None, decided: Decided = UNDECIDED
) -> Migration:
    """Rewrite the code cells of a notebook; outputs and everything else stay unchanged.

    Args:
        text: the notebook, as JSON of format 4.
        target: as for :func:`anyaccel.migrate.source.migrate_source`.
        project: the same.
        decided: the same.

    Raises:
        SourceError: when it is not a notebook.
    """
    notebook = _parsed(text)
    sources = {
        number: "".join(cell.get("source", ""))
        for number, cell in enumerate(notebook["cells"], 1)
        if cell.get("cell_type") == "code" and _is_python(notebook)
    }
    cells, unread = _readable(sources)
    module = "".join(f"{_MARK}{cell.number}\n{cell.text}\n" for cell in cells)
    done = migrate_source(module, target, project, decided)
    sites = tuple(_in_cell(site, module) for site in done.sites)
    passed = tuple(_in_cell(each, module) for each in done.passed_over)
    if done.new == done.old:
        return Migration(text, text, sites, tuple(unread), passed)
    changed = {number: source for number, source in _split(done.new, cells).items() if source != sources[number]}
    return Migration(text, with_sources(text, changed), sites, tuple(unread), passed)


def _parsed(text: str) -> dict[str, Any]:
    try:
        notebook = json.loads(text)
        cells = notebook["cells"]
        if not all(isinstance("".join(cell.get("source", "")), str) for cell in cells):
            raise TypeError
    except json.JSONDecodeError as error:
        msg = f"reading a notebook failed: got {error}; expected JSON. Fix: save it again in Jupyter."
        raise SourceError(msg, error.lineno) from error
    except (KeyError, TypeError, AttributeError) as error:
        msg = (
            "reading a notebook failed: got no list of cells; expected format 4. "
            "Fix: convert it with jupyter nbconvert --to notebook --nbformat 4."
        )
        raise SourceError(msg) from error
    return dict(notebook)


def _is_python(notebook: dict[str, Any]) -> bool:
    metadata = notebook.get("metadata", {})
    language = (
        metadata.get("language_info", {}).get("name") or metadata.get("kernelspec", {}).get("language") or "python"
    )
    return bool(str(language).lower().startswith("python"))


def _readable(sources: dict[int, str]) -> tuple[list[_Cell], list[SourceError]]:
    cells, unread = [], []
    for number, source in sources.items():
        if source.lstrip().startswith("%%") and not source.lstrip().startswith(_PYTHON_CELL_MAGICS):
            continue  # a cell in another language
        cell = _Cell(number, source, [])
        if not _is_valid(source):
            cell = _masked(number, source)
        if _is_valid(cell.text):
            cells.append(cell)
        else:
            msg = f"reading cell {number} failed: it is not Python 3. Fix: correct it, or begin it with a magic such as %%bash."
            unread.append(SourceError(msg, number))
    return cells, unread


def _is_valid(source: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ast.parse(source)
    except (SyntaxError, ValueError):
        return False
    return True


def _masked(number: int, source: str) -> _Cell:
    lines: list[str] = []
    magics: list[str] = []
    indent, is_continued = "", False
    for line in source.split("\n"):
        if is_continued or _MAGIC.search(line):
            indent = indent if is_continued else line[: len(line) - len(line.lstrip())]
            lines.append(f"{indent}{_MASK}{len(magics)}")
            magics.append(line)
            is_continued = line.endswith("\\")
        else:
            lines.append(line)
    return _Cell(number, "\n".join(lines), magics)


def _split(module: str, cells: list[_Cell]) -> dict[int, str]:
    """Return the new source of each cell, with its magics restored."""
    parts = re.split(rf"^{_MARK}(\d+)\n", module, flags=re.MULTILINE)
    found = {int(number): text.removesuffix("\n") for number, text in zip(parts[1::2], parts[2::2], strict=True)}
    first = cells[0].number
    found[first] = parts[0] + found[first]
    for cell in cells:
        for number, magic in enumerate(cell.magics):
            found[cell.number] = re.sub(
                rf"^[ \t]*{re.escape(_MASK)}{number}$",
                lambda _, magic=magic: magic,
                found[cell.number],
                flags=re.MULTILINE,
            )
    return found


def _in_cell(site: Any, module: str) -> Any:
    before = module.split("\n")[: site.line]
    mark = max(place for place, line in enumerate(before) if line.startswith(_MARK))
    return replace(site, line=site.line - mark - 1, cell=int(before[mark].removeprefix(_MARK)))
