"""Files: which are found, what git allows, and what is written; no error loses a file."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from anyaccel.migrate import files
from anyaccel.migrate.discovery import discover
from anyaccel.migrate.files import migrate_files, write
from anyaccel.migrate.site import MigrateError

BEFORE = "import torch\nx = torch.ones(1).cuda()\n"
AFTER = "import torch\nfrom anyaccel import get_accelerator\nx = torch.ones(1).to(get_accelerator().device_name())\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


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


def test_an_expression_that_is_too_deep_is_named(tmp_path: Path) -> None:
    (tmp_path / "deep.py").write_text("import torch\nx = " + " + ".join(["a.cuda()"] * 1000) + "\n")
    (tmp_path / "other.py").write_text("import torch\nx = torch.ones(1).cuda()\n")
    deep, other = migrate_files([tmp_path / "deep.py", tmp_path / "other.py"], "anyaccel")
    assert "nested too deeply" in str(deep.errors[0])
    assert other.new != other.old


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 2000 + "1" + ")" * 2000,
        "[" * 9000 + "]" * 9000,
        "lambda:" * 5000 + "1",
        "not " * 9000 + "1",
        "1" + "+1" * 9000,
    ],
    ids=["parentheses", "lists", "lambdas", "not", "sum"],
)
def test_code_that_would_fill_the_stack_ends_no_run(tmp_path: Path, expression: str) -> None:
    """LibCST's parser has no limit of its own: it would end this process, or take minutes."""
    (tmp_path / "deep.py").write_text(f"import torch\nx = {expression}\ntorch.ones(1).cuda()\n")
    (tmp_path / "other.py").write_text("import torch\nx = torch.ones(1).cuda()\n")
    deep, other = migrate_files([tmp_path / "deep.py", tmp_path / "other.py"], "anyaccel")
    assert "nested too deeply" in str(deep.errors[0])
    assert other.new != other.old


def test_without_space_for_what_the_processes_share_every_file_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [Path(f"file{number}.py") for number in range(6)]
    for path in paths:
        path.write_text(BEFORE)

    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "_SMALL", 0)
    monkeypatch.setattr(files.tempfile, "NamedTemporaryFile", full)
    assert [result.new for result in migrate_files(paths, "anyaccel")] == [AFTER] * 6


@pytest.mark.parametrize("count", [1, 6])
def test_a_process_that_ends_loses_only_its_own_file(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """A process of its own is tried for each file that has no result."""
    paths = [Path(f"file{number}.py") for number in range(6)]
    for path in paths:
        path.write_text(BEFORE)
    for path in paths[:count]:
        path.with_suffix(".end").touch()
    monkeypatch.setattr(files, "_SMALL", 0)
    monkeypatch.setattr(files, "_migrate_file", _ends)
    results = migrate_files(paths, "anyaccel")
    assert [bool(result.errors) for result in results] == [True] * count + [False] * (6 - count)
    assert all("the process that read it ended" in str(result.errors[0]) for result in results[:count])


def _ends(path: Path, asked: object, target: str, project: object) -> files.FileResult:
    if path.with_suffix(".end").exists():
        os._exit(1)
    return files.FileResult(path)


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
    monkeypatch.setattr(files, "_SMALL", 0)
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


_READERS = {
    "constant": ("FLAG = QUESTION\n", "from a import FLAG\ndef f(x):\n    if FLAG:\n        CODE\n    return x\n"),
    "constant of a module": ("FLAG = QUESTION\n", "import a\ndef f(x):\n    return CODE if a.FLAG else x\n"),
    "negated": ("FLAG = not QUESTION\n", "from a import FLAG\ndef f(x):\n    if FLAG:\n        return x\n    CODE\n"),
    "function": (
        "def flag():\n    return QUESTION\n",
        "from a import flag\ndef f(x):\n    if flag() and x.ndim > 1:\n        CODE\n    return x\n",
    ),
    "attribute": (
        "class A:\n    def __init__(self):\n        self.flag = QUESTION\n",
        "def f(x, a):\n    assert a.flag\n    CODE\n",
    ),
    "keyword": ("run(flag=QUESTION)\n", "def run(flag):\n    if flag:\n        CODE\n"),
    "key": ("settings = {'flag': QUESTION}\n", "def run(settings):\n    if settings['flag']:\n        CODE\n"),
    "option": (
        "parser.add_argument('--flag', default=QUESTION)\n",
        "def run(args):\n    if not args.flag:\n        raise ValueError\n    CODE\n",
    ),
}


@pytest.mark.parametrize("small", [files._SMALL, 0])  # of more bytes, processes share the work
@pytest.mark.parametrize("kind", _READERS)
def test_an_answer_stays_if_another_file_tests_it_before_code_for_cuda(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, small: int
) -> None:
    monkeypatch.setattr(files, "_SMALL", small)
    question = "torch.cuda.is_available()"
    code = "torch.cuda.get_device_capability()"
    for name, text in zip("ab", _READERS[kind], strict=True):
        (tmp_path / f"{name}.py").write_text(
            f"import torch\n{text.replace('QUESTION', question).replace('CODE', code)}"
        )
    results = migrate_files(discover([tmp_path]), "anyaccel")
    assert question in results[0].new
    only_one = migrate_files([tmp_path / "a.py"], "anyaccel", among=discover([tmp_path]))
    assert only_one[0].sites == results[0].sites


@pytest.mark.parametrize("kind", _READERS)
def test_an_answer_is_rewritten_with_the_file_that_tests_it(tmp_path: Path, kind: str) -> None:
    question = "torch.cuda.is_available()"
    for name, text in zip("ab", _READERS[kind], strict=True):
        (tmp_path / f"{name}.py").write_text(
            f"import torch\n{text.replace('QUESTION', question).replace('CODE', 'x.cuda()')}"
        )
    results = migrate_files(discover([tmp_path]), "anyaccel")
    assert question not in results[0].new
    assert ".cuda()" not in results[1].new
