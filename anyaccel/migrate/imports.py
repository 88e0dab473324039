"""The imports of a rewritten module: adds each needed import once, and removes imports that are no longer used.

The rewritten text is parsed again with :mod:`ast` and edited by line, so the code around an import does not move.
"""

from __future__ import annotations

import ast
import warnings
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from .import_order import is_first, sorted_place
from .lines import lines_of
from .site import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["TextModule"]

_AMP = "torch.cuda.amp"


@dataclass
class _Edit:
    """An import and its replacement; None removes the import."""

    node: ast.Import | ast.ImportFrom
    new: str | None


class TextModule:
    """A module's text and its syntax tree.

    Args:
        code: the text.

    Raises:
        SourceError: when this version of Python cannot parse it.
    """

    def __init__(self, code: str) -> None:
        self.code = code
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # warnings about the file, such as invalid escapes
                self._tree = ast.parse(code)
        except (SyntaxError, ValueError, RecursionError) as error:
            line = getattr(error, "lineno", None) or 1
            msg = f"reading Python failed: got {error}; expected what this Python can read. Fix: use a newer one."
            raise SourceError(msg, line) from error
        self._newline = "\r\n" if "\r\n" in code else "\n"

    # Removing

    def cleaned(self, used_before: Iterable[str], moving: Iterable[str]) -> tuple[str, set[str]]:
        """Return the text without unused imports of ``torch.cuda`` and op builders, and the source of changed imports.

        Args:
            used_before: the names that these imports bind and that were used before the rewrite.
            moving: the names from ``torch.cuda.amp`` that can now be imported from ``torch.amp``.
        """
        dropped = set(used_before) - self._used_names()
        edits = [
            edit
            for node in ast.walk(self._tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            and (edit := self._edit_of(node, dropped, set(moving))) is not None
        ]
        lines = lines_of(self.code)
        for edit in sorted(edits, key=lambda edit: (edit.node.lineno, edit.node.col_offset), reverse=True):
            self._carry_out(edit, lines)
        return "".join(lines), {self._source(edit.node) for edit in edits}

    def _used_names(self) -> set[str]:
        """Return all names and attribute chains (``torch.cuda.Event``) in the module, and the names in ``__all__``."""
        used: set[str] = set()
        for node in ast.walk(self._tree):
            if isinstance(node, ast.Name):
                used.add(node.id)
            elif isinstance(node, ast.Attribute):
                used.add(ast.unparse(node))
            elif isinstance(node, ast.stmt) and _is_of_all(node):
                used |= {str(each.value) for each in ast.walk(node) if isinstance(each, ast.Constant)}
        return used

    def _edit_of(self, node: ast.Import | ast.ImportFrom, dropped: set[str], moving: set[str]) -> _Edit | None:
        if isinstance(node, ast.ImportFrom) and (node.level or not node.module):
            return None
        prefix = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        if prefix == f"{_AMP}." and {alias.asname or alias.name for alias in node.names} <= moving:
            return _Edit(node, self._source(node).replace(_AMP, "torch.amp", 1))
        kept: list[str] = []
        is_changed = False
        for alias in node.names:
            full_name, name = f"{prefix}{alias.name}", alias.asname or alias.name
            is_ours = full_name == "torch.cuda" or full_name.startswith(("torch.cuda.", "deepspeed.ops.op_builder."))
            if not is_ours or name not in dropped:
                kept.append(f"{alias.name} as {alias.asname}" if alias.asname else alias.name)
                continue
            is_changed = True
            if not prefix and alias.asname is None and not self._has_import_of_torch():
                kept.append("torch")  # `import torch.cuda` also bound torch
        if not is_changed or (kept and "#" in self._source(node)):
            return None  # a comment in it may be about any of the names
        start = f"from {node.module} import " if isinstance(node, ast.ImportFrom) else "import "
        return _Edit(node, start + ", ".join(kept) if kept else None)

    def _has_import_of_torch(self) -> bool:
        return any(
            isinstance(node, ast.Import) and any(alias.name == "torch" and not alias.asname for alias in node.names)
            for node in self._tree.body
        )

    def _source(self, node: ast.AST) -> str:
        return ast.get_source_segment(self.code, node) or ""

    def _carry_out(self, edit: _Edit, lines: list[str]) -> None:
        node = self._whole(edit.node) if edit.new is None else edit.node
        first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        before = lines[first].encode()[: node.col_offset].decode()
        after = lines[last].encode()[node.end_col_offset :].decode()
        is_alone = not before.strip() and not after.split("#")[0].strip()
        if edit.new is None and is_alone and self._owner_of_one(node) is None:
            begins_block = lines[first - 1].rstrip().endswith(":") if first else False
            while begins_block and last + 1 < len(lines) and not lines[last + 1].strip():
                last += 1  # empty lines after the first statement of a block go too
            lines[first : last + 1] = []
        else:
            lines[first : last + 1] = [before + ("pass" if edit.new is None else edit.new) + after]

    def _owner_of_one(self, node: ast.stmt) -> ast.AST | None:
        """Return the statement that has a block with only this statement in it; None if there is none."""
        for owner in ast.walk(self._tree):
            for name in ("body", "orelse", "finalbody", "handlers") if not isinstance(owner, ast.Module) else ():
                if getattr(owner, name, None) == [node]:
                    return owner
        return None

    def _whole(self, node: ast.stmt) -> ast.stmt:
        """Return the outermost ``if`` or ``try`` that is useless without a statement; else the statement itself.

        The statement must be the only one in its body, and the test of an ``if`` must be a name or an attribute.
        """
        owner = self._owner_of_one(node)
        is_needless = isinstance(owner, ast.If | ast.Try) and owner.body == [node] and not owner.orelse
        if isinstance(owner, ast.If):
            is_needless = is_needless and isinstance(owner.test, ast.Name | ast.Attribute)
        elif isinstance(owner, ast.Try):
            is_needless = is_needless and not owner.finalbody
        if not is_needless or not isinstance(owner, ast.stmt):
            return node
        text = "".join(lines_of(self.code)[owner.lineno - 1 : owner.end_lineno])
        return node if "#" in text or text.lstrip().startswith("elif") else self._whole(owner)

    # Adding

    def added(self, imports: list[str], needing: Iterable[str], *, with_torch: bool = False) -> str:
        """Return the text with missing imports added after those of torch and before the first code that needs them.

        Args:
            imports: import statements, such as ``"import torch"``.
            needing: the code that needs them.
            with_torch: whether that code runs only where torch can be imported.
        """
        lines = lines_of(self.code)
        needing = set(needing)
        if with_torch and (attempted := self._attempted_import(lines, needing)) is not None:
            return self._added_in_functions(imports, [attempted], lines)
        if in_functions := self._places_in_functions(lines, needing, are_nested="import torch" in imports):
            return self._added_in_functions(imports, in_functions, lines)

        def is_before(node: ast.stmt) -> bool:
            text = "".join(lines[node.lineno - 1 : node.end_lineno])
            return not any(new in text for new in needing)

        first = list(takewhile(is_first, self._tree.body))
        before = [*first, *takewhile(is_before, self._tree.body[len(first) :])]
        missing = [line for line in imports if not any(_brings(node, line) for node in before)]
        if not missing:
            return self.code
        after = self._place(before)
        places = {line: sorted_place(before, after, line) for line in missing}
        is_after_comment = any(place and lines[place - 1].lstrip().startswith("#") for place in places.values())
        if all(place is not None for place in places.values()) and not is_after_comment:
            for line, place in sorted(places.items(), key=lambda item: item[1] or 0, reverse=True):
                if place and not lines[place - 1].endswith(("\n", "\r")):
                    lines[place - 1] += self._newline
                lines[place:place] = [line + self._newline]
            return "".join(lines)
        place = (after.end_lineno or after.lineno) if after is not None else self._after_header(lines)
        if lines[place - 1 : place] and not lines[place - 1].endswith(("\n", "\r")):
            lines[place - 1] += self._newline
        new = [line + self._newline for line in missing]
        if after is None or not isinstance(after, ast.Import | ast.ImportFrom):
            is_spaced = place >= len(lines) or not lines[place].strip()
            new = [*([self._newline] if after is not None else []), *new, *([] if is_spaced else [self._newline])]
        lines[place:place] = new
        return "".join(lines)

    def _attempted_import(self, lines: list[str], needing: set[str]) -> tuple[ast.stmt, ast.stmt] | None:
        """Return the ``try`` that imports torch where it is installed, and that import; None if the module needs torch."""
        found = [
            (statement, each)
            for statement in self._tree.body
            for each in ast.walk(statement)
            if isinstance(each, ast.Import | ast.ImportFrom) and _is_of_torch(each)
        ]
        attempt = found[0][0] if found else None
        if not isinstance(attempt, ast.Try) or any(statement is not attempt for statement, _ in found):
            return None
        last = [each for each in attempt.body if any(each is one for _, one in found)][-1:]
        is_needed = any(isinstance(each, ast.Raise) for handler in attempt.handlers for each in ast.walk(handler))
        if not last or is_needed or lines[last[0].lineno - 1].strip() != self._source(last[0]):
            return None
        before = "".join(lines[: last[0].end_lineno])
        return None if any(new in before for new in needing) else (attempt, last[0])

    def _places_in_functions(
        self, lines: list[str], needing: set[str], *, are_nested: bool
    ) -> list[tuple[ast.stmt, ast.stmt]]:
        """Return functions, and the imports of torch in them after which imports are added; empty to add them at the top.

        A function that imports torch itself may run in another process, without this module's globals. There are no places
        if the module itself imports torch, or if other code than such functions needs the imports. With ``are_nested``, methods
        are such functions, too, and a ``try`` in one may import torch: the module may be there where torch is not.
        """
        found: list[tuple[ast.stmt, ast.stmt]] = []
        for statement in self._parts(self._tree.body) if are_nested else self._tree.body:
            first = min([statement.lineno, *(each.lineno for each in getattr(statement, "decorator_list", ()))]) - 1
            text = "".join(lines[first : statement.end_lineno])
            is_of_function = isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)
            imports = [each for each in ast.walk(statement) if isinstance(each, ast.Import | ast.ImportFrom)]
            if not is_of_function and any(map(_is_of_torch, imports)):
                return []
            if not any(new in text for new in needing):
                continue
            body: list[ast.stmt] = statement.body if is_of_function else []  # type: ignore[attr-defined]
            if are_nested:
                body = [each for one in body for each in (one.body if isinstance(one, ast.Try) else [one])]
            own = [each for each in body if isinstance(each, ast.Import | ast.ImportFrom) and _is_of_torch(each)]
            place = own[-1] if own else None
            before = "".join(lines[first : place.end_lineno]) if place is not None else ""
            is_alone = place is not None and lines[place.lineno - 1].strip() == self._source(place)
            if place is None or not is_alone or any(new in before for new in needing):
                return []
            found.append((statement, place))
        return found

    def _parts(self, body: list[ast.stmt]) -> Iterator[ast.stmt]:
        """Yield the statements of a module, and in place of a class those in it."""
        for each in body:
            if isinstance(each, ast.ClassDef):
                head = [*each.decorator_list, *each.bases, *(one.value for one in each.keywords)]
                yield from (ast.Expr(one, lineno=one.lineno, end_lineno=one.end_lineno) for one in head)
                yield from self._parts(each.body)
            else:
                yield each

    def _added_in_functions(self, imports: list[str], places: list[tuple[ast.stmt, ast.stmt]], lines: list[str]) -> str:
        for function, place in reversed(places):
            first = lines[place.lineno - 1]
            indent = first[: len(first) - len(first.lstrip())]
            there = [each for each in ast.walk(function) if isinstance(each, ast.Import | ast.ImportFrom)]
            new = [line for line in imports if not any(_brings(each, line) for each in there)]
            lines[place.end_lineno : place.end_lineno] = [indent + line + self._newline for line in new]
        return "".join(lines)

    def defined(self, functions: dict[str, str], needing: Iterable[str]) -> str:
        """Return the text with missing functions added after the imports and before the first code that needs them.

        Args:
            functions: the source of each function, by name.
            needing: the code that needs them.
        """
        there = {node.name for node in self._tree.body if isinstance(node, ast.FunctionDef)}
        missing = [text for name, text in functions.items() if name not in there]
        if not missing:
            return self.code
        lines = lines_of(self.code)
        needing = set(needing)
        before = takewhile(
            lambda node: not any(new in "".join(lines[node.lineno - 1 : node.end_lineno]) for new in needing),
            self._tree.body,
        )
        first = list(takewhile(is_first, self._tree.body))
        imports = [node for node in before if isinstance(node, ast.Import | ast.ImportFrom)]
        after = [*first, *imports][-1] if first or imports else None
        place = (after.end_lineno or after.lineno) if after is not None else self._after_header(lines)
        if not self._has_import_of_torch():
            missing = [_with_import(text) for text in missing]
        if lines[place - 1 : place] and not lines[place - 1].endswith(("\n", "\r")):
            lines[place - 1] += self._newline
        written = "".join(f"\n{text}" for text in missing).replace("\n", self._newline)
        rest = self._newline if place < len(lines) and lines[place].strip() else ""
        lines[place:place] = [written + rest * 2]
        return "".join(lines)

    def _place(self, before: list[ast.stmt]) -> ast.stmt | None:
        """Return the statement after which imports are added; None for the top of the file."""
        imports = [node for node in before if isinstance(node, ast.Import | ast.ImportFrom)]
        of_torch = [node for node in imports if _is_of_torch(node)]
        if of_torch or imports:
            return (of_torch or imports)[-1]
        first = before[0] if before else None
        is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
        return first if is_docstring else None

    def _after_header(self, lines: list[str]) -> int:
        """Return the number of lines in the file's header: shebang, encoding, licence, and an empty line after them."""
        number = 0
        while number < len(lines) and lines[number].startswith("#"):
            number += 1
        if number and number < len(lines) and not lines[number].strip():
            number += 1
        return number


