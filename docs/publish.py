"""Puts the built pages into a folder for static hosting: ``python docs/publish.py build/html SITE``, or ``make site``.

Each version has its own folder in SITE. ``SITE/versions.json`` lists them for the menu on every page, so the pages of old
versions also lead to new ones, and ``SITE/index.html`` leads to the latest release.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from packaging.version import InvalidVersion, Version

import anyaccel


def _versions(site: Path) -> list[str]:
    """Return the names of the versions' folders, the newest first."""
    found = []
    for folder in site.iterdir():
        try:
            found.append((Version(folder.name), folder.name))
        except InvalidVersion:  # a file, or a folder of the host's own
            continue
    return [name for _, name in sorted(found, reverse=True)]


def publish(pages: Path, site: Path, version: str) -> None:
    """Add a version, or replace it.

    Args:
        pages: the built pages.
        site: the folder that is served; created if it does not exist.
        version: the name of the version's folder.
    """
    if not (pages / "index.html").is_file():
        msg = f"publishing the pages failed: got no index.html in {pages}; expected built pages. Fix: make docs."
        raise SystemExit(msg)
    shutil.rmtree(site / version, ignore_errors=True)
    shutil.copytree(pages, site / version, ignore=shutil.ignore_patterns(".*"))
    versions = _versions(site)
    (site / "versions.json").write_text(json.dumps(versions), encoding="utf-8")
    latest = next((name for name in versions if not Version(name).is_prerelease), versions[0])
    leads = f'<!doctype html><meta charset="utf-8"><title>anyaccel</title><meta http-equiv="refresh" content="0; url={latest}/">'
    (site / "index.html").write_text(leads, encoding="utf-8")


if __name__ == "__main__":
    publish(Path(sys.argv[1]), Path(sys.argv[2]), anyaccel.__version__)
