"""Finds the Python files and notebooks of a project, and those that git could not restore."""

from __future__ import annotations

import os
import shutil
import subprocess
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

from .site import MigrateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

__all__ = ["dirty_files", "discover"]

_SUFFIXES = (".py", ".ipynb")
_SKIPPED = {"__pycache__", "node_modules", "site-packages", "venv", "build", "dist", ".ipynb_checkpoints"}


def discover(paths: Sequence[Path], exclude: Sequence[str] = ()) -> list[Path]:
    """Return the Python files and notebooks in some paths, without excluded files.

    In folders, symbolic links and files that git ignores are skipped.

    Args:
        paths: files and folders.
        exclude: patterns of files and folders to skip, such as ``"third_party"`` or ``"*/test_*.py"``, which match the given
            or the absolute path.

    Raises:
        MigrateError: when a path does not exist, or is not a folder, a ``.py`` file or an ``.ipynb`` file.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            found.update(dict.fromkeys(_in_folder(path)))
        elif path.is_file() and path.suffix in _SUFFIXES:
            found[path] = None
        else:
            what = "it is neither a folder nor a .py or .ipynb file" if path.exists() else "it does not exist"
            msg = f"reading {path} failed: {what}. Fix: pass the folder of your sources, such as src/."
            raise MigrateError(msg)
    same = {path.resolve(): path for path in reversed(found)}  # one file may have several names
    patterns = [pattern.removeprefix("./").rstrip("/") for pattern in exclude]
    return [path for path in found if same[path.resolve()] is path and not _is_excluded(path, patterns)]


def _is_excluded(path: Path, patterns: Sequence[str]) -> bool:
    """Return whether a pattern matches a file, or a folder around it, by its given or its absolute path."""
    names = {str(each) for one in (path, path.resolve()) for each in (one, *one.parents)}
    return any(fnmatch(name, pattern) for pattern in patterns for name in names)


def _in_folder(folder: Path) -> Iterator[Path]:
    listed = _git(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed is not None:
        names = sorted(name for name in listed.split("\0") if name.endswith(_SUFFIXES))
        yield from (path for name in names if (path := folder / name).is_file() and not path.is_symlink())
        return
    for root, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED and not name.startswith("."))
        for name in sorted(names):
            path = Path(root) / name
            if name.endswith(_SUFFIXES) and path.is_file() and not path.is_symlink():
                yield path


def _git(folder: Path, *arguments: str) -> str | None:
    """Return the output of a git command; None if git is missing or fails, as it does outside of a repository."""
    git = shutil.which("git")
    if git is None:
        return None
    command = [git, "-C", str(folder), *arguments]
    done = subprocess.run(command, capture_output=True, check=False, encoding="utf-8", errors="surrogateescape")  # noqa: S603
    return done.stdout if done.returncode == 0 else None


def dirty_files(paths: Iterable[Path]) -> list[Path]:
    """Return the files in git repositories that git could not restore: what is not committed, ignored, or cannot be told.

    Files outside of a repository are not in it: there is no git that could restore them.
    """
    dirty: list[Path] = []
    by_folder: dict[Path, list[Path]] = {}
    for path in paths:
        by_folder.setdefault(path.resolve().parent, []).append(path)
    for folder, files in by_folder.items():
        is_inside = any((each / ".git").exists() for each in (folder, *folder.parents))
        if is_inside or _git(folder, "rev-parse", "--git-dir") is not None:
            committed = _committed(folder)
            dirty += [path for path in files if path.resolve().name not in committed]
    return dirty


def _committed(folder: Path) -> set[str]:
    """Return the names of the files in a folder that are as they are in git's last commit; none if git cannot tell."""
    tracked = _git(folder, "ls-files", "-v", "-z", "--", ".")
    said = _git(folder, "status", "--porcelain", "-z", "--untracked-files=no", "--no-renames", "--", ".")
    prefix = _git(folder, "rev-parse", "--show-prefix")
    if tracked is None or said is None or prefix is None:
        return set()
    changed = {entry[3:].removeprefix(prefix.rstrip("\n")) for entry in said.split("\0")}
    # "H" is an ordinary file; git does not look whether the others have changed, such as "h", which is assumed to be unchanged
    return {entry[2:] for entry in tracked.split("\0") if entry.startswith("H ")} - changed
