"""``anyaccel doctor``: its output when something is missing; it changes nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from anyaccel.op_builder.engine.toolchains.survey import PURPOSES

from ..programs import run_command_line


def _doctor(folder: Path, *arguments: str, **env: str) -> tuple[int, str]:
    environment = {**os.environ, "ANYACCEL_CACHE_DIR": str(folder / "cache"), "COLUMNS": "250", **env}
    finished = run_command_line(["doctor", *arguments], environment, Path.cwd())
    assert "Traceback" not in finished.stderr, finished.stderr
    return finished.returncode, finished.stdout


def _findings(folder: Path, **env: str) -> tuple[int, list[dict[str, Any]]]:
    status, shown = _doctor(folder, "--json", **env)
    return status, json.loads(shown)


def test_a_setting_that_stops_every_build_is_found(tmp_path: Path) -> None:
    name = "ANYACCEL_BUILD_JOBS"
    status, findings = _findings(tmp_path, **{name: "x"})
    (found,) = [finding for finding in findings if finding["what"] == "settings"]
    assert (status, found["accepted"]) == (1, False)
    assert name in found["detail"]


def test_every_toolchain_is_accepted_or_has_a_reason(tmp_path: Path) -> None:
    status, findings = _findings(tmp_path)
    assert status == 0
    assert {"settings", "cache", *PURPOSES, "Python.h"} == {finding["what"] for finding in findings}
    assert all(finding["detail"] for finding in findings)
    for what in PURPOSES:
        group = [finding for finding in findings if finding["what"] == what]
        served = any(finding["accepted"] for finding in group)
        assert served or all(finding["fix"] for finding in group), group
        assert not served or not any(finding["fix"] for finding in group), group


def test_the_table_shows_the_fix(tmp_path: Path) -> None:
    status, shown = _doctor(tmp_path, PATH=str(tmp_path), CXX="no-such-compiler")
    assert status == 1
    assert "CXX=no-such-compiler" in shown
    assert "unset CXX" in shown
    assert "rejected C++ builds ops for the CPU" in shown


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_a_cache_of_someone_else_is_found(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir(mode=0o700)
    os.chown(tmp_path / "cache", 12345, 12345)
    status, findings = _findings(tmp_path)
    assert status == 1
    (finding,) = [finding for finding in findings if finding["what"] == "cache"]
    assert "owned by user 12345" in finding["detail"]
    assert "set ANYACCEL_CACHE_DIR" in finding["fix"]


def test_looking_loads_no_driver_and_builds_nothing_for_keeps(tmp_path: Path) -> None:
    code = """
from anyaccel.cli.doctor import examine
examine()
assert not [line for line in open("/proc/self/maps") if "libcuda.so" in line or "libsycl" in line or "libze_" in line]
"""
    environment = {**os.environ, "ANYACCEL_CACHE_DIR": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    assert {file.name for file in (tmp_path / "cache").iterdir()} <= {"toolchains.json", "zig"}
