"""The corpus: for each rule, code before and after a migration, and the report.

``python -m tests.migrate.corpus --write`` writes the tool's current output, for review before it is committed.
"""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

from anyaccel.migrate.site import SiteOutcome
from anyaccel.migrate.source import Migration, migrate_source

CASES = Path(__file__).parent / "cases"


def names() -> list[str]:
    return sorted(folder.name for folder in CASES.iterdir() if folder.is_dir())


def before(name: str) -> str:
    return (CASES / name / "before.txt").read_text()


@cache
def migrated(name: str, target: str = "anyaccel") -> Migration:
    """Return a case's migration, which several tests look at and none changes."""
    return migrate_source(before(name), target)


def report_of(migration: Migration) -> str:
    """One line per site that is not rewritten, and the number of those that are."""
    lines = [
        f"{site.line} {site.rule} {site.outcome.value}: {site.code.splitlines()[0]}: {site.reason}"
        for site in migration.sites
        if site.outcome is not SiteOutcome.REWRITTEN
    ]
    rewritten = sum(site.outcome is SiteOutcome.REWRITTEN for site in migration.sites)
    return "\n".join([f"{rewritten} rewritten", *lines, ""])


def write() -> None:
    for name in names():
        migration = migrated(name)
        (CASES / name / "after.txt").write_text(migration.new)
        (CASES / name / "report.txt").write_text(report_of(migration))


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("expected --write")
    write()
