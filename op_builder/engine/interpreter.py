"""The Python that starts compilers: this process's own, except where Python is embedded in another program."""

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

    A program that embeds Python has no ``sys.executable``, or has itself there.

    Raises:
        ToolchainError: when there is none.
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
        f"looking for Python failed: got sys.executable {sys.executable!r}, and no {version} in {sys.prefix} or PATH; expected "
        f"an interpreter, which starts compilers. Fix: put python3 into PATH, or set sys.executable to it."
    )
    raise ToolchainError(msg)
