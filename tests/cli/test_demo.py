"""The demo: it learns, resumes, and reports when it does not learn."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from anyaccel.op_builder.cpu import ShmCommBuilder

from ..programs import run_command_line


def _demo(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DS_ACCELERATOR": "cpu", "COLUMNS": "200"}
    return run_command_line(["demo", *arguments], environment, folder)


@pytest.mark.timeout(600)
def test_learns_writes_its_results_and_resumes(tmp_path: Path) -> None:
    first = _demo(tmp_path, "--steps", "16")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "below the unigram model's" in first.stdout
    out = tmp_path / "demo_out"
    assert (out / "loss.png").read_bytes().startswith(b"\x89PNG")
    metrics = json.loads((out / "metrics.json").read_text())
    assert metrics["step"] == 16
    assert metrics["ranks"] == 2
    assert metrics["backend"] == ("shm" if ShmCommBuilder().is_built() else "gloo")
    assert "next: anyaccel check" in first.stdout
    assert "OMP_NUM_THREADS" not in first.stderr
    assert metrics["validation"][-1][1] < metrics["unigram_loss"] < metrics["validation"][0][1]
    second = _demo(tmp_path, "--steps", "2", "--ranks", "1")
    assert second.returncode == 0, second.stdout + second.stderr
    assert "resumed at 16" in second.stdout
    resumed = json.loads((out / "metrics.json").read_text())
    assert resumed["step"] == 18
    assert resumed["training"][:16] == metrics["training"]
    assert resumed["validation"][-1][1] < metrics["validation"][-1][1] + 0.1


def test_takes_any_text_exits_with_one_when_it_has_not_learned_and_refuses_a_checkpoint_of_another(
    tmp_path: Path,
) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the quick brown fox jumps over the lazy dog\n" * 1000)
    first = _demo(tmp_path, "--steps", "1", "--ranks", "1", "--text", "text.txt")
    assert "validation loss" in first.stdout, first.stderr
    assert first.returncode == 1
    assert "not below the unigram model's" in first.stdout
    text.write_text("quite another text, 日本語\n" * 1000)
    finished = _demo(tmp_path, "--steps", "1", "--ranks", "1", "--text", "text.txt")
    assert finished.returncode == 1
    assert "trained on another text" in finished.stderr


def test_refuses_a_text_too_short_to_learn_from(tmp_path: Path) -> None:
    (tmp_path / "short.txt").write_text("short")
    finished = _demo(tmp_path, "--steps", "1", "--ranks", "1", "--text", "short.txt")
    assert finished.returncode == 1
    assert "it has 5 characters; at least 20000 are needed" in finished.stderr


def test_the_training_script_names_no_device(tmp_path: Path) -> None:
    from anyaccel.demo import model, text, train

    for module in (model, text, train):
        source = Path(module.__file__).read_text()
        assert not any(word in source for word in ("cuda", "xpu", "nccl", "gloo")), module.__name__
