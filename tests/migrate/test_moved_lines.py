"""After ``--write``, what is reported is where it is in the new text."""

from __future__ import annotations

from pathlib import Path

from anyaccel.migrate.files import FileResult
from anyaccel.migrate.moved_lines import moved, moved_verdict
from anyaccel.migrate.site import SiteOutcome
from anyaccel.migrate.source import migrate_source
from anyaccel.migrate.verdict import verdicts

SOURCE = """import torch

x = torch.ones(1).cuda()


def run(path):
    if torch.cuda.is_available():
        read(path, "cuda")
    return torch.cuda.get_device_capability()
"""


def result_of(source: str) -> FileResult:
    done = migrate_source(source)
    return FileResult(Path("a.py"), done.old, done.new, done.sites)


def test_sites_and_the_lines_in_their_reasons_move() -> None:
    before = result_of(SOURCE)
    after = moved(before)
    news = before.new.splitlines()
    reported = [
        (old, new) for old, new in zip(before.sites, after.sites, strict=True) if old.outcome is SiteOutcome.REPORTED
    ]
    assert reported
    for old, new in reported:
        assert new.line == old.line + 1
        assert old.code in news[new.line - 1]
    reasons = {new.reason for old, new in reported if "line" in old.reason}
    assert reasons
    assert reasons.isdisjoint(old.reason for old, _ in reported)


def test_nothing_moves_in_a_file_that_stays() -> None:
    result = result_of("import torch\nn = torch.cuda.get_device_capability()\n")
    assert moved(result) is result


def test_what_stops_a_program_moves() -> None:
    result = result_of(SOURCE + "\n\nif __name__ == '__main__':\n    run('path')\n")
    (old,) = verdicts([result])
    new = moved_verdict(old, [result])
    assert (new.answer, new.path) == ("no", old.path)
    assert new.line == old.line + 1
    assert new.code == result.new.splitlines()[new.line - 1].strip()
