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
from .self_check import passed_over
from .site import SourceError
from .source import Migration, migrate_source

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .answers import Decided
    from .project import Project
    from .self_check import Passed

__all__ = ["migrate_notebook"]

_MARK = "# anyaccel-cell "
_MASK = "get_ipython()  # anyaccel-magic "  # what IPython calls for a magic: nothing is known of it
_MAGIC = re.compile(r"^\s*(?:[%!?]|[\w.,\s]+=\s*[%!]|%{0,2}[\w.*]+\?{1,2}\s*$)")
_PYTHON_CELL_MAGICS = ("%%time", "%%timeit", "%%capture", "%%prun")
_HEAD = re.compile(r"\s*%%(\w+)")
_LANGUAGES = re.compile(
    r"bash|cmd|cython|file|html|javascript|js|latex|markdown|perl|pypy|python2|ruby|script|sh|sql|svg|system|writefile",
    re.IGNORECASE,
)
_TIMED = re.compile(r"^\s*(?:[\w.,\s]+=\s*)?%(?:time|timeit|prun|lprun|memit|mprun)\b")


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
    mark = _MARK
    while any(mark in cell.text for cell in cells):
        mark = mark.replace("cell", "cell-of")
    module = "\n" + "".join(f"{mark}{cell.number}\n{cell.text}\n" for cell in cells)  # no comments of a file's head
    done = migrate_source(module, target, project, decided)
    sites = tuple(_in_cell(site, module, mark) for site in done.sites)
    passed = (*(_in_cell(each, module, mark) for each in done.passed_over), *_in_magics(sources, cells))
    if done.new == done.old:
        return Migration(text, text, sites, tuple(unread), passed)
    changed = {number: new for number, new in _split(done.new, cells, mark).items() if new != sources[number]}
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
    metadata = notebook.get("metadata")
    for group, key in (("language_info", "name"), ("kernelspec", "language")):
        said = metadata.get(group) if isinstance(metadata, dict) else None
        language = said.get(key) if isinstance(said, dict) else None
        if language:
            return str(language).lower().startswith("python")
    return True


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
            unread.append(SourceError(msg, cell=number))
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


def _in_magics(sources: dict[int, str], cells: list[_Cell]) -> Iterator[Passed]:
    """Yield what spells CUDA in the Python code after a magic, and in cells with a magic that is not known."""
    of_python = {cell.number for cell in cells}
    for number, source in sources.items():
        is_unknown = number not in of_python and (head := _HEAD.match(source)) and _LANGUAGES.fullmatch(head[1]) is None
        if is_unknown:
            yield from (replace(each, cell=number) for each in passed_over(source.replace("%%", "  ", 1), ()))
        for line, text in enumerate(source.split("\n"), 1):
            if _TIMED.match(text):
                yield from (replace(each, line=line, cell=number) for each in passed_over(text.replace("%", " "), ()))


def _split(module: str, cells: list[_Cell], mark: str) -> dict[int, str]:
    """Return the new source of each cell, with its magics; what is added at the top goes to the first cell that changed."""
    parts = re.split(rf"^{mark}(\d+)\n", module, flags=re.MULTILINE)
    found = {int(number): text.removesuffix("\n") for number, text in zip(parts[1::2], parts[2::2], strict=True)}
    first = next((cell for cell in cells if found[cell.number] != cell.text), cells[0])
    for cell in cells:
        head, text = (f"{parts[0].strip()}\n\n" if cell is first and parts[0].strip() else ""), found[cell.number]
        if cell.magics and _HEAD.match(cell.magics[0]) and head:  # a cell's magic is its first line
            magic, newline, text = text.partition("\n")
            head = magic + newline + head
        found[cell.number] = head + text
        for number, magic in enumerate(cell.magics):
            found[cell.number] = re.sub(
                rf"^[ \t]*{re.escape(_MASK)}{number}$",
                lambda _, magic=magic: magic,
                found[cell.number],
                flags=re.MULTILINE,
            )
    return found


def _in_cell(site: Any, module: str, mark: str) -> Any:
    before = module.split("\n")[: site.line]
    place = max(place for place, line in enumerate(before) if line.startswith(mark))
    return replace(site, line=site.line - place - 1, cell=int(before[place].removeprefix(mark)))
