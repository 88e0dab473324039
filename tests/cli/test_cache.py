"""``anyaccel cache`` on a cache with two ops, one of them damaged."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anyaccel.cli import cache as cache_command
from anyaccel.op_builder.engine.cache import Cache
from anyaccel.op_builder.engine.lock import build_lock

if TYPE_CHECKING:
    from collections.abc import Callable

ANYACCEL = Path(sys.executable).parent / "anyaccel"
HOUR_SECONDS = 3600
C, D, E = "c" * 32, "d" * 32, "e" * 32


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    cache = Cache(tmp_path / "cache")
    for op, fingerprint, age_hours in (("old_op", "a" * 32, 48), ("new_op", "b" * 32, 0)):
        built = tmp_path / f"{op}.so"
        built.write_bytes(b"binary of " + op.encode())
        entry = cache.publish(op, fingerprint, built, {"target": "here", "compiler_version": "c++ 1"})
        os.utime(entry.binary, (time.time() - age_hours * HOUR_SECONDS,) * 2)
        cache.lock_file(op, fingerprint).touch()
    return cache


@pytest.fixture
def run(cache: Cache, tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    environment = {**os.environ, "ANYACCEL_CACHE_DIR": str(cache.root), "COLUMNS": "200"}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [ANYACCEL, "cache", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)

    return run


def test_path_and_list(cache: Cache, run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    assert run("path").stdout.strip() == str(cache.root)
    listed = run("list").stdout
    for expected in ("old_op", "new_op", "c++ 1", "here"):
        assert expected in listed


def test_verify_finds_a_changed_and_a_missing_binary(
    cache: Cache, run: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    intact = run("verify")
    assert (intact.returncode, "2 intact, 0 damaged" in intact.stdout) == (0, True)
    new, old = cache.entries()
    old.binary.write_bytes(b"tampered")
    new.binary.unlink()
    damaged = run("verify")
    assert damaged.returncode == 1
    assert str(old.binary) in damaged.stdout
    assert "0 intact, 2 damaged" in damaged.stdout
    assert "missing" in run("list").stdout


def test_clear_by_age_and_all(cache: Cache, run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    assert "removed 0 of" in run("clear", "--older-than", "3d").stdout
    assert "removed 1 of" in run("clear", "--older-than", "24h").stdout
    assert [entry.op for entry in cache.entries()] == ["new_op"]
    assert "removed 1 of" in run("clear").stdout
    assert not list(cache.root.iterdir())


def test_clear_removes_what_another_machines_clock_dated_ahead(
    cache: Cache, run: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    for entry in cache.entries():
        os.utime(entry.binary, (time.time() + 48 * HOUR_SECONDS,) * 2)
    assert "removed 0 of" in run("clear", "--older-than", "1s").stdout
    assert "removed 2 of" in run("clear").stdout


@pytest.mark.skipif(os.getuid() != 0, reason="only what root filled is read by others")
def test_another_user_lists_and_verifies_roots_cache(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (cache.root, *cache.root.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    monkeypatch.setenv("ANYACCEL_CACHE_DIR", str(cache.root))
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    intact, damaged = cache_command._cache().verify()
    assert (len(intact), len(damaged)) == (2, 0)


def test_clear_removes_what_killed_and_failed_builders_left_but_not_what_is_being_built(
    cache: Cache, run: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    for name in (f"failed-{C}.log", f"failed-{C}.lock", f"failed-{C}.holder", f"busy-{D}.lock"):
        (cache.root / name).write_text("")
    for name in (f"staging-killed-{E}-aaaaaaaa", f"staging-busy-{D}-bbbbbbbb"):
        (cache.root / name).mkdir()
        (cache.root / name / "metadata.jsonl").write_text("{}")
    with build_lock(cache.lock_file("busy", D), "busy"):
        assert "removed 2 of" in run("clear").stdout
        assert {file.name for file in cache.root.iterdir()} == {
            f"staging-busy-{D}-bbbbbbbb",
            f"busy-{D}.lock",
            f"busy-{D}.holder",
        }
    run("clear")
    assert not list(cache.root.iterdir())


@pytest.mark.parametrize("duration", ["30", "d", "30 days", "-1d", "1y"])
def test_a_duration_that_is_none_is_refused(
    run: Callable[..., subprocess.CompletedProcess[str]], cache: Cache, duration: str
) -> None:
    finished = run("clear", f"--older-than={duration}")
    assert finished.returncode == 2
    assert "expected a number and a unit" in finished.stderr
    assert len(cache.entries()) == 2


def test_clear_leaves_what_is_not_anyaccels(tmp_path: Path) -> None:
    """Earlier versions removed folders named like an entry, logs, locks and everything in a folder named sources."""
    home = tmp_path / "home"
    mine = [
        "sources/thesis/a.tex",
        "deep-learning/a.py",
        "my_project-v2/b.py",
        "notes-2024.log",
        "staging-area/c",
        "a.lock",
    ]
    for name in mine:
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("mine")
    home.chmod(0o700)
    environment = {**os.environ, "ANYACCEL_CACHE_DIR": str(home)}
    for command in (["clear"], ["clear", "--older-than", "0s"], ["verify"], ["list"]):
        subprocess.run([ANYACCEL, "cache", *command], check=True, capture_output=True, env=environment)
    assert [name for name in mine if not (home / name).is_file()] == []


def test_any_age_and_any_year_is_taken(cache: Cache, run: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    assert run("clear", "--older-than", "99999999999d").returncode == 0
    os.utime(cache.entries()[0].binary, (10**12, 10**12))
    assert run("list").returncode == 0
