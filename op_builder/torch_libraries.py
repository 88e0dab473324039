"""Compiling and linking against torch: by its stable ABI, or by its whole C++ API."""

from __future__ import annotations

import os
import re
import shlex
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .engine.environment import compiler_variables, zig_cache
from .engine.fingerprint import host_isa
from .engine.native import Compiler
from .engine.scratch import in_scratch_folder
from .engine.targets import CPU_TARGETS, NATIVE, march
from .engine.toolchains.cxx import CxxCompiler, further_words, zig_for
from .engine.toolchains.probe import run_quietly

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .engine.targets import Platform

__all__ = [
    "OLDEST_TORCH", "WITHOUT_UBSAN", "cxx_compiler", "facts", "link_flags", "link_paths", "macros",
    "missing_python_headers", "note",
    "retargeted", "stand_in", "too_old_for_stable_abi", "torch_include_dirs", "unknown_compiler", "with_standard",
]  # fmt: skip

OLDEST_TORCH = (2, 10)
"""The oldest torch that stable-ABI ops run on; one binary serves it and every later version."""
WITHOUT_UBSAN = "-fno-sanitize=undefined"
"""How ziglang links: otherwise it first compiles a runtime library for UndefinedBehaviorSanitizer, which takes 6 s."""


def unknown_compiler(given: str | None) -> CxxCompiler:
    """Return a stand-in for any compiler, with the flags that ``CXX`` gives to it."""
    try:
        command = shlex.split(given) if given and not os.path.isfile(given) else []
    except ValueError:  # an unclosed quotation mark: no compiler has it
        command = []
    return CxxCompiler(("c++", *(further_words(command) if command else ())), "unknown")


_TARGET_VERSION = (OLDEST_TORCH[0] << 56) | (OLDEST_TORCH[1] << 48)


def too_old_for_stable_abi() -> str:
    """Return why this torch cannot run stable-ABI ops; empty when it can."""
    import torch

    if tuple(map(int, torch.__version__.split(".")[:2])) >= OLDEST_TORCH:
        return ""
    return f"got torch {torch.__version__}; expected {'.'.join(map(str, OLDEST_TORCH))} or newer"


def macros(stable_abi: bool, module_name: str) -> tuple[str, ...]:
    """Return the macros that torch's headers need."""
    if stable_abi:
        return (f"-DTORCH_TARGET_VERSION={_TARGET_VERSION:#018x}",)
    import torch

    uses_new_strings = int(torch.compiled_with_cxx11_abi())
    return (
        f"-DTORCH_EXTENSION_NAME={module_name}",
        "-DTORCH_API_INCLUDE_EXTENSION_H",
        f"-D_GLIBCXX_USE_CXX11_ABI={uses_new_strings}",
    )


def missing_python_headers() -> str:
    """Return why Python modules cannot be compiled; empty when they can."""
    header = Path(sysconfig.get_path("include")) / "Python.h"
    return "" if header.is_file() else f"{header} does not exist"


def with_standard(flags: Sequence[str]) -> list[str]:
    """Return a compiler's flags, adding the C++ standard that torch's headers need if they name none."""
    return list(flags) if any("-std=" in flag for flag in flags) else [*flags, "-std=c++20"]


def torch_include_dirs(stable_abi: bool) -> list[Path]:
    """Return the include directories of torch, and for its C++ API also Python's."""
    include = _torch_root() / "include"
    if stable_abi:
        return [include]
    return [include, include / "torch" / "csrc" / "api" / "include", Path(sysconfig.get_path("include"))]


def cxx_compiler(cxx: CxxCompiler, flags: Sequence[str], include_dirs: Sequence[Path], stable_abi: bool) -> Compiler:
    """Return a C++ compiler with its flags."""
    outside = tuple(torch_include_dirs(stable_abi))
    return Compiler(cxx.command, cxx.version, tuple(flags), tuple(include_dirs), outside, identity=cxx.identity)


