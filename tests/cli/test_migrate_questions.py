"""``anyaccel migrate`` with answers: asked for, assumed, kept; and its summary for a pull request."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote

import pytest
from typer.testing import CliRunner

from anyaccel.cli import app
from anyaccel.migrate.site import MigrateError

KERNEL = "import torch\n\n\ndef run(x):\n    if x.device.type == 'cuda':\n        kernel(x)\n    return x.cuda()\n"
OTHER = KERNEL.replace("run", "go")
NO_CHOICE = "import torch\nn = torch.cuda.get_device_capability()\n"
COMPARES = "x.device.type == get_accelerator().device_name()"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_text(KERNEL)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b c.py").write_text(OTHER)


def run(*arguments: str, answers: str = "") -> tuple[int, str]:
    result = CliRunner().invoke(app, list(arguments), input=answers)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def texts() -> tuple[str, str]:
    return Path("a.py").read_text(), Path("sub/b c.py").read_text()


def test_a_class_is_asked_once_with_its_code_and_both_answers() -> None:
    code, said = run("migrate", "-i", "--write", ".", answers="a\n")
    assert code == 0
    assert said.count("s  decide later") == 1
    assert "depends-on-function: a question about CUDA" in said
    assert "(2 places in 2 files)" in said
    assert ">     5     if x.device.type == 'cuda':" in said
    shown = said.partition("port:\n--- a.py\n+++ a.py\n@@ ")[2].splitlines()[1:5]
    assert shown == [" def run(x):", "-    if x.device.type == 'cuda':", f"+    if {COMPARES}:", "         kernel(x)"]
    assert "keep: the lines stay" in said
    assert all(COMPARES in text for text in texts())
    assert 'question = "depends-on-function", answer = "port"' in Path("pyproject.toml").read_text()


def test_a_second_run_and_ci_ask_nothing() -> None:
    run("migrate", "-i", ".", answers="n\n")
    assert "decide later" not in run("migrate", "-i", "--write", ".")[1]
    assert run("check", ".") == (0, "")
    assert all("x.device.type == 'cuda'" in text for text in texts())


def test_an_answer_may_be_for_one_file() -> None:
    code, said = run("migrate", "-i", "--write", ".", answers="f\nn\n")
    assert code == 0
    assert said.count("s  decide later") == 2
    assert COMPARES in texts()[0]
    assert COMPARES not in texts()[1]
    assert 'files = ["a.py"]' in Path("pyproject.toml").read_text()


def test_a_class_may_be_left_for_later_and_nothing_is_kept() -> None:
    code, said = run("migrate", "-i", ".", answers="x\ns\n")
    assert code == 0
    assert "a.py:5: device-name" in said
    assert not Path("pyproject.toml").exists()


def test_what_cannot_be_ported_can_only_be_kept() -> None:
    Path("a.py").write_text(NO_CHOICE)
    said = run("migrate", "-i", "a.py", answers="a\nn\n")[1]
    assert "port all" not in said
    assert ">     2 n = torch.cuda.get_device_capability()" in said
    assert "0 reported, 1 left" in said


def test_what_was_answered_before_the_end_of_the_input_is_kept() -> None:
    Path("a.py").write_text(KERNEL + NO_CHOICE)
    code, said = run("migrate", "-i", "--write", "a.py", answers="a\n")
    assert code == 1
    assert "Abort" in said
    assert "depends-on-function" in Path("pyproject.toml").read_text()
    assert texts()[0] == KERNEL + NO_CHOICE


def test_one_assumption_answers_all_comparisons_and_is_said() -> None:
    code, said = run("migrate", "--write", "--assume", "any-accelerator", ".")
    assert code == 0
    assert "Assumed: questions about CUDA mean any accelerator (2 sites were ported by answers)." in said
    assert all(COMPARES in text for text in texts())
    assert not Path("pyproject.toml").exists()


def test_the_assumption_may_stand_in_the_project() -> None:
    Path("pyproject.toml").write_text('[tool.anyaccel.migrate]\nassume = "any-accelerator"\n')
    assert "Assumed:" in run("migrate", "--write", ".")[1]
    assert run("check", ".") == (0, "")


def test_guards_are_dropped_on_demand() -> None:
    Path("a.py").write_text("import torch\nassert torch.cuda.is_available(), 'no'\nx = y.cuda()\n")
    code, said = run("migrate", "--write", "--drop-cuda-guards", "a.py")
    assert code == 0
    assert "assert" not in texts()[0]
    assert "2 rewritten in 1 file" in said


def test_the_summary_has_links_to_lines_of_the_new_files() -> None:
    Path("a.py").write_text(KERNEL + 'if __name__ == "__main__":\n    run(1)\n')
    subprocess.run(["git", "init", "-q"], check=True)
    subprocess.run(["git", "add", "."], check=True)
    identity = ["-c", "user.name=n", "-c", "user.email=e@e"]
    subprocess.run(["git", *identity, "commit", "-qm", "x"], check=True)
    code, said = run("migrate", "--write", "--pr", ".")
    assert code == 0
    assert "| tensor-cuda | 2 | tensors and modules that move by cuda() |" in said
    places = re.findall(r"- \[ \] \[.*?\]\((.+?)#L(\d+)\): `(.+?)`", said)
    assert [unquote(place[0]) for place in places] == ["a.py", "sub/b c.py"]
    for path, line, shown in places:
        assert shown in Path(unquote(path)).read_text().splitlines()[int(line) - 1]
    assert "- a.py: starts on a CPU: yes" in said
    (undo,) = re.findall(r"```sh\n(.+)\n```", said)
    subprocess.run(shlex.split(undo), check=True)
    assert texts()[1] == OTHER


def test_the_summary_of_what_is_not_written_says_so() -> None:
    said = run("migrate", "--pr", "a.py")[1]
    assert "1 of 1 files would change" in said
    assert "Nothing is written yet" in said
    assert texts()[0] == KERNEL


def test_the_summary_escapes_what_markdown_would_read() -> None:
    Path("_a*b_.py").write_text(KERNEL.replace("kernel(x)", "kernel(x)  # `a`"))
    assert "- [ ] [\\_a\\*b\\_.py:6](_a%2Ab_.py#L6)" in run("migrate", "--pr", "_a*b_.py")[1]


def test_an_answer_for_a_file_with_brackets_in_its_name_is_for_that_file() -> None:
    Path("a.py").rename("a[1].py")
    said = run("migrate", "-i", "--write", "--force", "a[1].py", answers="f\n")[1]
    assert said.count("s  decide later") == 1
    assert COMPARES in Path("a[1].py").read_text()


def test_what_an_answer_settles_in_another_file_is_written() -> None:
    has = "import torch\nHAS = torch.cuda.is_available()\ndef f(x):\n    if HAS:\n        x = x.cuda()\n    return x\n"
    Path("a.py").write_text(has)
    use = "import torch\nfrom a import HAS\ndef g(x):\n    if HAS:\n        h(x, 'cuda')\n        x = x.cuda()\n    return x\n"
    Path("b.py").write_text(use)
    run("migrate", "-i", "--write", "--force", "b.py", "a.py", answers="a\ns\ns\n")
    written = Path("a.py").read_text(), Path("b.py").read_text()
    run("migrate", "--write", "--force", "b.py", "a.py")
    assert (Path("a.py").read_text(), Path("b.py").read_text()) == written


def test_only_a_letter_is_an_answer() -> None:
    said = run("migrate", "-i", "a.py", answers="abort\nnever\ns\n")[1]
    assert said.count("s  decide later") == 1
    assert not Path("pyproject.toml").exists()


def test_a_wrong_key_is_said() -> None:
    said = run("migrate", "-i", "a.py", answers="x\n\ns\n")[1]
    assert "'x' is no answer here; expected a, f, n, s." in said
    assert "'nothing' is no answer here" in said


BESIDE = """import torch


