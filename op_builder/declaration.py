"""What a builder declares of its op: its name, its sources, and the flags to compile them with."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import ClassVar

from . import loading
from .deepspeed_names import DeepSpeedNames
from .engine.errors import OpError

__all__ = ["OpDeclaration"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")


class OpDeclaration(DeepSpeedNames):
    """An op as its builder describes it: a name, sources, and flags.

    Args:
        name: the op's name; ``NAME`` by default.

    Attributes:
        NAME: the op's name, as in ``anyaccel report``.
        SOURCES: its source files; relative ones are looked for beside the file of the builder's class, then one folder up.
        STABLE_ABI: True when the sources register torch ops and include nothing of torch but ``torch/csrc/stable`` and
            ``torch/headeronly``: one binary then serves every Python and torch. Otherwise they are a Python module
            (``PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)``) and may include ``torch/extension.h``.
    """

    NAME: str = ""
    SOURCES: tuple[str, ...] = ()
    STABLE_ABI: ClassVar[bool] = False

    def __init__(self, name: str | None = None) -> None:
        self.name = name or self.NAME
        if _NAME.fullmatch(self.name) is None:
            msg = (
                f"making a {type(self).__name__} failed: got the name {self.name!r}; expected a name that C++ takes too, of "
                f"letters, digits and underscores. Fix: set NAME, or pass name."
            )
            raise OpError(msg)

    def absolute_name(self) -> str:
        """Return the name of the module in which a prebuilt op is installed."""
        return self.name

    def sources(self) -> list[str]:
        """Return the source files."""
        return self.strip_empty_entries(self.SOURCES)

    def include_paths(self) -> list[str]:
        """Return the op's own include directories, absolute, or relative as sources are."""
        return []

    def cxx_args(self) -> list[str]:
        """Return the C++ compiler's flags."""
        return ["-O3", "-std=c++20"]

    def nvcc_args(self) -> list[str]:
        """Return nvcc's flags."""
        return []

    def extra_ldflags(self) -> list[str]:
        """Return the linker's flags."""
        return []

    def libraries_args(self) -> list[str]:
        """Return the libraries to link, without ``lib``."""
        return []

    def source_root(self) -> Path:
        """Return the directory that relative paths begin at."""
        return loading.folder_of(type(self))

    def source_files(self) -> list[Path]:
        """Return the source files, absolute.

        Raises:
            OpError: when one does not exist.
        """
        return [self._located(str(path), "source") for path in self.strip_empty_entries(self.sources())]

    def include_dirs(self) -> list[Path]:
        """Return the op's own include directories, absolute.

        Raises:
            OpError: when one does not exist.
        """
        return [
            self._located(str(path), "include directory") for path in self.strip_empty_entries(self.include_paths())
        ]

    def _located(self, path: str, what: str) -> Path:
        root = str(self.source_root())
        places = [os.path.join(folder, path) for folder in (root, os.path.dirname(root), os.curdir)]
        is_there = os.path.isfile if what == "source" else os.path.isdir
        for place in places:
            if is_there(place):
                return Path(os.path.abspath(place))  # links stay: where one leads is asked whenever it counts
        tried = ", ".join(map(os.path.abspath, dict.fromkeys(places)))
        msg = f"finding a {what} of the op '{self.name}' failed: got {path!r}; expected one of {tried}. Fix: correct the path."
        raise OpError(msg)
