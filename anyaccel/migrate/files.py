"""Migrates many files in parallel, and writes them so that nothing is lost."""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import multiprocessing
import os
import pickle
import re
import shutil
import tempfile
import tokenize
import warnings
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from .answers import UNDECIDED
from .long_lines import wrapped
from .notebooks import migrate_notebook
from .other_files import NOTHING_SHARED
from .project import survey
from .site import MigrateError, SourceError
from .source import migrate_source

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from .answers import Decided
    from .other_files import Shared
    from .project import Project
    from .self_check import Passed
    from .site import Site
    from .source import Migration

    _Asked = tuple[Decided, dict[str, str]]
    """What is asked of a process: the user's answers, and the names of answers that another file tests, with the places."""
    _Work = Callable[[Path, _Asked], "FileResult"]

__all__ = ["FileResult", "migrate_files", "with_wrapped_lines", "write"]

_WORD = re.compile(r"\w+")
_SMALL = 40_000  # bytes in all; for so few, starting processes takes longer than the work


@dataclass(frozen=True)
class FileResult:
    """The result for one file.

    Attributes:
        path: the file.
        old: its text before.
        new: its text after.
        sites: its places that are tied to CUDA.
        errors: why the file, or cells of it, could not be read; a file that could not be read is unchanged.
        passed_over: the tokens that spell CUDA but belong to no site.
        shared: what the other files need to know of this one.
    """

    path: Path
    old: str = ""
    new: str = ""
    sites: tuple[Site, ...] = ()
    errors: tuple[SourceError, ...] = ()
    passed_over: tuple[Passed, ...] = ()
    shared: Shared = NOTHING_SHARED


def migrate_files(
    paths: Sequence[Path],
    target: str,
    advance: Callable[[], None] = lambda: None,
    decided: Callable[[Path], Decided] = lambda _: UNDECIDED,
    among: Sequence[Path] | None = None,
) -> list[FileResult]:
    """Migrate files on all cores and return the results, without writing anything.

    Args:
        paths: as :func:`discover` returns them.
        target: as for :func:`anyaccel.migrate.migrate_source`.
        advance: called once per file.
        decided: returns the user's answers for a file.
        among: all files of the run, if ``paths`` are only some of them.
    """
    known = paths if among is None else among
    modules = [path for path in known if path.suffix == ".py"]
    is_small = sum(map(_size, paths)) < _SMALL
    with contextlib.nullcontext() if is_small else _starting() as pool:
        project = survey((_module_name(path), text) for path in modules if (text := _text_or_none(path)) is not None)
        project.packages = _imported_as(modules)
        work = partial(_migrate_file, target=target, project=project)
        results = _results(pool, work, {path: (decided(path), {}) for path in paths}, advance)
        readers = _readers(results.values(), known)
        every = [*results.values(), *_results(pool, work, {path: (decided(path), {}) for path in readers}).values()]
        kept = _kept_elsewhere(results.values(), every)
        results |= _results(pool, work, {path: (decided(path), kept[path]) for path in paths if path in kept})
    return [results[path] for path in paths]


def _results(
    pool: ProcessPoolExecutor | None,
    work: _Work,
    asked: Mapping[Path, _Asked],
    advance: Callable[[], None] = lambda: None,
) -> dict[Path, FileResult]:
    """Return the results of some files, in the order of the files; the processes of the pool do the work if there is one."""
    results: dict[Path, FileResult] = {}
    for path, result in _in_processes(pool, work, asked) if pool is not None and asked else ():
        results[path] = result
        advance()
    for path, what in asked.items():
        if path not in results:
            results[path] = _apart(work, path, what) if pool is not None else work(path, what)
            advance()
    return {path: results[path] for path in asked}


def _readers(results: Collection[FileResult], known: Sequence[Path]) -> list[Path]:
    """Return the files of the run without a result that may read an answer of those that have one."""
    names = {name.removeprefix("not ") for result in results for name in result.shared.offers}
    others = set(known) - {result.path for result in results} if names else set()
    return [path for path in known if path in others and names & set(_WORD.findall(_text_or_none(path) or ""))]


def _kept_elsewhere(results: Collection[FileResult], every: Sequence[FileResult]) -> dict[Path, dict[str, str]]:
    """Return for each file the names of its answers that another one tests before code for CUDA only, and where."""
    places: dict[str, dict[Path, int]] = {}
    for other in every:
        for name, line in other.shared.keeps.items():
            places.setdefault(name, {})[other.path] = line
    found: dict[Path, dict[str, str]] = {}
    for result in results:
        for name in result.shared.offers & places.keys():
            others = (f"{path.name}:{line}" for path, line in places[name].items() if path != result.path)
            if (place := next(others, "")) != "":
                found.setdefault(result.path, {})[name] = place
    return found


def _in_processes(
    pool: ProcessPoolExecutor, work: _Work, asked: Mapping[Path, _Asked]
) -> Iterator[tuple[Path, FileResult]]:
    """Yield the results as they come, those of the largest files first; without the rest if one crashes its process.

    What all files need to know is in a file, which each process reads once: it would take too long with each of them.
    """
    by_size = sorted(asked.items(), key=lambda each: -_size(each[0]))
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(tempfile.NamedTemporaryFile(prefix="anyaccel-"))
            pickle.dump(work, file)
            file.flush()
        except OSError:  # no space, or no folder that may be written to
            yield from ((path, work(path, what)) for path, what in by_size)
            return
        try:
            begun = {pool.submit(_do, file.name, path, what): path for path, what in by_size}
            for done in as_completed(begun):
                yield begun[done], done.result()
        except BrokenProcessPool:
            pass  # the caller runs each remaining file in a process of its own


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0  # the work reports it


