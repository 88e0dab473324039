# anyaccel: ignore-file
"""The time of ``anyaccel check`` for 100 000 lines: of torch's own Python files, and of a corpus with a finding on each line.

    python benchmarks/bench_migrate.py [--lines 100000]

No peer does the same; grep shows the minimum cost of reading the files.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from harness import show

CORPUS = Path(__file__).parents[1] / "tests" / "migrate"  # an installed package does not have it


def of_torch(folder: Path, lines: int) -> int:
    """Copy torch's files, first those that mention CUDA, until there are enough lines."""
    sources = sorted(Path(torch.__file__).parent.rglob("*.py"))
    texts = [source.read_text(errors="replace", encoding="utf-8") for source in sources]
    texts.sort(key=lambda text: "cuda" not in text)
    return copied(folder, texts, lines)


def of_corpus(folder: Path, lines: int) -> int:
    """Copy the tests' corpus until there are enough lines."""
    texts = [file.read_text(encoding="utf-8") for file in sorted(CORPUS.rglob("before.txt"))]
    return copied(folder, texts * (1 + lines // sum(text.count("\n") for text in texts)), lines)


def copied(folder: Path, texts: list[str], lines: int) -> int:
    count = 0
    for number, text in enumerate(texts):
        if count >= lines:
            break
        (folder / f"file{number}.py").write_text(text, encoding="utf-8")
        count += text.count("\n")
    return count


def seconds_of(command: list[str]) -> float:
    began = time.perf_counter()
    subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=100_000)
    lines = parser.parse_args().lines
    rows = []
    codes = [("torch's files that mention CUDA", of_torch)] + [("the tests' corpus", of_corpus)] * CORPUS.exists()
    for name, fill in codes:
        with tempfile.TemporaryDirectory() as folder:
            count = fill(Path(folder), lines)
            check = seconds_of([str(Path(sys.executable).parent / "anyaccel"), "check", folder])
            grep = seconds_of(["grep", "-rn", "cuda", folder])
            rows.append([name, str(count), f"{check:.1f}", f"{grep:.2f}"])
    show("migrate", "anyaccel check", ["code", "lines", "check s", "grep s"], rows)


if __name__ == "__main__":
    main()
