"""Finds the Python that starts compilers: this process's own, except if another program embeds Python."""

from __future__ import annotations

import os
import re
import shutil
import sys
import sysconfig
from pathlib import Path

from .errors import ToolchainError

__all__ = ["find_python"]

_NAMES_PYTHON = re.compile(r"(python|pypy|graalpy)[\w.-]*$")


def find_python() -> str:
    """Return the path of a Python interpreter.

    In a program that embeds Python, ``sys.executable`` is empty or is the program itself.

    Raises:
        ToolchainError: when none is found.
    """
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    folders = [
        os.path.join(sys.prefix, "bin"),
        os.path.join(sys.base_prefix, "bin"),
        sysconfig.get_config_var("BINDIR"),
    ]
    candidates = [sys.executable, getattr(sys, "_base_executable", None)]
    candidates += [os.path.join(folder, name) for folder in folders if folder for name in (version, "python3")]
    candidates += [shutil.which(name) for name in (version, "python3")]
    for candidate in candidates:
        if candidate and _NAMES_PYTHON.match(os.path.basename(candidate)) and os.access(candidate, os.X_OK):
            return str(Path(candidate).absolute())
    msg = (
        f"looking for Python failed: sys.executable is {sys.executable!r}, and {version} is not in {sys.prefix} or PATH. "
        f"Builds need an interpreter to start compilers. Fix: put python3 into PATH, or set sys.executable to it."
    )
    raise ToolchainError(msg)