def retargeted(compiler: Compiler, target: str, folders: Sequence[Path]) -> Compiler:
    """Return a compiler that builds for other machines.

    Args:
        compiler: a compiler for this machine.
        target: the other machines' CPU, such as ``x86-64-v3``.
        folders: the directories of the sources. Neither their paths on this machine nor their names appear in the result,
            so that ``__FILE__`` is the same in every checkout.
    """
    flags = [march(target) if flag == "-march=native" else flag for flag in compiler.flags]
    if target in CPU_TARGETS["aarch64"]:
        flags = [flag for flag in flags if not flag.startswith("-mprefer-vector-width=")]
    if compiler.is_nvcc:
        return compiler._replace(flags=tuple(flags))
    places = {
        _torch_root(): "torch",
        **dict.fromkeys(compiler.include_dirs, "include"),
        **dict.fromkeys(folders, "csrc"),
    }
    named = (f"-fmacro-prefix-map={place}={name}" for place, name in places.items())
    return compiler._replace(flags=tuple(flags), other=(*compiler.other, *named))


def facts(stable_abi: bool, target: str) -> dict[str, Any]:
    """Return the facts that decide a binary, apart from its sources and compilers."""
    import torch

    isa = host_isa() if target == NATIVE else target
    given = compiler_variables()
    told = {"environment": given} if given else {}
    if stable_abi:
        return {"target": isa, "abi": f"torch {OLDEST_TORCH}", **told}
    return {"target": isa, "abi": f"torch {torch.__version__}", "python": sysconfig.get_config_var("SOABI"), **told}


def link_flags(stable_abi: bool) -> tuple[str, ...]:
    """Return the flags for torch's libraries."""
    if stable_abi:
        return ("-Wl,-z,defs", "-ltorch_cpu")
    return ("-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python")


def link_paths() -> tuple[str, ...]:
    """Return the flags with the paths of torch's libraries."""
    return (f"-L{_torch_root() / 'lib'}",)


def stand_in(platform: Platform, root: Path) -> str:
    """Return the linker flag for a stub of another machine's libtorch_cpu, which defines only the names.

    Linking against the stub detects names that torch's stable ABI does not have, like linking against torch.

    Args:
        platform: the other machine's platform.
        root: the cache directory.

    Raises:
        OSError, subprocess.SubprocessError: when the stub cannot be built.
    """
    import torch

    folder = zig_cache(root) / f"torch-{torch.__version__}-{platform.triple}"
    library = folder / "libtorch_cpu.so"
    if not library.is_file():
        command = [
            *zig_for(platform.triple, root).command,
            "-shared",
            "-nostdlib++",  # ziglang would compile its own first
            *("-s", WITHOUT_UBSAN),
            "-Wl,-soname,libtorch_cpu.so",
            "names.cpp",
            "-o",
            "made.so",
        ]

        def make(scratch: Path) -> None:
            names = "".join(f"void {name}() {{}}\n" for name in _stable_names())
            (scratch / "names.cpp").write_text(f'extern "C" {{\n{names}}}\n', encoding="utf-8")
            run_quietly(command, root, scratch)
            folder.mkdir(parents=True, exist_ok=True)
            os.replace(scratch / "made.so", library)

        in_scratch_folder(root, f"building a stub of libtorch_cpu for {platform.machine}", make)
    return f"-L{folder}"


def _stable_names() -> list[str]:
    """Return the C functions that the headers of torch's stable ABI declare."""
    headers = (_torch_root() / "include" / "torch" / "csrc").rglob("*shim*.h")
    text = "\n".join(header.read_text(encoding="utf-8") for header in headers)
    return sorted(set(re.findall(r"\b(?:aoti_)?torch_\w+(?=\()", text)))


def note(cache_root: Path) -> str:
    """Return a note on why the first build by ziglang is slow."""
    if not (zig_cache(cache_root) / "o").is_dir():
        return "ziglang first builds its own C++ library, which takes about a minute, once"
    return ""


def _torch_root() -> Path:
    import torch

    return Path(torch.__file__).parent
