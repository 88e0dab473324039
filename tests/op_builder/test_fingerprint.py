"""Fingerprints change with content and facts, and with nothing else."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from anyaccel.op_builder.engine.fingerprint import fingerprint, host_isa
from anyaccel.op_builder.engine.scan import scan

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def sources(tmp_path: Path) -> list[Path]:
    (tmp_path / "include").mkdir()
    (tmp_path / "op.cpp").write_text('  #  include "near.h"\n#include <vector>\n// #include "comment.h"\n')
    (tmp_path / "near.h").write_text('#include "deep.h"\n#include "absent.h"\n')
    (tmp_path / "include" / "deep.h").write_text('#include "../near.h"  // a cycle\n')
    return [tmp_path / "op.cpp"]


def test_finds_headers_through_headers_and_survives_cycles(sources: list[Path], tmp_path: Path) -> None:
    names = [os.path.basename(file.path) for file in scan(sources, [tmp_path / "include"])]
    assert names == ["op.cpp", "near.h", "deep.h"]


def test_changes_with_each_file_and_fact(sources: list[Path], tmp_path: Path) -> None:
    def taken(**facts: str) -> str:
        return fingerprint(sources, [tmp_path / "include"], facts)

    seen = {taken()}
    assert taken() in seen
    for file in ("op.cpp", "near.h", "include/deep.h"):
        (tmp_path / file).write_text((tmp_path / file).read_text() + "// changed\n")
        assert taken() not in seen
        seen.add(taken())
    assert taken(compiler="g++ 13") != taken(compiler="g++ 14")


def test_a_missing_source_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        fingerprint([tmp_path / "absent.cpp"], [], {})


def test_the_isa_is_that_of_this_machine() -> None:
    import platform

    assert host_isa().startswith(f"{platform.machine()}-")
    assert host_isa() == host_isa()
