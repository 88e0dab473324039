"""Anyone who can change a parent of the cache decides what is loaded: such a cache is rejected, at every load."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from anyaccel.op_builder import CacheError
from anyaccel.op_builder.engine import cache as cache_module
from anyaccel.op_builder.engine import directory as directory_module
from anyaccel.op_builder.engine.cache import Cache, open_cache

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

OTHER_USER = 54321

NAME = "0123456789abcdef" * 2


@pytest.fixture(autouse=True)
def forget_caches() -> Iterator[None]:
    yield
    cache_module._opened.clear()


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    folder = tmp_path / "parent"
    folder.mkdir(mode=0o755)
    return folder


def _published(cache: Cache, folder: Path) -> None:
    built = folder / "op.so"
    built.write_bytes(b"binary")
    cache.publish("op", NAME, built, {})


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777])
def test_a_parent_that_others_may_write_to_is_refused_with_the_fix(
    parent: Path, mode: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory_module, "_is_open_to_own_group", lambda place, status: False)
    (parent / "home").mkdir(mode=0o700)
    parent.chmod(mode)
    with pytest.raises(CacheError, match=rf"got the parent .*/parent, .*mode {mode:o}.*Fix: chmod go-w '.*/parent'"):
        open_cache(parent / "home" / "cache")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_a_parent_of_another_user_is_refused(parent: Path) -> None:
    (parent / "home").mkdir(mode=0o700)
    os.chown(parent, OTHER_USER, -1)
    with pytest.raises(CacheError, match=rf"got the parent .*/parent, owned by user {OTHER_USER}"):
        open_cache(parent / "home" / "cache")


def test_a_sticky_parent_serves_as_others_cannot_replace_what_is_ours(parent: Path) -> None:
    parent.chmod(0o1777)
    assert open_cache(parent / "cache").root == parent / "cache"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_a_directory_that_another_user_made_in_a_sticky_parent_is_refused(parent: Path) -> None:
    parent.chmod(0o1777)
    (parent / "theirs").mkdir(mode=0o755)
    os.chown(parent / "theirs", OTHER_USER, -1)
    with pytest.raises(CacheError, match=rf"got the parent .*/theirs, owned by user {OTHER_USER}"):
        open_cache(parent / "theirs" / "cache")


def test_a_parent_for_the_users_own_group_serves_and_the_cache_itself_does_not(
    parent: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many systems give every user a group, and a umask that makes files group-writable."""
    monkeypatch.setattr(directory_module, "_is_open_to_own_group", lambda place, status: True)
    parent.chmod(0o775)
    assert open_cache(parent / "cache").root == parent / "cache"
    (parent / "other").mkdir()
    (parent / "other").chmod(0o770)
    with pytest.raises(CacheError, match="Fix: chmod 700"):
        open_cache(parent / "other")


def test_a_parent_that_is_opened_to_others_later_is_refused_at_the_next_load(parent: Path) -> None:
    cache = open_cache(parent / "cache")
    _published(cache, parent)
    assert cache.find("op", NAME) is not None
    parent.chmod(0o777)
    with pytest.raises(CacheError, match="got the parent"):
        cache.find("op", NAME)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_a_cache_that_another_user_put_in_the_place_of_ours_is_refused(parent: Path) -> None:
    """Earlier versions checked the owner once, and loaded what was swapped in later."""
    cache = open_cache(parent / "cache")
    _published(cache, parent)
    (parent / "cache").rename(parent / "ours")
    (parent / "cache").mkdir()
    _published(Cache(parent / "cache"), parent)
    os.chown(parent / "cache", OTHER_USER, -1)
    with pytest.raises(CacheError, match=rf"owned by user {OTHER_USER}"):
        cache.find("op", NAME)


def test_a_link_on_the_way_is_followed_and_what_it_leads_to_is_checked(parent: Path) -> None:
    (parent / "real").mkdir(mode=0o700)
    (parent / "link").symlink_to(parent / "real")
    cache = open_cache(parent / "link" / "cache")
    _published(cache, parent)
    assert cache.find("op", NAME) is not None
    (parent / "real" / "cache").chmod(0o777)
    with pytest.raises(CacheError, match="nobody else may write to"):
        cache.find("op", NAME)


def test_a_cache_that_was_removed_is_made_again(parent: Path) -> None:
    cache = open_cache(parent / "cache")
    _published(cache, parent)
    subprocess.run(["rm", "-rf", parent / "cache"], check=True)
    assert cache.find("op", NAME) is None
    _published(cache, parent)
    assert cache.find("op", NAME) is not None


def test_the_users_own_cache_that_is_not_safe_is_replaced_and_said_once(
    parent: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is the default, so the program continues; ANYACCEL_CACHE_DIR is explicit, and is rejected."""
    parent.chmod(0o777)
    monkeypatch.setattr(Cache, "default_root", staticmethod(lambda: parent / "cache"))
    for _ in range(2):
        assert not open_cache().root.is_relative_to(parent)
    assert caplog.text.count("got the parent") == 1


SLOW = """
import sys, time
from pathlib import Path
from anyaccel.op_builder import CPUOpBuilder
class Builder(CPUOpBuilder):
    NAME, STABLE_ABI, SOURCES = "slow", True, (sys.argv[1],)
print(Builder().build().binary)
"""


def test_clearing_leaves_what_is_being_built(tmp_path: Path) -> None:
    """Earlier versions removed the held lock and the staging folder, and the build failed."""
    source = tmp_path / "slow.cpp"
    source.write_text('extern "C" int slow() { return 1; }\n')
    (tmp_path / "bin").mkdir()
    compiler = tmp_path / "bin" / "c++"
    go = tmp_path / "go"
    wait = f"while [ ! -f '{go}' ]; do sleep 0.05; done"
    compiler.write_text(
        f'#!/bin/sh\ncase "$*" in *"-o 0.o"*) touch \'{tmp_path}/begun\'; {wait} ;; esac\nexec c++ "$@"\n'
    )
    compiler.chmod(0o755)
    cache = tmp_path / "cache"
    environment = {**os.environ, "ANYACCEL_CACHE_DIR": str(cache), "CXX": str(compiler)}
    with subprocess.Popen(
        [sys.executable, "-c", SLOW, source], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as builder:
        while not (tmp_path / "begun").exists():
            assert builder.poll() is None
            time.sleep(0.05)
        for _ in range(3):
            cleared = subprocess.run(
                [Path(sys.executable).parent / "anyaccel", "cache", "clear"],
                env=environment, capture_output=True, text=True, check=True,
            )  # fmt: skip
            assert "removed 0 of" in cleared.stdout
        go.touch()
        binary, errors = builder.communicate()
    assert builder.returncode == 0, errors
    assert Path(binary.strip()).is_file()


def test_a_load_that_meets_clearing_calls_nothing_damaged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = open_cache(tmp_path / "cache")
    _published(cache, tmp_path)
    real: Callable[..., bool] = Cache.is_intact

    def cleared_meanwhile(self: Cache, entry: object) -> bool:
        subprocess.run(["rm", "-rf", tmp_path / "cache" / f"op-{NAME}"], check=True)
        return real(self, entry)

    monkeypatch.setattr(Cache, "is_intact", cleared_meanwhile)
    assert cache.find("op", NAME) is None
    assert "differs from its metadata" not in caplog.text


@pytest.mark.skipif(os.getuid() != 0, reason="only root owns /dev/null")
def test_what_is_no_directory_is_not_to_be_made_private() -> None:
    with pytest.raises(CacheError, match="got /dev/null") as refused:
        open_cache(Path("/dev/null"))
    assert "chmod" not in str(refused.value)
