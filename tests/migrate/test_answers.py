"""Answers: read from pyproject.toml, kept there, and what they do to the sites that they are for."""

from __future__ import annotations

from pathlib import Path

import pytest

from anyaccel.migrate.answers import ANY_ACCELERATOR, TITLES, Answer, Answers, Decided
from anyaccel.migrate.rules import RULES
from anyaccel.migrate.settings import keep_answers, settings_of
from anyaccel.migrate.site import MigrateError, SiteOutcome
from anyaccel.migrate.source import migrate_source

from . import corpus

WRONG = [
    "[tool.anyaccel]\nexclude = 1",
    "[tool.anyaccel]\nexcludes = []",
    "[tool.anyaccel",
    "[tool.anyaccel]\nmigrate = 1",
    "[tool.anyaccel.migrate]\nassume = 'all'",
    "[tool.anyaccel.migrate]\nanswers = 3",
    "[tool.anyaccel.migrate]\nanswers = ['x']",
    "[tool.anyaccel.migrate]\nanswers = [{question = 'x', answer = 'maybe'}]",
    "[tool.anyaccel.migrate]\nanswers = [{question = 'x', answer = 'keep', files = 'a.py'}]",
    "[tool.anyaccel.migrate]\nanswers = [{question = 'x', answer = 'keep', file = []}]",
]
PORTED = {
    "device-comparison": ("if name_of(x) == 'cuda':\n    pass\n", "name_of(x) == get_accelerator().device_name()"),
    "depends-on-function": (
        "if x.device.type == 'cuda':\n    kernel(x)\n",
        "== get_accelerator().device_name():\n    kernel",
    ),
    "precision": (
        "if not torch.cuda.is_available():\n    raise ValueError('--fp16 needs a GPU')\n",
        "if not get_accelerator().is_available():",
    ),
    "nothing-rewritten": (
        "from lib import g\ndef f(x):\n    if x.is_cuda:\n        y = 2 + g(3)\n",
        "get_accelerator().on_accelerator(x)",
    ),
    "answer-goes-elsewhere": (
        "import xgboost\nxgboost.train(gpu=torch.cuda.is_available())\n",
        "gpu=get_accelerator().is_available()",
    ),
    "depends-on-cuda": (
        "if torch.cuda.is_available():\n    dtype = torch.cuda.get_device_capability()\n",
        "if get_accelerator().is_available():\n    dtype = torch.cuda.get",
    ),
    "changes-cpu": (
        "def f(x):\n    if torch.cuda.is_available():\n        x = x.cuda() * 2\n    else:\n        raise ValueError\n",
        "if get_accelerator().is_available():",
    ),
    "kernel-guard": ("def f(x):\n    assert x.is_cuda\n", "assert get_accelerator().on_accelerator(x)"),
    "cuda-guard": (
        "def f(x):\n    assert torch.cuda.is_available()\n    return x\n",
        "assert get_accelerator().is_available()",
    ),
    "device-text": ("f('cuda')\n", "f(get_accelerator().device_name())"),
    "own-cuda": (
        "class Batch:\n    def cuda(self): pass\nbatch.cuda()\n",
        "batch.to(get_accelerator().device_name())",
    ),
}


def test_every_class_with_two_answers_is_tried() -> None:
    assert set(PORTED) == set(TITLES)
    assert not set(TITLES) & set(RULES)


@pytest.mark.parametrize("question", TITLES)
def test_an_answer_settles_its_class(question: str) -> None:
    code, ported = PORTED[question]
    source = f"import torch\n{code}"
    (asked,) = [site for site in migrate_source(source).sites if site.question == question]
    assert (asked.outcome, asked.can_be_ported) == (SiteOutcome.REPORTED, True)
    done = migrate_source(source, decided=Decided({question: "port"}))
    assert ported in done.new
    kept = migrate_source(source, decided=Decided({question: "keep"}))
    (left,) = [site for site in kept.sites if (site.line, site.column) == (asked.line, asked.column)]
    assert (left.outcome, left.reason) == (SiteOutcome.LEFT, f"kept by the project's answer to {question}")
    assert asked.code in kept.new


