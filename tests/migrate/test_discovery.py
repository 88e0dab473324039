"""Which files of a project are migrated, and which of them git could not restore."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from anyaccel.migrate.discovery import dirty_files, discover
from anyaccel.migrate.settings import settings_of
from anyaccel.migrate.site import MigrateError


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def git(*arguments: str) -> None:
    identity = ["-c", "user.name=n", "-c", "user.email=e@e"]
    subprocess.run(["git", *identity, *arguments], check=True, capture_output=True)


def test_a_folder_means_its_python_files_and_notebooks(tmp_path: Path) -> None:
    for name in (
        "a.py",
        "b.txt",
        "c.ipynb",
        "sub/d.py",
        "__pycache__/e.py",
        ".hidden/f.py",
        "venv/g.py",
        "with space/h.py",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "link.py").symlink_to(tmp_path / "a.py")
    found = discover([Path()], exclude=["sub/*"])
    assert [str(path) for path in found] == ["a.py", "c.ipynb", "with space/h.py"]


@pytest.mark.parametrize("pattern", ["sub", "sub/", "./sub", "sub/*", "./sub/*.py", "s?b", "sub/deep"])
def test_a_pattern_of_a_folder_excludes_what_is_in_it(pattern: str, tmp_path: Path) -> None:
    for name in ("a.py", "subway.py", "sub/deep/b.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert [str(path) for path in discover([Path()], exclude=[pattern])] == ["a.py", "subway.py"]


def test_what_git_ignores_is_left(tmp_path: Path) -> None:
    git("init", "-q")
    (tmp_path / ".gitignore").write_text("copies/\n")
    for name in ("a.py", "copies/a.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert [str(path) for path in discover([Path()])] == ["a.py"]


@pytest.mark.parametrize("pattern", ["kernels/*", "kernels", "./kernels/"])
def test_what_the_project_excludes_is_left(pattern: str, tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(f'[tool.anyaccel]\nexclude = ["{pattern}"]\n')
    for name in ("a.py", "kernels/b.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert [str(path) for path in discover([Path()], settings_of(Path.cwd()).exclude)] == ["a.py"]


@pytest.mark.parametrize("name", ["missing", "other.txt"])
def test_a_path_that_is_nothing_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "other.txt").write_text("")
    with pytest.raises(MigrateError, match=f"reading {name} failed"):
        discover([Path(name)])


def test_files_that_git_would_not_bring_back(tmp_path: Path) -> None:
    git("init", "-q")
    paths = [Path(name) for name in ("clean.py", "changed.py", "new one.py")]
    for path in paths[:2]:
        path.write_text("")
    git("add", ".")
    git("commit", "-qm", "x")
    paths[1].write_text("1")
    paths[2].write_text("2")
    assert dirty_files(paths) == paths[1:]


@pytest.mark.parametrize(
    "how", ["another's repository", "a broken GIT_DIR", "ignored", "assumed to be unchanged", "no git"]
)
def test_where_git_cannot_tell_a_file_is_not_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    git("init", "-q")
    Path("a.py").write_text("")
    Path(".gitignore").write_text("a.py\n" if how == "ignored" else "")
    git("add", ".")
    git("commit", "-qm", "x")
    assert (dirty_files([Path("a.py")]) == []) == (how != "ignored")
    if how == "another's repository":
        monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")  # git's own, for its tests
    elif how == "a broken GIT_DIR":
        monkeypatch.setenv("GIT_DIR", str(tmp_path / "missing"))
    elif how == "assumed to be unchanged":
        git("update-index", "--assume-unchanged", "a.py")
    elif how == "no git":
        monkeypatch.setenv("PATH", str(tmp_path))
    Path("a.py").write_text("1")
    assert dirty_files([Path("a.py")]) == [Path("a.py")]


def test_a_file_in_a_folder_of_a_repository_is_found(tmp_path: Path) -> None:
    git("init", "-q")
    for name in ("sub/a b.py", "sub/\u00e9.py", "sub/changed.py"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("")
    git("add", ".")
    git("commit", "-qm", "x")
    Path("sub/changed.py").write_text("1")
    assert dirty_files(sorted(Path("sub").iterdir())) == [Path("sub/changed.py")]


def test_a_file_by_several_names_is_one(tmp_path: Path) -> None:
    Path("sub").mkdir()
    Path("a.py").write_text("")
    Path("link.py").symlink_to("a.py")
    assert discover([Path("a.py"), Path("sub/../a.py"), Path("link.py")]) == [Path("a.py")]


def test_only_files_are_found(tmp_path: Path) -> None:
    os.mkfifo("pipe.py")
    assert discover([Path()]) == []


def test_an_excluded_folder_may_be_below_one_with_brackets(tmp_path: Path) -> None:
    project = tmp_path / "project[1]"
    (project / "third_party").mkdir(parents=True)
    (project / "pyproject.toml").write_text('[tool.anyaccel]\nexclude = ["third_party/*"]\n')
    (project / "third_party" / "a.py").write_text("")
    assert discover([project], settings_of(project).exclude) == []


def test_without_a_repository_nothing_is_dirty(tmp_path: Path) -> None:
    Path("a.py").write_text("")
    assert dirty_files([Path("a.py")]) == []
