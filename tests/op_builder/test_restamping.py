"""Inputs with new times and unchanged content: they are read once, and then recognised by their new stamps."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from anyaccel.op_builder.engine import inputs as inputs_module
from anyaccel.op_builder.engine.cache import Cache
from anyaccel.op_builder.engine.inputs import Inputs, Lookups
from anyaccel.op_builder.engine.lock import build_lock

if TYPE_CHECKING:
    from pathlib import Path

    from anyaccel.op_builder.engine.entry import Entry

OP, FINGERPRINT = "planted", "0123456789abcdef"


@pytest.fixture
def published(tmp_path: Path) -> tuple[Cache, Path]:
    """A cache with an entry built with ``header.h``, which was found in the second of two folders."""
    for folder in ("first", "second", "cache"):
        (tmp_path / folder).mkdir(mode=0o700)
    header = tmp_path / "second" / "header.h"
    header.write_text("one")
    lookups = Lookups.of([str(tmp_path / "first"), str(tmp_path / "second")], {"header.h": 1}, {})
    cache = Cache(tmp_path / "cache")
    built = cache.staging(OP, FINGERPRINT) / "op.so"
    built.write_bytes(b"binary")
    cache.publish(OP, FINGERPRINT, built, {}, Inputs.of([str(header)], lookups))
    return cache, tmp_path


def _reads(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> tuple[Entry | None, int]:
    """Return the entry, and how often a file was read or looked for."""
    count = 0

    def counted(path: str) -> str:
        nonlocal count
        count += 1
        return digest(path)

    digest = inputs_module.digest_of
    with monkeypatch.context() as patch:
        patch.setattr(inputs_module, "digest_of", counted)
        found = Cache(cache.root).find(OP, FINGERPRINT)
    return found, count


def test_content_is_read_once_after_its_times_changed(
    published: tuple[Cache, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, root = published
    monkeypatch.setattr(inputs_module, "_SETTLED_NS", 0)
    assert _reads(cache, monkeypatch)[1] == 0
    os.utime(root / "second" / "header.h")
    (root / "first" / "other.h").write_text("of no importance")
    found, reads = _reads(cache, monkeypatch)
    assert found is not None
    assert reads == 1
    again, reads = _reads(cache, monkeypatch)
    assert again is not None
    assert reads == 0
    assert again.inputs.is_as_stamped(None)


def test_what_changes_after_that_is_seen(published: tuple[Cache, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    cache, root = published
    monkeypatch.setattr(inputs_module, "_SETTLED_NS", 0)
    os.utime(root / "second" / "header.h")
    assert cache.find(OP, FINGERPRINT) is not None
    (root / "first" / "header.h").write_text("found earlier")
    assert cache.find(OP, FINGERPRINT) is None
    (root / "first" / "header.h").unlink()
    assert cache.find(OP, FINGERPRINT) is not None
    (root / "second" / "header.h").write_text("two")
    assert cache.find(OP, FINGERPRINT) is None


def test_a_file_that_changes_while_it_is_read_is_read_again(
    published: tuple[Cache, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, root = published
    header = root / "second" / "header.h"
    monkeypatch.setattr(inputs_module, "_SETTLED_NS", 0)
    os.utime(header)
    digest = inputs_module.digest_of

    def and_then_changed(path: str) -> str:
        found = digest(path)
        header.write_text("two")
        return found

    with monkeypatch.context() as patch:
        patch.setattr(inputs_module, "digest_of", and_then_changed)
        assert cache.find(OP, FINGERPRINT) is not None
    assert cache.find(OP, FINGERPRINT) is None


def test_stamps_that_are_too_new_to_tell_the_next_change_are_not_kept(published: tuple[Cache, Path]) -> None:
    cache, root = published
    os.utime(root / "second" / "header.h")
    assert cache.find(OP, FINGERPRINT) is not None
    assert not cache.read(f"{OP}-{FINGERPRINT}").inputs.is_as_stamped(None)


def test_an_entry_that_somebody_builds_or_nobody_may_write_is_served_as_it_is(
    published: tuple[Cache, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cache, root = published
    monkeypatch.setattr(inputs_module, "_SETTLED_NS", 0)
    metadata = (cache.root / f"{OP}-{FINGERPRINT}" / "metadata.jsonl").read_bytes()
    os.utime(root / "second" / "header.h")
    with build_lock(cache.lock_file(OP, FINGERPRINT), OP):
        assert cache.find(OP, FINGERPRINT) is not None

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(cache.directory, "write", refuse)
        assert cache.find(OP, FINGERPRINT) is not None
    assert (cache.root / f"{OP}-{FINGERPRINT}" / "metadata.jsonl").read_bytes() == metadata
