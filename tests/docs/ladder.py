"""Copies code from tested files into docs/ladder: ``python -m tests.docs.ladder --write``.

A comment ``<!-- code: FILE BEGIN -->`` describes the fenced block after it: the part of FILE from the line that starts
with BEGIN to the end of that class, function or braces; ``all`` is the whole file, and
``row NAME`` an op's row of the table. A comment
``<!-- diff: FILE BEGIN -> FILE BEGIN -->`` comes before the difference of two such parts.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import re
import textwrap
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs" / "ladder").glob("*.md"))
_DIFF = re.compile(r"<!-- diff: (\S+) (.+?) -> (\S+) (.+?) -->\n```diff\n(.*?)```", re.DOTALL)
_BLOCK = re.compile(r"<!-- code: (\S+) (.+?) -->\n```(\w+)\n(.*?)```", re.DOTALL)


def piece(file: str, begin: str) -> str:
    """Return a part of a file, as a page shows it."""
    text = (ROOT / file).read_text()
    if begin == "all":
        return text
    if begin.startswith("row "):
        return _row(text, begin.removeprefix("row "))
    if file.endswith(".py"):
        name = begin.rsplit(maxsplit=1)[-1]
        (node,) = [one for one in ast.parse(text).body if getattr(one, "name", "") == name]
        return "\n".join(text.splitlines()[node.lineno - 1 : node.end_lineno]) + "\n"
    lines = text.splitlines()
    first = next(index for index, line in enumerate(lines) if line.startswith(begin))
    last = next(index for index in range(first, len(lines)) if lines[index] in ("}", "};"))
    if lines[first - 1].startswith("template"):
        first -= 1
    return "\n".join(lines[first : last + 1]) + "\n"


def _row(text: str, name: str) -> str:
    """Return an op's row of the table."""
    rows = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and ast.unparse(node.func) == "Op")
    (row,) = [row for row in rows if any(ast.unparse(keyword) == f"name={name!r}" for keyword in row.keywords)]
    return textwrap.dedent("\n".join(text.splitlines()[row.lineno - 1 : row.end_lineno])).rstrip(",") + "\n"


def difference(before: str, after: str) -> str:
    """Return the complete difference between two pieces."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=999)
    return "\n".join(list(lines)[3:]) + "\n"


def pulled(page: str) -> str:
    """Return a page's text with every piece of code updated from its file."""

    def block(match: re.Match[str]) -> str:
        file, begin, language = match.group(1, 2, 3)
        return f"<!-- code: {file} {begin} -->\n```{language}\n{piece(file, begin)}```"

    def diff(match: re.Match[str]) -> str:
        file, begin, to_file, to_begin = match.group(1, 2, 3, 4)
        text = difference(piece(file, begin), piece(to_file, to_begin))
        return f"<!-- diff: {file} {begin} -> {to_file} {to_begin} -->\n```diff\n{text}```"

    return _DIFF.sub(diff, _BLOCK.sub(block, page))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", required=True)
    parser.parse_args()
    for page in PAGES:
        page.write_text(pulled(page.read_text()))


if __name__ == "__main__":
    main()
