"""``[tool.anyaccel]`` in a project's pyproject.toml: the files that ``migrate`` and ``check`` exclude, and answers."""

from __future__ import annotations

import errno
import os
import re
import shutil
import sys
from dataclasses import dataclass, field, replace
from glob import escape
from pathlib import Path
from typing import Any

from .answers import ANSWERS, ANY_ACCELERATOR, Answer, Answers
from .site import MigrateError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

__all__ = ["Settings", "keep_answers", "settings_of"]

_FORM = 'assume = "any-accelerator", answers = [{question = "…", answer = "port" or "keep", files = ["…"]}]'


@dataclass(frozen=True)
class Settings:
    """A project's settings for the tool.

    Attributes:
        file: the project's pyproject.toml, or the path to create if there is none.
        exclude: patterns of absolute paths to exclude.
        answers: the answers to the tool's questions.
    """

    file: Path
    exclude: tuple[str, ...] = ()
    answers: Answers = field(default_factory=Answers)

    def relative(self, path: Path) -> str:
        """Return a file's path relative to the project's folder, with forward slashes, for the patterns of answers."""
        relative = Path(os.path.relpath(path.absolute(), self.file.parent))
        if relative.parts[:1] == ("..",):  # by a symbolic link
            relative = Path(os.path.relpath(path.resolve(), self.file.parent.resolve()))
        return relative.as_posix()


def settings_of(start: Path | None = None) -> Settings:
    """Return the settings of the project that contains a folder.

    Args:
        start: the folder to search for ``pyproject.toml``, before its parent folders; None means the working directory.
            If there is none, the repository's root is where to create it, or this folder outside of a repository.

    Raises:
        MigrateError: when the file cannot be read, or its ``[tool.anyaccel]`` table is not valid.
    """
    try:
        start = Path.cwd() if start is None else start
    except FileNotFoundError as error:
        msg = "reading the settings failed: the working directory was removed. Fix: cd to another one."
        raise MigrateError(msg) from error
    folders = (start, *start.parents)
    for folder in folders:
        file = folder / "pyproject.toml"
        if file.is_file():
            return _read(file)
    root = next((folder for folder in folders if (folder / ".git").exists()), start)
    return Settings(root / "pyproject.toml")


def _read(file: Path) -> Settings:
    try:
        tools: Any = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {})
        table: Any = tools.get("anyaccel", {}) if isinstance(tools, dict) else None
    except (OSError, ValueError) as error:
        msg = f"reading {file} failed: got {error}; expected TOML. Fix: correct that line of the file."
        raise MigrateError(msg) from error
    patterns: Any = table.get("exclude", []) if isinstance(table, dict) else None
    unknown = set(table) - {"exclude", "migrate"} if isinstance(table, dict) else {"no table"}
    if unknown or not _are_texts(patterns):
        msg = (
            f"reading [tool.anyaccel] of {file} failed: got {', '.join(sorted(unknown)) or patterns}; expected "
            f'exclude = ["pattern", …], a table migrate, and nothing else. Fix: rename or remove the other keys.'
        )
        raise MigrateError(msg)
    exclude = tuple(str(Path(escape(str(file.parent))) / pattern) for pattern in patterns)
    return Settings(file, exclude, _answers(file, table.get("migrate", {})))


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _answers(file: Path, table: Any) -> Answers:
    is_known = isinstance(table, dict) and not set(table) - {"assume", "answers"}
    given: Any = table.get("answers", []) if is_known else None
    is_right = isinstance(given, list) and all(_is_answer(each) for each in given)
    if not is_right or table.get("assume", ANY_ACCELERATOR) != ANY_ACCELERATOR:
        msg = (
            f"reading [tool.anyaccel.migrate] of {file} failed: got {table}; expected {_FORM}. "
            f"Fix: remove that table, and answer the questions again with --interactive."
        )
        raise MigrateError(msg)
    answers = tuple(Answer(each["question"], each["answer"], tuple(each.get("files", ()))) for each in given)
    return Answers(answers, assumes_any_accelerator="assume" in table)


def _is_answer(each: Any) -> bool:
    if not isinstance(each, dict) or set(each) - {"question", "answer", "files"}:
        return False
    return isinstance(each.get("question"), str) and each.get("answer") in ANSWERS and _are_texts(each.get("files", []))


def keep_answers(settings: Settings, new: list[Answer]) -> Settings:
    """Add answers to the project's pyproject.toml without changing its other lines, and return the new settings.

    Args:
        settings: the project's.
        new: the new answers; an answer to the same question for the same files replaces the old one.

    Raises:
        MigrateError: when the file cannot be read or written; it is then unchanged.
    """
    import tomlkit  # imported here because reading does not need it
    from tomlkit.exceptions import TOMLKitError

    file = Path(os.path.realpath(settings.file))  # a symbolic link stays a link
    staged = file.with_name(f".{file.name}.new")
    try:
        if file.exists() and not file.stat().st_mode & 0o222:
            raise PermissionError(errno.EACCES, "the file is read-only")
        old = file.read_bytes().decode() if file.exists() else ""
        text = _with_answers(tomlkit, old, new)
        if "migrate" not in tomllib.loads(text).get("tool", {}).get(
            "anyaccel", {}
        ):  # tomlkit adds no table to dotted keys
            text = f"{old.rstrip()}\n\n{_with_answers(tomlkit, '', new)}"
        text = re.sub(r"(?<!\r)\n", "\r\n", text) if "\r\n" in old else text
        given = _answers(file, tomllib.loads(text)["tool"]["anyaccel"]["migrate"]).given
        staged.write_bytes(text.encode())
        if file.exists():
            shutil.copymode(file, staged)
        os.replace(staged, file)
    except (OSError, ValueError, TOMLKitError) as error:
        staged.unlink(missing_ok=True)
        msg = (
            f"writing the answers to {file} failed: got {error}; expected a valid and writable file. Fix: correct its TOML, free "
            f"some space or change its permissions, and run the command again; nothing has been changed."
        )
        raise MigrateError(msg) from error
    return replace(settings, answers=replace(settings.answers, given=given))


def _with_answers(tomlkit: Any, text: str, new: list[Answer]) -> str:
    """Return a document with answers in its table."""
    document: Any = tomlkit.parse(text)
    table = document
    for name in ("tool", "anyaccel", "migrate"):
        if name not in table:
            is_inline = isinstance(table, tomlkit.items.InlineTable)
            table[name] = tomlkit.inline_table() if is_inline else tomlkit.table(is_super_table=name != "migrate")
        table = table[name]
    _put(tomlkit, table, new)
    return str(tomlkit.dumps(document))


def _put(tomlkit: Any, table: Any, new: list[Answer]) -> None:
    """Put answers into a table, without the old ones that they replace; the others keep their comments."""
    answers = table.get("answers")
    is_of_tables = isinstance(answers, tomlkit.items.AoT)
    if answers is None:
        answers = tomlkit.array()
    places = {(each.question, each.files) for each in new}
    for number in reversed(range(len(answers))):
        old = answers[number]
        if (str(old["question"]), tuple(map(str, old.get("files", ())))) in places:
            del answers[number]
    for each in new:
        entry = tomlkit.table() if is_of_tables else tomlkit.inline_table()
        entry.update({"question": each.question, "answer": each.answer})
        if each.files:
            entry["files"] = list(each.files)
        if is_of_tables:
            answers.append(entry)
        else:
            answers.add_line(entry)
    if not is_of_tables:
        text = answers.as_string()
        if not text.rstrip("]").endswith("\n"):
            answers.add_line(indent="")
    table["answers"] = answers
