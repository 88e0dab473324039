"""Writes a build.ninja for one shared library, and runs it."""

from __future__ import annotations

import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import ninja
import psutil

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["SharedLibrary", "default_jobs", "run_ninja", "write_ninja"]

_BYTES_PER_JOB = 2 << 30  # what a compiler process may take on a file with torch's headers


@dataclass(frozen=True)
class SharedLibrary:
    """What to compile and link.

    Attributes:
        compiler: the C++ compiler's command.
        sources: the source files.
        compile_flags: the flags for each source.
        link_flags: the flags for linking.
        compile_paths: flags that only say where headers lie; their content counts, not their place.
        link_paths: flags that only say where libraries lie.
        name: the library's file name.
    """

    compiler: tuple[str, ...]
    sources: tuple[Path, ...]
    compile_flags: tuple[str, ...]
    link_flags: tuple[str, ...]
    compile_paths: tuple[str, ...]
    link_paths: tuple[str, ...]
    name: str


def write_ninja(library: SharedLibrary, folder: Path) -> Path:
    """Write ``build.ninja`` for a library into a folder, and return the file."""
    objects = [f"{index}-{source.stem}.o" for index, source in enumerate(library.sources)]
    compiler = _words(library.compiler)
    lines = [
        "ninja_required_version = 1.5",
        "rule compile",
        f"  command = {compiler} {_words(library.compile_flags + library.compile_paths)} -MMD -MF $out.d -c $source -o $out",
        "  depfile = $out.d",
        "  deps = gcc",
        "rule link",
        f"  command = {compiler} -shared $in {_words(library.link_paths + library.link_flags)} -o $out",
    ]
    for source, built in zip(library.sources, objects, strict=True):
        lines += [f"build {built}: compile {_path(source)}", f"  source = {_words([str(source)])}"]
    lines += [f"build {_path(Path(library.name))}: link {' '.join(objects)}", ""]
    file = folder / "build.ninja"
    file.write_text("\n".join(lines))
    return file


def run_ninja(folder: Path, jobs: int, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the build in a folder; the result holds everything the compiler printed."""
    program = Path(ninja.BIN_DIR) / "ninja"
    return subprocess.run(  # noqa: S603
        [str(program), "-C", str(folder), "-j", str(jobs), "--quiet"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
        check=False,
    )


def default_jobs() -> int:
    """Return how many compilers to run at once: one a core, fewer where memory is short."""
    cores = len(psutil.Process().cpu_affinity()) if hasattr(psutil.Process, "cpu_affinity") else psutil.cpu_count() or 1
    return max(1, min(cores, psutil.virtual_memory().available // _BYTES_PER_JOB))


def _words(words: Sequence[str]) -> str:
    """Quote words for the shell that ninja starts, then for ninja."""
    return shlex.join(words).replace("$", "$$").replace("\n", "$\n")


def _path(path: Path) -> str:
    """Escape a path for a build line."""
    return str(path).replace("$", "$$").replace(" ", "$ ").replace(":", "$:")