def _begin() -> None:
    """Prepare a process of the pool. A tree of a million objects has few cycles: looking for them took a sixth of the time."""
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


def _do(file: str, path: Path, asked: _Asked) -> FileResult:
    return _work_in(file)(path, asked)


@lru_cache(maxsize=1)
def _work_in(file: str) -> _Work:
    work: _Work = pickle.loads(Path(file).read_bytes())  # noqa: S301  # this program's own
    return work


def _starting() -> ProcessPoolExecutor:
    """Return a pool whose processes start while this one surveys the project."""
    pool = _pool()
    for _ in range(os.cpu_count() or 1):
        pool.submit(int)  # each first task starts a process
    return pool


def _pool(workers: int | None = None) -> ProcessPoolExecutor:
    """Return a pool of spawned processes: a fork would copy the locks that threads of this process hold."""
    return ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), initializer=_begin)


def _apart(work: _Work, path: Path, asked: _Asked) -> FileResult:
    with _pool(1) as pool:
        try:
            return pool.submit(work, path, asked).result()
        except BrokenProcessPool:
            return FileResult(
                path,
                errors=(
                    SourceError(
                        f"reading {path} failed: the process that read it ended. Fix: report this as a bug, with the file."
                    ),
                ),
            )


def with_wrapped_lines(results: Sequence[FileResult]) -> list[FileResult]:
    """Return the results with the lines wrapped that became too long; see :mod:`.long_lines`."""

    def one(result: FileResult) -> FileResult:
        is_python = result.path.suffix == ".py" and result.new != result.old
        return replace(result, new=wrapped(result.path, result.old, result.new)) if is_python else result

    with ThreadPoolExecutor() as threads:  # each waits for ruff
        return list(threads.map(one, results))


def _module_name(path: Path) -> str:
    return path.resolve().parent.name if path.stem == "__init__" else path.stem


def _imported_as(modules: Sequence[Path]) -> set[str]:
    """Return the names of the topmost packages, and of the modules outside of packages."""
    whole = [path.resolve() for path in modules]  # the parent of "." is "."
    folders = {path.parent for path in whole if path.stem == "__init__"}
    names = set()
    for path in whole:
        top = path.parent if path.parent in folders else path.with_suffix("")
        while top.parent in folders:
            top = top.parent
        names.add(top.name)
    return names


def _text_or_none(path: Path) -> str | None:
    try:
        return _read(path)[0]
    except SourceError:
        return None


def _read(path: Path) -> tuple[str, str]:
    """Return a file's text with its original line endings, and its encoding."""
    try:
        content = path.read_bytes()
        encoding = "utf-8" if path.suffix == ".ipynb" else tokenize.detect_encoding(io.BytesIO(content).readline)[0]
        return content.decode(encoding), encoding
    except (OSError, SyntaxError, UnicodeDecodeError, LookupError) as error:
        msg = (
            f"reading {path} failed: got {error}; expected text in UTF-8, or in the encoding that its first lines declare. "
            f"Fix: save it as UTF-8, or leave it out with exclude in pyproject.toml."
        )
        raise SourceError(msg) from error


def _migrate_file(path: Path, asked: _Asked, target: str, project: Project) -> FileResult:
    decided, kept = asked
    project = replace(project, kept_elsewhere=kept) if kept else project
    try:
        text, _ = _read(path)
        migrate = migrate_notebook if path.suffix == ".ipynb" else migrate_source
        done: Migration = migrate(text, target, project, decided)
        if path.suffix == ".py" and done.new != done.old:
            _require_valid(done)
    except SourceError as error:
        return FileResult(path, errors=(error,))
    except RecursionError:
        msg = f"reading {path} failed: got code that is nested too deeply for LibCST. Fix: split the expression."
        return FileResult(path, errors=(SourceError(msg),))
    except Exception as error:  # noqa: BLE001  # one bad file never stops the rest
        problem = f"{type(error).__name__}: {error}"
        msg = f"rewriting {path} failed: got {problem}; expected none. Fix: report this as a bug, with the file."
        return FileResult(path, errors=(SourceError(msg),))
    return FileResult(path, done.old, done.new, done.sites, done.unread, done.passed_over, done.shared)


def _require_valid(done: Migration) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(done.old, "old", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return  # written for another Python version: this one cannot check it
        compile(done.new, "new", "exec", dont_inherit=True)


def write(result: FileResult) -> None:
    """Replace a file's text atomically and keep its permissions.

    Raises:
        MigrateError: when the file has changed since it was read, or cannot be written; it is then unchanged.
    """
    staged: str | None = None
    path = Path(os.path.realpath(result.path))  # a symbolic link stays a link
    try:
        text, encoding = _read(path)
        if text != result.old:
            msg = f"writing {result.path} failed: the file has changed since it was read. Fix: run the command again."
            raise MigrateError(msg)
        if not path.stat().st_mode & 0o222:
            raise PermissionError(errno.EACCES, "the file is read-only")
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", delete=False) as file:
            staged = file.name
            file.write(result.new.encode(encoding))
        shutil.copymode(path, staged)
        with contextlib.suppress(PermissionError):  # only root may give files to another user
            os.chown(staged, path.stat().st_uid, path.stat().st_gid)
        os.replace(staged, path)
    except (OSError, SourceError, UnicodeEncodeError) as error:
        if staged is not None:
            Path(staged).unlink(missing_ok=True)
        msg = (
            f"writing {result.path} failed: got {error}; expected free space and permission to write. Fix: free some space, or "
            f"change the permissions; the file is unchanged."
        )
        raise MigrateError(msg) from error