def f(d, x):
    if name_of(d) in ("gpu", "cuda"):
        kernel(x)


def k():
    with_cuda = torch.cuda.is_available()
    return {"x": g(with_cuda)}
"""


@pytest.mark.parametrize("answer", ["a", "n"])
def test_an_answer_changes_only_what_was_asked(answer: str) -> None:
    """A CPU's name is still no name of the accelerator's, and what a CPU answered with no stays so."""
    Path("a.py").write_text(BESIDE)
    before = run("migrate", "a.py")[1]
    assert "device-name: name_of(d) in" in before
    run("migrate", "-i", "--write", "a.py", answers=f"{answer}\n" + "s\n" * 3)
    asked = 'if name_of(d) in ("gpu", get_accelerator().device_name()) and name_of(d) != "cpu":'
    assert (asked in texts()[0]) == (answer == "a")
    kept = [line for line in BESIDE.splitlines() if "name_of" not in line]
    rewritten = [line[1:] for line in before.splitlines() if line.startswith("+") and not line.startswith("+++")]
    assert [line for line in texts()[0].splitlines() if line not in kept and "name_of" not in line] == [
        line for line in rewritten if "name_of" not in line
    ]


def test_what_can_be_ported_is_asked_before_what_hangs_on_it() -> None:
    Path("a.py").write_text(BESIDE.replace("\n\n\ndef k():", ""))
    said = run("migrate", "-i", "a.py", answers="a\n")[1]
    assert said.count("s  decide later") == 1
    assert "2 rewritten in 1 file, 0 reported" in said


def test_a_preview_starts_from_the_answers_before_it() -> None:
    Path("a.py").write_text(KERNEL + "\n\ndef h(d):\n    if name_of(d) == 'cuda':\n        pass\n")
    said = run("migrate", "-i", "a.py", answers="a\ns\n")[1]
    assert said.count("keep: the lines stay") == 2
    assert said.count(f"+    if {COMPARES}:") == 2  # its own preview, and the last diff


def test_the_answers_of_a_subfolder_are_kept_at_the_root_of_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(["git", "init", "-q"], check=True)
    monkeypatch.chdir("sub")
    run("migrate", "-i", ".", answers="n\n")
    assert not Path("pyproject.toml").exists()
    assert 'answer = "keep"' in Path("../pyproject.toml").read_text()


def test_what_answers_ported_is_said_in_the_report_and_in_the_summary() -> None:
    said = run("migrate", "-i", "--write", "--force", ".", answers="a\n")[1]
    assert "Ported by the answers in pyproject.toml: depends-on-function 2" in said
    Path("a.py").write_text(KERNEL)
    said = run("migrate", "--write", "--force", "--pr", "a.py")[1]
    assert "a person's answers ported some, which the tool could not decide: `depends-on-function` 1." in said
    assert "The answers in `pyproject.toml` stay" in said


def test_the_summary_folds_the_programs_of_which_nothing_is_to_be_said() -> None:
    for number in range(7):
        Path(f"p{number}.py").write_text('import torch\nif __name__ == "__main__":\n    print(torch.ones(1).cuda())\n')
    said = run("migrate", "--pr", ".")[1]
    assert "- 7 others: start on a CPU: yes" in said
    assert "p3.py: starts" not in said


def test_what_is_not_saved_is_said_before_any_question() -> None:
    subprocess.run(["git", "init", "-q"], check=True)
    with pytest.raises(MigrateError, match="git could not restore"):
        run("migrate", "-i", "--write", "a.py", answers="n\n")
    assert not Path("pyproject.toml").exists()


def test_questions_are_not_in_the_summary() -> None:
    command = [Path(sys.executable).with_name("anyaccel"), "migrate", "-i", "--pr", "."]
    result = subprocess.run(command, input="s\n", capture_output=True, text=True, check=True)
    assert result.stdout.startswith("# Port from torch.cuda")
    assert "decide later" not in result.stdout
    assert "decide later" in result.stderr


def test_the_summary_does_not_undo_what_git_lacks() -> None:
    subprocess.run(["git", "init", "-q"], check=True)
    subprocess.run(["git", "add", "a.py"], check=True)
    subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e@e", "commit", "-qm", "x"], check=True)
    said = run("migrate", "--write", "--force", "--pr", ".")[1]
    assert "git checkout HEAD -- a.py\n" in said
    assert "By hand, as git does not have what was there before: [sub/b c.py](sub/b%20c.py)." in said


def test_the_summary_is_of_what_was_written() -> None:
    Path("a.py").chmod(0o444)
    code, said = run("migrate", "--write", "--pr", ".")
    assert code == 1
    assert "1 of 2 files changed" in said
    assert "git checkout HEAD -- 'sub/b c.py'\n" in said


def test_a_name_that_is_not_utf_8_is_in_the_summary() -> None:
    Path("a.py").rename(os.fsdecode(b"a\xff.py"))
    code, said = run("migrate", "--pr", ".")
    assert code == 0
    assert "[a\ufffd.py:6](a%FF.py#L6)" in said
