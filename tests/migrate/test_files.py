"""Files: which are found, what git allows, and what is written; no error loses a file."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from anyaccel.migrate import files
from anyaccel.migrate.files import dirty_files, discover, migrate_files, write
from anyaccel.migrate.settings import settings_of
from anyaccel.migrate.site import MigrateError

BEFORE = "import torch\nx = torch.ones(1).cuda()\n"
AFTER = "import torch\nfrom anyaccel import get_accelerator\nx = torch.ones(1).to(get_accelerator().device_name())\n"


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


def test_what_git_ignores_is_left(tmp_path: Path) -> None:
    git("init", "-q")
    (tmp_path / ".gitignore").write_text("copies/\n")
    for name in ("a.py", "copies/a.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    assert [str(path) for path in discover([Path()])] == ["a.py"]


def test_what_the_project_excludes_is_left(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.anyaccel]\nexclude = ["kernels/*"]\n')
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


def test_without_a_repository_nothing_is_dirty(tmp_path: Path) -> None:
    Path("a.py").write_text("")
    assert dirty_files([Path("a.py")]) == []


def test_one_bad_file_stops_no_other(tmp_path: Path) -> None:
    Path("bad.py").write_text("import torch\nx = (cuda\n")
    Path("binary.py").write_bytes(b"\xff\xfe\x00cuda")
    paths = [Path("bad.py"), Path("binary.py")]
    for number in range(6):
        paths.append(Path(f"good{number}.py"))
        paths[-1].write_text(BEFORE)
    advanced: list[int] = []
    results = migrate_files(paths, "anyaccel", lambda: advanced.append(1))
    assert [result.path for result in results] == paths
    assert len(advanced) == len(paths)
    assert [bool(result.errors) for result in results] == [True, True] + [False] * 6
    assert {result.new for result in results[2:]} == {AFTER}


def test_a_class_of_another_file_is_known(tmp_path: Path) -> None:
    Path("data.py").write_text("class Batch:\n    def cuda(self):\n        return self\n")
    Path("train.py").write_text("def step(batch):\n    return batch.cuda()\n")
    results = migrate_files([Path("data.py"), Path("train.py")], "anyaccel")
    assert "Batch defines its own cuda()" in results[1].sites[0].reason


def test_a_class_that_derives_from_it_is_known(tmp_path: Path) -> None:
    Path("data.py").write_text("class Base:\n    def pin_memory(self):\n        return self\n")
    Path("rays.py").write_text("from data import Base\nclass RayBundle(Base):\n    pass\n")
    Path("train.py").write_text("import torch\nray_bundle = ray_bundle.pin_memory()\nx = x.pin_memory()\n")
    sites = migrate_files([Path("data.py"), Path("rays.py"), Path("train.py")], "anyaccel")[2].sites
    assert [site.outcome.value for site in sites] == ["reported", "rewritten"]


def test_a_file_that_ends_its_process_ends_only_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [Path(f"file{number}.py") for number in range(6)]
    for path in paths:
        path.write_text(BEFORE)
    monkeypatch.setattr(files, "_migrate_file", _ends_on_file3)
    results = migrate_files(paths, "anyaccel")
    assert [bool(result.errors) for result in results] == [number == 3 for number in range(6)]


_real = files._migrate_file


def _ends_on_file3(path: Path, decided: object, **options: object) -> object:
    if path.name == "file3.py":
        os._exit(9)
    return _real(path, decided, **options)  # type: ignore[arg-type]


def test_encoding_permissions_and_line_endings_stay(tmp_path: Path) -> None:
    path = Path("latin.py")
    before = "# -*- coding: latin-1 -*-\r\nimport torch\r\nx = torch.ones(1).cuda()  # größer\r\n"
    path.write_bytes(before.encode("latin-1"))
    path.chmod(0o755)
    (result,) = migrate_files([path], "anyaccel")
    write(result)
    content = path.read_bytes()
    assert "größer\r\n".encode("latin-1") in content
    assert content.count(b"\r\n") == content.count(b"\n") == 4
    assert path.stat().st_mode & 0o777 == 0o755


def test_a_byte_order_mark_stays(tmp_path: Path) -> None:
    path = Path("marked.py")
    path.write_bytes(b"\xef\xbb\xbf" + BEFORE.encode())
    (result,) = migrate_files([path], "anyaccel")
    write(result)
    assert path.read_bytes() == b"\xef\xbb\xbf" + AFTER.encode()


def test_a_link_stays_one_and_its_file_is_written(tmp_path: Path) -> None:
    Path("a.py").write_text(BEFORE)
    Path("link.py").symlink_to("a.py")
    (result,) = migrate_files([Path("link.py")], "anyaccel")
    write(result)
    assert Path("link.py").is_symlink()
    assert Path("a.py").read_text() == AFTER


def test_a_read_only_file_is_not_written(tmp_path: Path) -> None:
    path = Path("a.py")
    path.write_text(BEFORE)
    path.chmod(0o444)
    (result,) = migrate_files([path], "anyaccel")
    with pytest.raises(MigrateError, match="the file is read-only"):
        write(result)
    assert path.read_text() == BEFORE


def test_a_file_that_changed_meanwhile_is_not_written(tmp_path: Path) -> None:
    path = Path("a.py")
    path.write_text(BEFORE)
    (result,) = migrate_files([path], "anyaccel")
    path.write_text("# somebody's edit\n")
    with pytest.raises(MigrateError, match="the file has changed since it was read"):
        write(result)
    assert path.read_text() == "# somebody's edit\n"


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path("a.py")
    path.write_text(BEFORE)
    (result,) = migrate_files([path], "anyaccel")

    def refuse(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "replace", refuse)
    with pytest.raises(MigrateError, match="No space left on device"):
        write(result)
    assert path.read_text() == BEFORE
    assert os.listdir() == ["a.py"]


MOVES = "def to_device(x, device=None):\n    return x\n"
CALLS = "from {} import to_device\nfor each in x:\n    to_device(each, 'cuda' if n else 'cpu')\n"


@pytest.mark.parametrize(
    ("module", "other", "is_known"),
    [("moves", "", True), ("moves", "def to_device(x, kernel):\n    return x\n", True), ("elsewhere", "", True),
     ("elsewhere", "def to_device(x, kernel):\n    return x\n", False), ("moves", "def to_device(x):\n    pass\n", True)],
)  # fmt: skip
def test_a_function_of_another_file_tells_what_it_takes(
    module: str, other: str, is_known: bool, tmp_path: Path
) -> None:
    texts = {"moves.py": MOVES, "other.py": other, "calls.py": CALLS.format(module)}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (done,) = [each for each in migrate_files([tmp_path / name for name in texts], "anyaccel") if each.sites]
    assert done.path.name == "calls.py"
    assert ("get_accelerator().device_name() if n" in done.new) is is_known


def test_a_function_with_other_names_before_its_device_is_another(tmp_path: Path) -> None:
    (tmp_path / "moves.py").write_text("class Model:\n    def __init__(self, kind, device):\n        pass\n")
    (tmp_path / "calls.py").write_text("a, b, c = Model('cuda', 1), Model(1, 'cuda'), Model(*a, 'cuda')\n")
    done = migrate_files([tmp_path / "moves.py", tmp_path / "calls.py"], "anyaccel")[1]
    assert done.new.endswith("Model('cuda', 1), Model(1, get_accelerator().device_name()), Model(*a, 'cuda')\n")


def test_the_current_folder_may_be_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "__init__.py").touch()
    (tmp_path / "a.py").write_text("import torch\nx = torch.ones(2).cuda()\n")
    monkeypatch.chdir(tmp_path)
    results = migrate_files(discover([Path()]), "anyaccel")
    assert [result.path.name for result in results if result.new != result.old] == ["a.py"]
