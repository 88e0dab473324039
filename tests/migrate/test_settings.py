"""The project's settings: read, kept with all that a person wrote, and refused if they are not understood."""

from __future__ import annotations

from pathlib import Path

import pytest

from anyaccel.migrate.answers import Answer
from anyaccel.migrate.settings import keep_answers, settings_of
from anyaccel.migrate.site import MigrateError

NEW = [Answer("device-text", "keep"), Answer("own-cuda", "port", ("a.py",)), Answer("device-text", "port")]
FILES = {
    "empty": "",
    "a list": (
        "[tool.anyaccel.migrate]\nanswers = [\n    # see issue 12\n"
        '    {question = "precision", answer = "keep"},  # asked Bob\n]\n'
    ),
    "a list on one line": (
        '[tool.anyaccel.migrate]  # see issue 12\nanswers = [{question = "precision", answer = "keep"}]  # asked Bob\n'
        "[tool.x]\na = 1\n"
    ),
    "tables": (
        "[[tool.anyaccel.migrate.answers]]\n# see issue 12\n"
        'question = "precision"\nanswer = "keep"  # asked Bob\n\n[tool.x]\na = 1\n'
    ),
    "dotted keys": '[tool]\nanyaccel.exclude = ["gen/*"]  # asked Bob\n[tool.x]\na = 1\n',
    "dotted keys at the top": 'tool.anyaccel.exclude = ["gen/*"]  # asked Bob\n',
    "lines of Windows": "[tool.x]\r\na = 1\r\n",
    "an inline table": 'tool.anyaccel.migrate = {answers = [{question = "precision", answer = "keep"}]}\n',
}


@pytest.mark.parametrize("name", FILES)
def test_new_answers_change_nothing_else(name: str, tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_bytes(FILES[name].encode())
    settings = settings_of(tmp_path)
    for answer in NEW:
        settings = keep_answers(settings, [answer])
    kept = [Answer("precision", "keep")] if "precision" in FILES[name] else []
    assert settings_of(tmp_path).answers.given == settings.answers.given == (*kept, *NEW[1:])
    text = file.read_bytes().decode()
    assert ("\r\n" in FILES[name]) == ("\n" not in text.replace("\r\n", ""))
    assert all(
        text.count(comment) == FILES[name].count(comment) for comment in ("# see issue 12", "# asked Bob", "[tool.x]")
    )


def test_a_read_only_file_is_not_replaced(tmp_path: Path) -> None:
    file = tmp_path / "pyproject.toml"
    file.write_text("")
    file.chmod(0o444)
    with pytest.raises(MigrateError, match="the file is read-only"):
        keep_answers(settings_of(tmp_path), NEW[:1])
    assert file.read_text() == ""
    assert [path.name for path in tmp_path.iterdir()] == ["pyproject.toml"]


@pytest.mark.parametrize(
    "text", ["tool = 3", "tool = [1]", "[tool]\nanyaccel = 3", "[tool.anyaccel]\nmigrate = 3", "tool = {"]
)
def test_what_is_no_table_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(MigrateError, match=r"pyproject\.toml failed"):
        settings_of(tmp_path)


def test_a_file_has_one_path_whatever_leads_to_it(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "link").symlink_to("project")
    settings = settings_of(tmp_path / "project")
    assert {settings.relative(tmp_path / folder / "a.py") for folder in ("project", "link", "link/../project")} == {
        "a.py"
    }
