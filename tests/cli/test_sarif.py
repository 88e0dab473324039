"""SARIF 2.1.0: what the standard requires of each object that ``anyaccel check`` writes, and which properties it knows.

Written down from the standard (sections 3.13 to 3.58) for the objects that are used here; a property that is not in the tables is
refused.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pytest

from anyaccel.migrate.files import migrate_files
from anyaccel.migrate.findings import FORMATS, findings_of
from anyaccel.migrate.rules import RULES
from tests.migrate import corpus


class Kind(NamedTuple):
    """An object of the standard: its required properties, and what each known one is."""

    required: tuple[str, ...]
    known: dict[str, Any]


URI_REFERENCE = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*:)?[A-Za-z0-9._~!$&'()*+,;=:@/%?#\[\]-]*")
MESSAGE = Kind(("text",), {"text": str, "markdown": str, "id": str})
REGION = Kind(
    ("startLine",), {"startLine": range(1, 10**9), "startColumn": range(1, 10**9), "endLine": range(1, 10**9)}
)
ARTIFACT = Kind(("uri",), {"uri": URI_REFERENCE, "uriBaseId": str, "index": int})
PLACE = Kind(("artifactLocation",), {"artifactLocation": ARTIFACT, "region": REGION})
RESULT = Kind(
    ("message",),
    {
        "ruleId": str,
        "ruleIndex": int,
        "level": ("none", "note", "warning", "error"),
        "message": MESSAGE,
        "locations": [Kind((), {"physicalLocation": PLACE})],
    },
)
RULE = Kind(("id",), {"id": str, "name": str, "shortDescription": MESSAGE, "helpUri": URI_REFERENCE})
DRIVER = Kind(("name",), {"name": str, "version": str, "informationUri": URI_REFERENCE, "rules": [RULE]})
RUN = Kind(
    ("tool",),
    {
        "tool": Kind(("driver",), {"driver": DRIVER}),
        "columnKind": ("utf16CodeUnits", "unicodeCodePoints"),
        "results": [RESULT],
    },
)
LOG = Kind(("version", "runs"), {"$schema": URI_REFERENCE, "version": ("2.1.0",), "runs": [RUN]})


def wrong(value: Any, kind: Any, where: str = "log") -> list[str]:
    """Return what the standard refuses."""
    if isinstance(kind, Kind):
        if not isinstance(value, dict):
            return [f"{where}: no object"]
        found = [f"{where}: lacks {name}" for name in kind.required if name not in value]
        found += [f"{where}: unknown {name}" for name in value if name not in kind.known]
        return found + [
            error
            for name, each in value.items()
            if name in kind.known
            for error in wrong(each, kind.known[name], f"{where}.{name}")
        ]
    if isinstance(kind, list):
        if not isinstance(value, list):
            return [f"{where}: no list"]
        return [error for number, each in enumerate(value) for error in wrong(each, kind[0], f"{where}[{number}]")]
    if isinstance(kind, re.Pattern):
        is_right = isinstance(value, str) and kind.fullmatch(value) is not None
    elif isinstance(kind, tuple | range):
        is_right = value in kind and not isinstance(value, bool)
    else:
        is_right = isinstance(value, kind)
    return [] if is_right else [f"{where}: got {value!r}"]


def logged(paths: list[Path]) -> Any:
    return json.loads(FORMATS["sarif"](findings_of(migrate_files(paths, "anyaccel"))))


@pytest.mark.parametrize("name", ["a.py", "with space #1.py", "größe/100%.py", "a:b.py", "bad.py", "none.py"])
def test_a_log_is_what_the_standard_says(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = Path(name)
    path.parent.mkdir(exist_ok=True)
    path.write_text({"bad.py": "cuda = (\n", "none.py": "x = 1\n"}.get(name, corpus.before("env")))
    for given in (path, path.absolute()):
        log = logged([given])
        assert wrong(log, LOG) == []
        rules = {rule["id"] for rule in log["runs"][0]["tool"]["driver"]["rules"]}
        assert rules >= set(RULES)
        results = log["runs"][0]["results"]
        assert bool(results) == (name != "none.py")
        for result in results:
            assert result["ruleId"] in rules
            uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
            assert urlsplit(uri).scheme == ("file" if given.is_absolute() else "")
            assert unquote(urlsplit(uri).path) == given.as_posix()


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (("version",), "2.0.0", "log.version: got '2.0.0'"),
        (("runs", 0, "columnKind"), "bytes", "log.runs[0].columnKind: got 'bytes'"),
        (("runs", 0, "tool"), {}, "log.runs[0].tool: lacks driver"),
        (("runs", 0, "results", 0, "level"), "bad", "log.runs[0].results[0].level: got 'bad'"),
        (("runs", 0, "results", 0, "code"), "x", "log.runs[0].results[0]: unknown code"),
    ],
)
def test_the_check_notices(
    place: tuple[Any, ...], value: object, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.py").write_text("import torch\nx = torch.ones(1).cuda()\n")
    log = logged([Path("a.py")])
    owner = log
    for step in place[:-1]:
        owner = owner[step]
    owner[place[-1]] = value
    assert wrong(log, LOG) == [message]
