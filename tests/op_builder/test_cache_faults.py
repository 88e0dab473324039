"""Files in the cache are damaged or replaced at random; nothing outside is touched, and nothing ends in a traceback."""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from anyaccel.cli.cache import app
from anyaccel.op_builder.engine import cache as cache_module
from anyaccel.op_builder.engine.build import ensure_built
from anyaccel.op_builder.engine.cache import Cache, open_cache
from anyaccel.op_builder.engine.clearing import clear
from anyaccel.op_builder.engine.inputs import Inputs
from anyaccel.op_builder.engine.lock import build_lock
from anyaccel.op_builder.engine.toolchains.probe import Memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from anyaccel.op_builder.engine.build import Workplace

ROUNDS = 300
WEIRD: list[Any] = [
    "", ".", "..", "../../outside/precious.so", "/etc/passwd", "a\0b", "[bold]x[/nothing]", "\ud800", "metadata.jsonl",
    0, -1, 10**30, 1.5, True, None, [], {}, ["x"], {"x": []}, "x" * 5000,
]  # fmt: skip


@dataclass(frozen=True)
class WrittenRecipe:
    """A recipe that compiles nothing: the whole life cycle of a build, without a compiler."""

    op: str
    header: str
    output: str = "op.so"
    note: str = ""

    def content(self) -> bytes:
        return f"binary of {self.op}".encode()

    def fingerprint(self) -> str:
        return self.op.encode().hex().zfill(32)

    def key(self) -> str:
        return self.fingerprint()

    def places(self) -> tuple[str, ...]:
        return ("/src/op.cpp",)

    def covered(self) -> list[str]:
        return []

    def described(self) -> dict[str, Any]:
        return {"target": "here", "compiler_version": "c++ 1", "key": self.key()}

    def produce(self, workplace: Workplace) -> dict[str, Any]:
        (workplace.folder / self.output).write_bytes(self.content())
        return {"symbols": {"a": "b"}}

    def inputs(self, workplace: Workplace) -> Inputs:
        return Inputs.of([self.header])

    def verify(self, built: Path) -> None:
        assert built.read_bytes() == self.content()


@dataclass
class Place:
    """A cache, with files outside that must not be touched."""

    folder: Path
    recipes: list[WrittenRecipe]

    @property
    def root(self) -> Path:
        return self.folder / "cache"

    @property
    def outside(self) -> Path:
        return self.folder / "outside"

    def build(self) -> list[Path]:
        """Load every op, which builds missing or damaged ones."""
        cache = open_cache(self.root)
        entries = [ensure_built(recipe, cache) for recipe in self.recipes]
        for entry, recipe in zip(entries, self.recipes, strict=True):
            assert entry.binary.parent == self.root / f"{recipe.op}-{recipe.fingerprint()}"
            assert stat.S_ISREG(entry.binary.lstat().st_mode)
            assert entry.binary.read_bytes() == recipe.content()
        cache.keep_source("a kernel", ".cu")
        Memory(self.root).recall([str(self.outside / "tool")], lambda: "tool 1")
        return [entry.binary for entry in entries]

    def state_outside(self) -> list[tuple[str, int, int, int, bytes]]:
        found = []
        for file in sorted(self.outside.rglob("*")):
            status = file.lstat()
            content = file.read_bytes() if file.is_file() else b""
            found.append((str(file), status.st_mode, status.st_mtime_ns, status.st_ino, content))
        return found


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    outside = tmp_path / "outside"
    (outside / "folder").mkdir(parents=True)
    for name in ("precious.so", "folder/deep.txt"):
        (outside / name).write_text("precious")
    (outside / "tool").write_text("#!/bin/sh\necho tool 1\n")
    (outside / "tool").chmod(0o755)
    monkeypatch.setenv("ANYACCEL_CACHE_DIR", str(tmp_path / "cache"))
    yield Place(tmp_path, [WrittenRecipe(name, str(outside / "precious.so")) for name in ("one", "two", "three")])
    cache_module._opened.clear()