def _with_import(function: str) -> str:
    """Return a function that imports torch itself, below its docstring."""
    return function.replace('"""\n    ', '"""\n    import torch\n\n    ', 1)


def _is_of_all(node: ast.stmt) -> bool:
    """Return whether a statement sets or changes ``__all__``: ``__all__ = […]``, ``__all__ += […]``, ``__all__.append(…)``."""
    is_simple = isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr)
    return is_simple and any(isinstance(each, ast.Name) and each.id == "__all__" for each in ast.walk(node))


def _is_of_torch(node: ast.Import | ast.ImportFrom) -> bool:
    names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""]
    return any(name == "torch" or name.startswith("torch.") for name in names)


def _brings(node: ast.stmt, line: str) -> bool:
    """Return whether a statement provides what the import ``line`` imports."""
    (new,) = ast.parse(line).body
    assert isinstance(new, ast.Import | ast.ImportFrom)  # noqa: S101  # all added lines are imports
    wanted, name = new.names[0].name, new.names[0].asname
    if isinstance(new, ast.ImportFrom):
        if not isinstance(node, ast.ImportFrom) or node.module != new.module or node.level:
            return False
        return any(alias.name == wanted and not alias.asname for alias in node.names)
    if name is not None:
        return isinstance(node, ast.Import) and any((each.name, each.asname) == (wanted, name) for each in node.names)
    return isinstance(node, ast.Import) and any(
        not alias.asname and (alias.name == wanted or alias.name.startswith(f"{wanted}.")) for alias in node.names
    )
