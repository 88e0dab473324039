"""The programs and files that a compiler's script leads to, in every way in which scripts name them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from anyaccel.op_builder.engine.toolchains.identity import identify

if TYPE_CHECKING:
    from pathlib import Path

SCRIPTS: dict[
    str, tuple[str, str]
] = {  # the script, and the file that it starts or reads, below the folder of its own folder
    "dirname": ('exec "$(dirname "$0")/inner" "$@"', "bin/inner"),
    "dirname without quotes": ("exec $(dirname $0)/inner", "bin/inner"),
    "backticks": ("exec `dirname $0`/inner", "bin/inner"),
    "its own name": ('exec "${0%/*}/inner" "$@"', "bin/inner"),
    "bash's name for it": ('. "${BASH_SOURCE[0]%/*}/flags.sh"', "bin/flags.sh"),
    "a variable": ("here=${0%/*}\n. $here/flags.sh", "bin/flags.sh"),
    "a variable in quotes": ('here=$(cd "$(dirname "$0")" && pwd)\n. "$here"/flags.sh', "bin/flags.sh"),
    "a name with a space": ('. "$here/my flags"', "bin/my flags"),
    "a folder above": ('exec c++ $(cat "$(dirname "$0")/../etc/flags")', "bin/../etc/flags"),
    "after cd": ('cd "$(dirname "$0")"; . ./flags.sh', "bin/flags.sh"),
    "PATH": ('PATH="$(dirname "$0")/tools:$PATH" exec inner', "bin/tools/inner"),
    "a variable of the environment": ('exec c++ @"${my_root}/flags"', "root/flags"),
    "the home directory": ("exec c++ $(cat ~/.cxxflags)", "home/.cxxflags"),
    "HOME": ('exec c++ @"$HOME/.cxxflags"', "home/.cxxflags"),
    "a file that is not there": ('[ -f "$here/more" ] && . "$here/more"', "bin/more"),
}


def _found(folder: Path, script: str) -> tuple[set[str], set[str]]:
    """Return the programs and variables of a script in ``bin``."""
    for name in ("bin", "home", "root", "empty"):
        (folder / name).mkdir(exist_ok=True)
    wrapper = folder / "bin" / "wrapper"
    wrapper.write_text(script)
    wrapper.chmod(0o755)
    environment = {**os.environ, "HOME": str(folder / "home"), "my_root": str(folder / "root")}
    identity = identify([str(wrapper)], environment, [], [], folder / "empty")
    return set(identity.programs), set(identity.variables)


@pytest.mark.parametrize(("script", "file"), SCRIPTS.values(), ids=SCRIPTS)
def test_a_file_that_a_script_names_counts(tmp_path: Path, script: str, file: str) -> None:
    if "more" not in file:
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "bin").mkdir(exist_ok=True)
        (tmp_path / file).write_text("text")
        (tmp_path / file).chmod(0o755)
    programs, _ = _found(tmp_path, f"#!/bin/sh\n{script}\n")
    assert os.path.normpath(tmp_path / file) in set(map(os.path.normpath, programs))


def test_what_a_file_of_a_script_names_counts(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name, text in (("one.sh", ". $here/two.sh\n"), ("two.sh", "F=$my_flags\n")):
        (tmp_path / "bin" / name).write_text(text)
    programs, variables = _found(tmp_path, '#!/bin/sh\nhere=${0%/*}\n. "$here/one.sh"\nexec c++ $F "$@"\n')
    assert {str(tmp_path / "bin" / name) for name in ("wrapper", "one.sh", "two.sh")} <= programs
    assert "my_flags" in variables


def test_modules_and_variables_of_a_script_in_python_count(tmp_path: Path) -> None:
    (tmp_path / "bin" / "wrap").mkdir(parents=True)
    for name in ("conf.py", "wrap/__init__.py", "wrap/flags.py"):
        (tmp_path / "bin" / name).write_text("")
    script = "import os\nfrom wrap.flags import FLAGS\nos.environ['my_answer'], os.getenv('other'), os.environ.get('third')\n"
    programs, variables = _found(tmp_path, f"#!/usr/bin/python3\n{script}")
    assert {str(tmp_path / "bin" / name) for name in ("conf.py", "wrap/__init__.py", "wrap/flags.py")} <= programs
    assert {"my_answer", "other", "third"} <= variables


def test_where_the_caller_is_does_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "flags").write_text("text")
    monkeypatch.setenv("PWD", str(tmp_path / "elsewhere"))
    programs, _ = _found(
        tmp_path, '#!/bin/sh\nback=$PWD; cd "$(dirname "$0")"; . ./flags; cd "$back"; exec c++ $F "$@"\n'
    )
    assert str(tmp_path / "elsewhere" / "flags") not in programs


def test_a_binary_beside_a_script_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "inner").write_bytes(b"\x7fELF\0 $HOME/secret")
    programs, variables = _found(tmp_path, '#!/bin/sh\nexec "$(dirname "$0")/inner"\n')
    assert str(tmp_path / "bin" / "inner") in programs
    assert "HOME" not in variables
