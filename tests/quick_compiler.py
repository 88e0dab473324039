"""A compiler that does not optimise, for tests in which how fast the ops are plays no part."""

from __future__ import annotations

import shlex
import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["quick_compiler"]


def quick_compiler(folder: Path) -> dict[str, str]:
    """Write the system's compiler without its optimiser to a folder.

    Returns:
        The variable that chooses it; empty where the system has no compiler.
    """
    system = shutil.which("c++")
    if system is None:
        return {}
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "c++"
    file.write_text(f'#!/bin/sh\nexec {shlex.quote(system)} "$@" -O0\n')
    file.chmod(0o755)
    return {"CXX": shlex.quote(str(file))}
