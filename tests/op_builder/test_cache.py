"""The cache directory: private, checked, and rejected when others can write to it."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from typing import TYPE_CHECKING

import pytest

from anyaccel.op_builder import CacheError
from anyaccel.op_builder.engine import cache as cache_module
from anyaccel.op_builder.engine import environment
from anyaccel.op_builder.engine.cache import Cache, open_cache
from anyaccel.op_builder.engine.clearing import clear
from anyaccel.op_builder.engine.directory import Directory
from anyaccel.op_builder.engine.errors import SettingError

if TYPE_CHECKING:
    from pathlib import Path

NAME = "0123456789abcdef" * 2


def test_is_made_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        root = Cache(tmp_path / "a" / "cache").root
    finally:
        os.umask(before)
    assert stat.S_IMODE(root.stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_writable_by_others_is_refused_with_the_fix(tmp_path: Path, mode: int) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(mode)
    with pytest.raises(CacheError, match=r"Fix: chmod 700 '.*cache', or set ANYACCEL_CACHE_DIR"):
        open_cache(tmp_path / "cache")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_owned_by_someone_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(mode=0o700)
    os.chown(tmp_path / "cache", 12345, -1)
    with pytest.raises(CacheError, match="owned by user 12345"):
        open_cache(tmp_path / "cache")


def test_parents_are_made_private_too(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        Cache(tmp_path / "a" / "b" / "cache")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "a" / "b").stat().st_mode) == 0o700


def test_what_a_cache_that_cannot_be_written_holds_is_still_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    built = tmp_path / "op.so"
    built.write_bytes(b"binary")
    Cache(tmp_path / "cache").publish("op", NAME, built, {})
    (tmp_path / "cache" / "toolchains.json").write_text("{}")

    def refuse(directory: Directory) -> None:
        if directory.path == tmp_path / "cache":
            raise OSError(30, "Read-only file system")

    monkeypatch.setattr(Directory, "require_writable", refuse)
    cache = open_cache(tmp_path / "cache")
    assert cache.root != tmp_path / "cache"
    entry = cache.find("op", NAME)
    assert entry is not None
    assert entry.binary.parent == tmp_path / "cache" / f"op-{NAME}"
    assert cache.find("op", "another") is None
    assert (cache.root / "toolchains.json").read_text() == "{}", "no tool is asked again"
    assert "Read-only file system" in caplog.text
    cache_module._opened.clear()


def test_publishes_the_metadata_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache(tmp_path / "cache")
    built = tmp_path / "op.so"
    built.write_bytes(b"binary")
    moved: list[str] = []
    real = os.replace

    def watch(source: str, target: str, **folders: int) -> None:
        assert cache.find("op", NAME) is None, "visible before it was complete"
        moved.append(os.path.basename(target))
        real(source, target, **folders)

    monkeypatch.setattr(os, "replace", watch)
    cache.publish("op", NAME, built, {"target": "any"})
    assert moved == [f"op-{hashlib.sha256(b'binary').hexdigest()[:8]}.so", "metadata.jsonl"]
    entry = cache.find("op", NAME)
    assert entry is not None
    assert entry.binary.read_bytes() == b"binary"
    assert entry.facts == {"target": "any"}


def test_a_source_given_as_text_is_kept_by_its_content_and_cleared(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    first, again, other = (cache.keep_source(text, ".cu") for text in ("one", "one", "two"))
    assert first == again != other
    assert first.read_text() == "one"
    first.write_text("damaged")
    assert cache.keep_source("one", ".cu").read_text() == "one"
    assert cache.keep_source("", ".cu").read_text() == ""
    clear(cache, time.time() + 1)
    assert first.is_file(), "what may just be read is not removed"
    for file in first.parent.iterdir():
        os.utime(file, (time.time() - 7200,) * 2)
    clear(cache, time.time() + 1)
    assert not list(first.parent.iterdir())


def test_a_folder_with_the_end_of_a_line_in_its_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compilers list what they read in lines; every build there was repeated, and then refused for another reason."""
    monkeypatch.setenv("ANYACCEL_CACHE_DIR", "/cache/two\nlines")
    with pytest.raises(SettingError, match=r"got '/cache/two\\nlines', with the end of a line"):
        environment.cache_dir()
