"""Lines that a rewrite makes too long: ruff wraps them as the project's settings say, and touches no others."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from anyaccel.cli import app
from anyaccel.migrate import long_lines
from anyaccel.migrate.files import migrate_files, with_wrapped_lines
from anyaccel.migrate.long_lines import style_of, too_long, wrapped

if TYPE_CHECKING:
    from pathlib import Path

CODE = """import torch

lr = ( 0.1 )  # not as a formatter would write it
def start(x, self, options):
    if options.parallel and x.is_cuda and torch.cuda.device_count() > 1 and options.world > 1:
        x = ( x.cuda() )
    steps = [torch.zeros(options.batch, 3, 224, 224, device='cuda', dtype=torch.half)]
    return x, steps, lr
"""
SETTINGS = {
    "ruff": ("pyproject.toml", "[tool.ruff]\nline-length = 95\n", 95),
    "ruff without a length": ("pyproject.toml", "[tool.ruff.lint]\nselect = ['E']\n", 88),
    "a file of ruff's": ("ruff.toml", "line-length = 97\n", 97),
    "black": ("pyproject.toml", "[tool.black]\nline-length = 90\n", 90),
    "flake8": ("setup.cfg", "[flake8]\nmax-line-length = 99  # columns\n", 99),
    "pycodestyle": ("tox.ini", "[pycodestyle]\nmax-line-length = 92\n", 92),
    "none": ("pyproject.toml", "[project]\nname = 'x'\n", None),
    "no TOML": ("pyproject.toml", "[tool.ruff\n", None),
    "no number": ("setup.cfg", "[flake8]\nmax-line-length = long\n", None),
}


@pytest.fixture(autouse=True)
def fresh_styles() -> None:
    style_of.cache_clear()


def migrated(path: Path) -> str:
    (result,) = with_wrapped_lines(migrate_files([path], "anyaccel"))
    assert not result.errors
    return result.new


@pytest.mark.parametrize(("name", "text", "length"), SETTINGS.values(), ids=SETTINGS)
def test_style_is_read_from_the_settings_above_a_file(tmp_path: Path, name: str, text: str, length: int | None) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / name).write_text(text)
    folder = tmp_path / "package" / "inner"
    folder.mkdir(parents=True)
    assert style_of(folder).length == length
    assert style_of(folder).has_ruff is (name == "ruff.toml" or ("[tool.ruff" in text and length is not None))


@pytest.mark.parametrize(("name", "text", "length"), SETTINGS.values(), ids=SETTINGS)
def test_only_lines_that_became_too_long_are_wrapped(tmp_path: Path, name: str, text: str, length: int | None) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / name).write_text(text)
    path = tmp_path / "train.py"
    path.write_text(CODE)
    new = migrated(path)
    assert max(map(len, new.splitlines())) <= (length or 100)
    assert "lr = ( 0.1 )  # not as" in new
    assert "x = ( x.to(get_accelerator().device_name()) )" in new
    assert "    if (\n        options.parallel\n        and get_accelerator().on_accelerator(x)\n" in new


def test_wrapped_code_means_the_same_and_a_second_run_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "train.py"
    path.write_text(CODE)
    new = migrated(path)
    monkeypatch.setattr(long_lines, "ruff", lambda: None)
    plain = migrated(path)
    assert plain != new
    assert ast.dump(ast.parse(plain)) == ast.dump(ast.parse(new))
    monkeypatch.undo()
    path.write_text(new)
    assert migrated(path) == new


def test_line_that_was_as_long_before_stays(tmp_path: Path) -> None:
    old = f"value = call({', '.join(['argument'] * 20)}, 1)\n"
    path = tmp_path / "a.py"
    assert too_long(path, old, old.replace("1", "2")) == []
    assert too_long(path, old, old.replace("1", "234")) == [1]


def test_length_is_the_files_own_without_settings(tmp_path: Path) -> None:
    long = "x = 1  # " + "a" * 120 + "\n"
    old = long * 5 + "y = 1\n"
    assert too_long(tmp_path / "a.py", old, old.replace("y = 1", "y = 1  # " + "b" * 110)) == []
    assert too_long(tmp_path / "a.py", old, old.replace("y = 1", "y = 1  # " + "b" * 150)) == [6]


@pytest.mark.parametrize(
    "code", ["print 'x', call(aaaaaaaa, b)\n", "x = '''\n{}'''\n".format("a " * 70)], ids=["python-2", "text"]
)
def test_what_cannot_be_wrapped_stays(tmp_path: Path, code: str) -> None:
    new = code.replace("b)", "b" * 120 + ")").replace("a a", "aa a", 1)
    assert wrapped(tmp_path / "a.py", code, new) == new


def test_report_says_so_without_ruff(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_lines, "ruff", lambda: None)
    path = tmp_path / "train.py"
    path.write_text(CODE)
    said = CliRunner().invoke(app, ["migrate", str(path)]).output
    assert "2 changed lines are longer than the project's others: pip install ruff, and run this again" in said
    monkeypatch.undo()
    assert "pip install ruff" not in CliRunner().invoke(app, ["migrate", str(path)]).output


@pytest.mark.parametrize("level", ["  ", "    ", "   ", "\t"], ids=["two", "four", "three", "tab"])
@pytest.mark.parametrize("settings", ["", "[tool.ruff]\nline-length = 100\n"], ids=["none", "ruff"])
def test_only_the_statement_changes_whatever_the_indentation(tmp_path: Path, settings: str, level: str) -> None:
    (tmp_path / "pyproject.toml").write_text(settings)
    path = tmp_path / "train.py"
    path.write_text(CODE.replace("    ", level))
    new = migrated(path)
    kept = [line for line in path.read_text().splitlines() if "cuda" not in line]
    assert [line for line in new.splitlines() if line in kept] == kept


def test_a_comment_beside_stays_as_it_is(tmp_path: Path) -> None:
    beside = "        self.cuda = device # what the user has chosen, which this class stores and then looks at\n"
    (tmp_path / "pyproject.toml").write_text("[tool.ruff]\nline-length = 100\n")
    file = tmp_path / "x.py"
    file.write_text(
        "import torch\n"
        "class Model:\n"
        "    def __init__(self, device, save_memory):\n"
        + beside
        + "        self.device = 'cpu' if save_memory else (self.chosen if torch.cuda.is_available() else 'cpu')\n"
        + "        self.saves = save_memory # as it was\n"
    )
    new = migrated(file)
    assert beside in new
    assert new.endswith("        self.saves = save_memory # as it was\n")
    assert max(map(len, new.replace(beside, "").splitlines())) <= 100


def test_a_decorator_is_wrapped(tmp_path: Path) -> None:
    file = tmp_path / "x.py"
    file.write_text(
        "import torch\n\n\nclass Model:\n    size = 3\n\n"
        "    @torch.autocast('cuda', dtype=torch.float16, cache_enabled=False)\n"
        "    def forward(self, x): # as it was\n"
        "        return x\n"
    )
    new = migrated(file)
    assert "device_name()" in new
    assert max(map(len, new.splitlines())) <= 100
    assert "# as it was\n        return x\n" in new