@pytest.mark.parametrize("name", corpus.names())
def test_every_report_can_be_kept(name: str) -> None:
    """So that CI asks nothing once all is decided."""
    source = corpus.before(name)
    questions = {site.question for site in migrate_source(source).sites if site.outcome is SiteOutcome.REPORTED}
    done = migrate_source(source, decided=Decided(dict.fromkeys(questions, "keep")))
    reported = [site for site in done.sites if site.outcome is SiteOutcome.REPORTED]
    assert not {site.question for site in reported} & questions
    assert done.passed_over == ()


@pytest.mark.parametrize("name", corpus.names())
def test_answers_lose_no_site_and_a_second_run_changes_nothing(name: str) -> None:
    source = corpus.before(name)
    decided = Decided(dict.fromkeys(TITLES, "port"))
    done = migrate_source(source, decided=decided)
    compile(done.new, name, "exec", dont_inherit=True)
    assert done.passed_over == ()
    assert migrate_source(done.new, decided=decided).new == done.new


def test_an_answer_for_a_file_counts_before_one_for_all() -> None:
    answers = Answers((Answer("precision", "keep", ("a/*.py",)), Answer("precision", "port")))
    assert answers.for_file("a/b.py").answer_to("precision") == "keep"
    assert answers.for_file("b.py").answer_to("precision") == "port"
    assert answers.for_file("b.py").answer_to("device-text") == ""


def test_an_answer_counts_before_the_assumption() -> None:
    answers = Answers((Answer("precision", "keep"),), assumes_any_accelerator=True).for_file("a.py")
    assert answers.answer_to("precision") == "keep"
    assert answers.answer_to("device-comparison") == "port"
    ported = [question for question in TITLES if answers.answer_to(question) == "port"]
    assert ["precision", *ported] == ["precision", *(name for name in list(TITLES)[:6] if name != "precision")]


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_setting_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(MigrateError, match=r"pyproject\.toml failed: .* expected .* Fix:"):
        settings_of(tmp_path)


OTHERS = "# mine\n[project]\nname = 'x'  # kept\n\n[tool.ruff]\nline-length = 100\n"


@pytest.mark.parametrize(
    "text",
    [
        None,
        OTHERS,
        OTHERS.replace("\n", "\r\n"),
        "[tool]\nanyaccel = {exclude = ['a']}\n",
        "tool.anyaccel.exclude = ['a']\n",
        OTHERS + "[tool.anyaccel]\nexclude = ['a']\n[tool.other]\nx = 1\n",
        "[tool.anyaccel.migrate]\nassume = 'any-accelerator'\nanswers = [{question = 'precision', answer = 'port'}]\n",
    ],
)
def test_answers_are_kept_and_the_rest_of_the_file_stays(tmp_path: Path, text: str | None) -> None:
    file = tmp_path / "pyproject.toml"
    if text is not None:
        file.write_bytes(text.encode())
        file.chmod(0o640)
    old = settings_of(tmp_path)
    new = [Answer("precision", "keep"), Answer("device-text", "port", ("a b/ü.py",))]
    kept = keep_answers(old, new)
    assert kept.answers.given == tuple(new)
    assert settings_of(tmp_path) == kept
    after = file.read_bytes().decode()
    if text is not None:
        assert after.startswith(text) or "anyaccel" in text
        assert file.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in tmp_path.iterdir()] == ["pyproject.toml"]
    assert keep_answers(kept, [Answer("precision", "port")]).answers.given == (new[1], Answer("precision", "port"))


def test_answers_that_cannot_be_kept_are_refused_and_the_file_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "pyproject.toml").write_text(OTHERS)
    monkeypatch.setattr("os.replace", full)
    with pytest.raises(MigrateError, match=r"writing the answers to .* failed: got \[Errno 28\].* Fix:"):
        keep_answers(settings_of(tmp_path), [Answer("precision", "keep")])
    assert (tmp_path / "pyproject.toml").read_text() == OTHERS
    assert [path.name for path in tmp_path.iterdir()] == ["pyproject.toml"]


def test_the_assumption_is_read(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(f"[tool.anyaccel.migrate]\nassume = '{ANY_ACCELERATOR}'\n")
    (tmp_path / "sub").mkdir()
    settings = settings_of(tmp_path / "sub")
    assert settings.answers.assumes_any_accelerator
    assert settings.relative(tmp_path / "sub" / "x.py") == "sub/x.py"
