"""Builds the wheel. ``BUILD_EXT=1 pip install .`` puts prebuilt ops into it; without, ops are built where they are used.

``CUDA_EXT=1`` and ``DS_BUILD_OPS=1`` mean the same; ``DS_BUILD_LION=1`` is for that op alone, and ``=0`` leaves it out. The
prebuilt ops use torch's stable ABI and CPU code for every level of this machine's architecture, so that one wheel serves every
Python and every torch from 2.10 on. ``ANYACCEL_PLATFORM=manylinux_2_28_aarch64`` builds for that platform instead, by ziglang.
"""

from __future__ import annotations

import functools
import gzip
import logging
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist
from setuptools.compat.py310 import tomllib

_SWITCHES = ("BUILD_EXT", "CUDA_EXT", "DS_BUILD_OPS")
_SWITCH_OF_AN_OP = "DS_BUILD_"
_VERSION_OF_DEEPSPEED = "DS_BUILD_STRING"
_PLATFORM = "ANYACCEL_PLATFORM"
_CODE = (".py", ".h", ".cpp", ".cu", ".hip", ".ptx", ".sycl", "")  # csrc/device_std has headers without a suffix
_LONG_AGO = 1580601600  # 2020-02-02, as hatchling does
_logger = logging.getLogger(__name__)
_ROOT = Path(__file__).resolve().parent
_BUILD = "from anyaccel.cli import main; main()"
_RUNS = "import filelock, ninja, packaging, platformdirs, psutil, rich, torch, typer"
_RUNS_CUDA = "import cuda.bindings.nvrtc"


@functools.cache
def _is_on(switch: str) -> bool:
    value = os.environ.get(switch) or "0"
    if not value.isdecimal() and switch in _SWITCHES:
        _logger.warning("%s=%s is no number: no ops are prebuilt for it. Fix: %s=1", switch, value, switch)
    return value.isdecimal() and int(value) != 0


def _is_wanted() -> bool:
    """Return whether a variable asks for ops; one for an op of deepspeed's that is not here adds nothing in the end."""
    named = (name for name in os.environ if name.startswith(_SWITCH_OF_AN_OP) and name != _VERSION_OF_DEEPSPEED)
    return any([*map(_is_on, _SWITCHES), *map(_is_on, named)])


def _outside_isolation(*paths: str) -> dict[str, str]:
    """Return an environment in which Python sees what the user installed: pip hides it behind a PYTHONPATH of its own."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONNOUSERSITE"}
    return {**environment, "PYTHONPATH": os.pathsep.join(paths)}


def _user_can(code: str) -> bool:
    tried = subprocess.run([sys.executable, "-c", code], env=_outside_isolation(), capture_output=True, check=False)
    return tried.returncode == 0


def _requirements() -> list[str]:
    """Return what pip must install beside what the user has, to build the ops."""
    if not _is_wanted():
        return []
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    runs = [] if _user_can(_RUNS) else project["dependencies"]
    return [
        *runs,
        *([] if _user_can(_RUNS_CUDA) else project["optional-dependencies"]["cuda"]),
    ]  # anyaccel: ignore[device-name]


def _packages() -> list[str]:
    """Return the packages that pyproject.toml names, and that of every folder with code below them."""
    roots = tomllib.loads((_ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["setuptools"]["package-dir"]
    found = set(roots)
    for package, root in roots.items():
        for file in (_ROOT / root).rglob("*"):
            folders = file.parent.relative_to(_ROOT / root).parts
            is_made = any(folder.startswith((".", "_")) or folder.endswith(".egg-info") for folder in folders)
            if file.is_file() and file.suffix in _CODE and not is_made:
                found.add(".".join((package, *folders)))
    return sorted(found)


class BuildWithOps(build_py):
    """Copies the package, and then builds its ops into ``_C``."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:  # a wheel that was built here before has left its ops
            shutil.rmtree(Path(self.build_lib) / "anyaccel" / "_C", ignore_errors=True)
        if not _is_wanted():
            return
        if self.editable_mode:
            _logger.warning("an editable install builds ops where they are used: anyaccel build --all")
            return
        package = Path(self.build_lib).resolve()
        installed_by_pip = [path for path in sys.path if path.endswith("site-packages")]
        command = [sys.executable, "-c", _BUILD, "build", "--all", "--output", str(package / "anyaccel" / "_C")]
        environment = _outside_isolation(str(package), *installed_by_pip)
        every_op = str(int(any(map(_is_on, _SWITCHES))))
        subprocess.run(command, env={**environment, "DS_BUILD_OPS": every_op}, check=True)
        self.distribution.has_ops = any((package / "anyaccel" / "_C").iterdir())


class ReproducibleSdist(sdist):
    """Makes an archive whose bytes depend only on the files: not on who built it, when, and with which umask."""

    def make_archive(self, *args: Any, **options: Any) -> str:
        made = Path(super().make_archive(*args, **options))
        if made.name.endswith(".tar.gz"):
            _normalise(made, int(os.environ.get("SOURCE_DATE_EPOCH") or _LONG_AGO))
        return str(made)


def _normalise(archive: Path, seconds: int) -> None:
    """Write an archive again, with one time, owner and kind of permissions for all of its files."""
    written = archive.with_suffix(".new")
    with (
        tarfile.open(archive) as read,
        written.open("wb") as file,
        gzip.GzipFile("", "wb", mtime=seconds, fileobj=file) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for member in sorted(read.getmembers(), key=lambda member: member.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = seconds, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            tar.addfile(member, read.extractfile(member) if member.isfile() else None)
    os.replace(written, archive)


class WheelWithOps(bdist_wheel):
    """Names the wheel for this platform, and for every Python: the ops use no Python ABI but the stable one."""

    def run(self) -> None:
        self.run_command("build")  # first, as a wheel without ops is one for every platform
        self.root_is_pure = not self.distribution.has_ext_modules()
        super().run()

    def get_tag(self) -> tuple[str, str, str]:
        python, abi, platform = super().get_tag()
        return (python, abi, platform) if self.root_is_pure else ("py3", "none", os.environ.get(_PLATFORM) or platform)


class Anyaccel(Distribution):
    """A package with binaries, when ops are prebuilt; ``has_ops`` is None until they are, or there turn out to be none."""

    has_ops: bool | None = None

    def has_ext_modules(self) -> bool:
        return _is_wanted() if self.has_ops is None else self.has_ops


setup(
    packages=_packages(),
    distclass=Anyaccel,
    cmdclass={"build_py": BuildWithOps, "bdist_wheel": WheelWithOps, "sdist": ReproducibleSdist},
    setup_requires=_requirements(),
)