def _change_json(file: Path, choice: random.Random) -> None:
    """Replace one value, or the whole, by something unusual."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return
    holders = [({"": document}, "")]
    for holder, key in holders:
        value = holder[key]
        if isinstance(value, (dict, list)):
            holders += [(value, inner) for inner in (value if isinstance(value, dict) else range(len(value)))]
    holder, key = choice.choice(holders)
    action = choice.randrange(3)
    if action == 0 and holder is not holders[0][0] and isinstance(holder, dict):
        del holder[key]
    elif action == 1 and isinstance(holder, dict) and isinstance(key, str):
        holder[choice.choice(["extra", "binary", "\0"])] = choice.choice(WEIRD)
    else:
        holder[key] = choice.choice(WEIRD)
    file.write_text(json.dumps(holders[0][0].get("", document)), encoding="utf-8")


def _nest(file: Path, choice: random.Random) -> None:
    depth = choice.choice([10, 100_000])
    file.write_text('{"a":' * depth + "1" + "}" * depth)


def _make_room(file: Path) -> None:
    if file.is_dir() and not file.is_symlink():
        shutil.rmtree(file)
    else:
        file.unlink(missing_ok=True)


def _flip(file: Path, choice: random.Random) -> None:
    content = bytearray(file.read_bytes())
    for _ in range(choice.randint(1, 8)):
        if content:
            content[choice.randrange(len(content))] = choice.randrange(256)
    file.write_bytes(content)


def _swap(file: Path, choice: random.Random) -> None:
    others = [other for other in file.parents[0].parent.rglob(file.name) if other != file and other.is_file()]
    if others:
        other = choice.choice(others)
        first, second = file.read_bytes(), other.read_bytes()
        file.write_bytes(second)
        other.write_bytes(first)


def _replacement(make: Callable[[Path, Path], None]) -> Callable[[Path, random.Random], None]:
    def replace(file: Path, choice: random.Random) -> None:
        outside = next(parent for parent in file.parents if parent.name == "cache").parent / "outside"
        _make_room(file)
        make(file, outside)

    return replace


def _folder_with_content(file: Path, outside: Path) -> None:
    (file / "inner").mkdir(parents=True)
    (file / "inner" / "link").symlink_to(outside)


ON_FILES: dict[str, Callable[[Path, random.Random], None]] = {
    "bytes flipped": _flip,
    "truncated": lambda file, choice: os.truncate(file, choice.randrange(file.stat().st_size + 1)),
    "longer": lambda file, choice: file.write_bytes(file.read_bytes() + choice.randbytes(100)),
    "swapped": _swap,
    "changed as JSON": _change_json,
    "nested": _nest,
    "empty": lambda file, choice: file.write_bytes(b""),
    "open to all": lambda file, choice: file.chmod(0o666),
}
ON_ANYTHING: dict[str, Callable[[Path, random.Random], None]] = {
    "gone": lambda file, choice: _make_room(file),
    "a folder": _replacement(_folder_with_content),
    "a link to a file": _replacement(lambda file, outside: file.symlink_to(outside / "precious.so")),
    "a link to a folder": _replacement(lambda file, outside: file.symlink_to(outside)),
    "a link to nothing": _replacement(lambda file, outside: file.symlink_to(outside / "absent")),
    "a hard link": _replacement(lambda file, outside: os.link(outside / "precious.so", file)),
    "a fifo": _replacement(lambda file, outside: os.mkfifo(file)),
    "a device": _replacement(
        lambda file, outside: os.mknod(file, stat.S_IFCHR | 0o600, os.makedev(1, 5)) if os.getuid() == 0 else None
    ),
    "without rights": lambda file, choice: file.chmod(0),
}


@pytest.mark.parametrize("seed", range(4))
def test_a_damaged_cache_is_built_again_and_touches_nothing_outside(place: Place, seed: int) -> None:
    choice = random.Random(seed)  # noqa: S311
    before = place.state_outside()
    runner = CliRunner()
    for _ in range(ROUNDS // 4):
        place.build()
        for leftover in (f"gone-{'a' * 32}.log", f"one-{'b' * 32}.holder", f"staging-two-{'c' * 32}-abcdefgh"):
            (place.root / leftover).mkdir(exist_ok=True) if "staging" in leftover else (place.root / leftover).touch()
        everything = [file for file in place.root.rglob("*") if not file.is_symlink()]
        file = choice.choice(everything)
        kinds = [*ON_ANYTHING, *(ON_FILES if file.is_file() else ())]
        kind = choice.choice(kinds)
        (ON_FILES | ON_ANYTHING)[kind](file, choice)
        what = f"{file.relative_to(place.root)}: {kind}"
        for command in choice.sample(["load", "list", "verify", "clear"], 4):
            if command == "load":
                place.build()
            else:
                result = runner.invoke(app, [command])
                assert result.exception is None or isinstance(result.exception, SystemExit), (what, result.exception)
                assert result.exit_code in ((0, 1) if command == "verify" else (0,)), (what, result.output)
            assert place.state_outside() == before, (what, command)


def test_a_lock_file_is_no_hard_link(place: Place) -> None:
    """With Python 3.10, filelock empties what it locks."""
    recipe = place.recipes[0]
    place.build()
    lock = open_cache(place.root).lock_file(recipe.op, recipe.fingerprint())
    lock.unlink()
    os.link(place.outside / "precious.so", lock)
    before = place.state_outside()
    with build_lock(open_cache(place.root).lock_file(recipe.op, recipe.fingerprint()), recipe.op):
        assert not lock.samefile(place.outside / "precious.so")
    assert place.state_outside() == before


@pytest.mark.parametrize("binary", ["../../outside/precious.so", "", ".", "/etc/passwd", "a/b", "x\0y", None, 5])
def test_metadata_that_name_another_place_are_not_followed(place: Place, binary: Any) -> None:
    """Earlier versions removed the parent of the place that they named, with all its content."""
    (first, *_) = place.build()
    metadata = first.with_name("metadata.jsonl")
    described = json.loads(metadata.read_text().splitlines()[0])
    metadata.write_text(json.dumps({**described, "binary": binary}))
    before = place.state_outside()
    assert open_cache(place.root).find("one", place.recipes[0].fingerprint()) is None
    assert clear(open_cache(place.root), sys.maxsize) == 3
    assert place.state_outside() == before
    assert place.root.is_dir()
    place.build()


def test_a_missing_binary_with_an_empty_digest_is_not_intact(place: Place) -> None:
    (first, *_) = place.build()
    metadata = first.with_name("metadata.jsonl")
    metadata.write_text(json.dumps({**json.loads(metadata.read_text().splitlines()[0]), "sha256": ""}))
    first.unlink()
    assert CliRunner().invoke(app, ["verify"]).exit_code == 1
    place.build()


def test_an_entry_moved_to_anothers_name_is_not_served(place: Place) -> None:
    place.build()
    one, two = (place.root / f"{recipe.op}-{recipe.fingerprint()}" for recipe in place.recipes[:2])
    shutil.rmtree(one)
    shutil.copytree(two, one)
    place.build()


@pytest.mark.parametrize("opened", ["files", "folders"])
def test_what_others_may_have_changed_is_built_again(
    place: Place, opened: str, caplog: pytest.LogCaptureFixture
) -> None:
    place.build()
    for path in place.root.rglob("*"):
        if path.is_dir() == (opened == "folders"):
            path.chmod(0o775 if path.is_dir() else 0o666)
    with caplog.at_level(logging.WARNING):
        place.build()
    assert all(f"'{recipe.op}' is unreadable; building it again" in caplog.text for recipe in place.recipes)
    for path in place.root.rglob("*"):
        if not path.name.endswith((".lock", ".holder")):
            assert not path.lstat().st_mode & 0o022, path


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives a file to another user")
def test_a_binary_of_another_user_is_not_loaded(place: Place) -> None:
    (binary, *_) = place.build()
    os.chown(binary, 12345, 12345)
    assert CliRunner().invoke(app, ["verify"]).exit_code == 1
    place.build()
    assert binary.lstat().st_uid == 0


def test_what_is_written_is_private_whatever_the_umask(place: Place) -> None:
    before = os.umask(0)
    try:
        place.build()
    finally:
        os.umask(before)
    for file in place.root.rglob("*"):
        assert not file.lstat().st_mode & 0o077, file


@pytest.mark.parametrize("umask", [0o177, 0o277, 0o777])
def test_folders_are_the_users_own_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        folder = Cache(tmp_path / "one" / "cache").staging("op", "0" * 32)
    finally:
        os.umask(before)
    assert [place.stat().st_mode & 0o777 for place in (folder, *folder.parents[:2])] == [0o700] * 3


def test_the_log_of_a_failure_is_private(place: Place, make_builder: Callable[..., Any]) -> None:
    builder = make_builder(source="this is no C++")
    before = os.umask(0)
    try:
        with pytest.raises(Exception, match="building the op 'answer' failed"):
            builder.build()
    finally:
        os.umask(before)
    assert Cache(place.root).root.joinpath(f"answer-{builder.recipe.fingerprint()}.log").stat().st_mode & 0o777 == 0o600


def test_the_log_of_a_failure_is_not_written_through_a_link(place: Place, make_builder: Callable[..., Any]) -> None:
    builder = make_builder(source="this is no C++")
    cache = Cache(place.root)
    log = cache.log_file(builder.name, builder.recipe.fingerprint())
    log.symlink_to(place.outside / "precious.so")
    before = place.state_outside()
    with pytest.raises(Exception, match="building the op 'answer' failed"):
        builder.build()
    assert place.state_outside() == before
    assert "this is no C++" in log.read_text()
