"""Texts are plain modern English: obsolete words and phrases do not appear in the tree."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TEXTS = {".md", ".py", ".cpp", ".h", ".cu", ".toml", ".svg"}
OLD = re.compile(
    r"\b(mend(s|ed|ing)?|likewise|at hand|see to (it|that)|what is in doubt|for a \w+ that there is not"
    r"|has not (what|a|an|any|the)|(once|twice) an? (process|element|block|call|group|row|token|second)"
    r"|(B|KiB|MiB|bytes) an? (process|element|block|call|group|row|token)|where(of|to|upon|with)|there(of|upon|with)"
    r"|here(of|upon|with)|hitherto|henceforth|thence|whence|thither|lest|albeit|amidst|thereby|whilst|nigh|ere|forsooth)\b"
    r"|\b(\w+'s?|their) sake\b|\bbesides[.:;,)]|(?<!\bwhat)(?<!\bhas)(?<!\bnothing)\bbut for\b"
    r"|\b(in the manner of|until further notice|makes of it|by another import|be rid of"
    r"|whatever accelerator the machine has|on (its|their) own account|in the care of|comes? to the same"
    r"|for ever|anew|for want of|so as not to|nor (do|does)|as one (must|may|writes|wants)|hence"
    r"|is not to be|than there (is|are)|of one's own|of (some)?one else's|altogether|shall"
    r"|as \w+ as it likes|in its own \w+'s way|filters? of system calls|who can be no further|lets? go of those)\b"
)


def _files() -> list[Path]:
    tops = [
        top for top in ROOT.iterdir() if not top.name.startswith(".") and top.name not in ("build", "demo_out", "dist")
    ]
    found = [path for top in tops for path in (top.rglob("*") if top.is_dir() else [top])]
    return [
        path for path in sorted(found) if path.suffix in TEXTS and "cases" not in path.parts and path != Path(__file__)
    ]


def test_no_old_word_is_left() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {match.group()}"
        for path in _files()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        for match in [OLD.search(line)]
        if match
    ]
    assert not found, "\n".join(found)


def test_old_words_are_recognised() -> None:
    for text in (
        "the fix mends it",
        "once a process",
        "4 B an element",
        "looks for headers besides;",
        "all but for one",
        "modules in the manner of torch.nn",
        "so that every rank comes to the same",
        "its sender would wait for ever",
        "the op is built for one torch, hence in no wheel",
        "a builder as one writes it for deepspeed",
        "removed and made anew",
    ):
        assert OLD.search(text), text
    for text in ("recommended", "besides the CPU", "once per process", "hands that on", "amendment"):
        assert not OLD.search(text), text
