"""``anyaccel migrate`` and ``anyaccel check``, as people and CI call them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anyaccel.cli import app, main
from anyaccel.migrate.site import MigrateError

BEFORE = "import torch\nx = torch.ones(1).cuda()\nif x.device.type == 'cuda':\n    kernel(x)\n"
CHANGED = "x = torch.ones(1).to(get_accelerator().device_name())"
ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(BEFORE)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def test_a_diff_and_a_report_and_nothing_written(tmp_path: Path) -> None:
    code, said = run("migrate", "train.py")
    assert code == 0
    assert f"-x = torch.ones(1).cuda()\n+from anyaccel import get_accelerator\n+{CHANGED}" in said
    assert "train.py:3: device-name: x.device.type == 'cuda': kernel depends on it" in said
    assert "1 rewritten in 1 file, 1 reported, 0 left; nothing is written yet: --write does" in said
    assert (tmp_path / "train.py").read_text() == BEFORE


def test_write_applies_and_a_second_time_changes_nothing(tmp_path: Path) -> None:
    assert run("migrate", "--write", ".")[0] == 0
    after = (tmp_path / "train.py").read_text()
    assert CHANGED in after
    code, said = run("migrate", "--write", ".")
    assert code == 0
    assert "0 rewritten in 0 files" in said
    assert (tmp_path / "train.py").read_text() == after


def test_a_dirty_tree_is_refused_without_force(tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], check=True)
    with pytest.raises(MigrateError, match=r"git could not restore \(train.py\).*Nothing has been written"):
        run("migrate", "--write", "train.py")
    assert (tmp_path / "train.py").read_text() == BEFORE
    assert run("migrate", "--write", "--force", "train.py")[0] == 0
    assert CHANGED in (tmp_path / "train.py").read_text()


def test_a_file_that_cannot_be_read_is_reported_with_its_line_and_the_rest_is_done(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("import torch\nx = torch.cuda.(\n")
    code, said = run("migrate", "--write", ".")
    assert code == 1
    assert "bad.py:2: reading Python failed" in said
    assert CHANGED in (tmp_path / "train.py").read_text()


def test_a_file_that_cannot_be_written_stops_no_other(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(BEFORE)
    (tmp_path / "a.py").chmod(0o444)
    code, said = run("migrate", "--write", ".")
    assert code == 1
    assert "writing a.py failed: got [Errno 13] the file is read-only" in said
    assert (tmp_path / "a.py").read_text() == BEFORE
    assert CHANGED in (tmp_path / "train.py").read_text()


@pytest.mark.parametrize("target", ["deepspeed", "torch.accelerator"])
def test_other_targets(tmp_path: Path, target: str) -> None:
    assert run("migrate", "--write", "--target", target, "train.py")[0] == 0
    after = (tmp_path / "train.py").read_text()
    assert ("from deepspeed.accelerator import get_accelerator" in after) == (target == "deepspeed")
    assert ("torch.accelerator.current_accelerator(check_available=True)" in after) == (target == "torch.accelerator")


def test_check_finds_with_place_and_rule() -> None:
    code, said = run("check", "train.py")
    assert code == 1
    assert said.splitlines()[0] == (
        "train.py:2:5: tensor-cuda: torch.ones(1).cuda() is tied to CUDA; "
        "anyaccel migrate writes torch.ones(1).to(get_accelerator().device_name())"
    )
    assert said.splitlines()[1].startswith("train.py:3:4: device-name: x.device.type == 'cuda': kernel")


def test_check_is_content_with_clean_and_with_ignored_code(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import torch\nx = torch.ones(1).cuda()  # anyaccel: ignore[tensor-cuda]\ny = x.is_cuda  # anyaccel: ignore\n"
    )
    assert run("check", "train.py") == (0, "")
    (tmp_path / "train.py").write_text("# anyaccel: ignore-file[tensor-cuda]\nimport torch\nx = torch.ones(1).cuda()\n")
    assert run("check", ".") == (0, "")
    (tmp_path / "train.py").write_text("import torch\nx = torch.ones(1).cuda()  # anyaccel: ignore[amp]\n")
    assert run("check", ".")[0] == 1


def test_check_as_json() -> None:
    found = json.loads(run("check", "--format", "json", "train.py")[1])
    assert [(one["path"], one["line"], one["column"], one["rule"]) for one in found] == [
        ("train.py", 2, 5, "tensor-cuda"),
        ("train.py", 3, 4, "device-name"),
    ]


def test_check_as_github_annotations(tmp_path: Path) -> None:
    (tmp_path / "a,b.py").write_text("import torch\nx = torch.ones(1) . cuda(\n)\n")
    (line,) = run("check", "--format", "github", "a,b.py")[1].splitlines()
    assert line.startswith("::error file=a%2Cb.py,line=2,col=5,title=anyaccel tensor-cuda::torch.ones(1) . cuda(")


def test_check_as_sarif(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("cuda = (\n")
    log = json.loads(run("check", "--format", "sarif", ".")[1])
    assert (log["version"], log["$schema"]) == ("2.1.0", "https://json.schemastore.org/sarif-2.1.0.json")
    (analysis,) = log["runs"]
    known = {rule["id"] for rule in analysis["tool"]["driver"]["rules"]}
    places = [
        (
            result["ruleId"],
            result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"],
            result["locations"][0]["physicalLocation"]["region"]["startLine"],
        )
        for result in analysis["results"]
    ]
    assert places == [("unreadable", "bad.py", 1), ("tensor-cuda", "train.py", 2), ("device-name", "train.py", 3)]
    assert {rule for rule, *_ in places} <= known


def test_check_shows_the_lines_that_differ(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\nx = f(\n    1,\n).model(\n    2,\n).cuda()\n")
    assert run("check", "train.py")[1] == (
        "train.py:2:5: tensor-cuda: ).cuda() is tied to CUDA; "
        "anyaccel migrate writes ).to(get_accelerator().device_name())\n"
    )


@pytest.mark.parametrize("command", ["check", "migrate"])
def test_a_missing_path_is_no_finding(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["anyaccel", command, "missing.py"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2


def test_sarif_names_files_by_uri(tmp_path: Path) -> None:
    folder = tmp_path / "a b%ü"
    folder.mkdir()
    (folder / "c:d.py").write_text("import torch\nx = torch.ones(1).cuda()\n")
    for given, expected in [
        ("a b%ü", "a%20b%25%C3%BC/c%3Ad.py"),
        (str(folder), f"file://{tmp_path}/a%20b%25%C3%BC/c%3Ad.py"),
    ]:
        (result,) = json.loads(run("check", "--format", "sarif", given)[1])["runs"][0]["results"]
        assert result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"].replace("%3a", "%3A") == expected


def test_check_says_what_it_does_not_understand(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\nx = b'cuda'\n")
    message = "b'cuda': no rule understands this; report it with the line"
    assert run("check", "train.py") == (1, f"train.py:2:5: not-understood: {message}\n")
    code, said = run("migrate", "train.py")
    assert code == 0
    assert "1 token not understood:\ntrain.py:2: b'cuda'" in said


def test_this_project_is_not_tied_to_cuda(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert run("check", ".") == (0, "")


@pytest.mark.parametrize("command", [["migrate", "--write", "--force"], ["check"], ["build", "lion", "--output"]])
def test_an_empty_path_is_not_the_current_folder(command: list[str], tmp_path: Path) -> None:
    code, said = run(*command, "")
    assert code == 2
    assert "got an empty path" in said
    assert [file.name for file in tmp_path.iterdir()] == ["train.py"]
    assert (tmp_path / "train.py").read_text() == BEFORE
