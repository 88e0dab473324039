"""Compiles the stand-in for CUDA's runtime, driver and cuBLAS against the headers of the installed torch's CUDA."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).parent
RUNTIME, DRIVER, PRODUCTS = "libcudart.so.13", "libcuda.so.1", "libstand_in_cublas.so"
UNSUPPORTED = {
    "cuda": 801,
    "cublas": 15,
}  # cudaErrorNotSupported, CUDA_ERROR_NOT_SUPPORTED, CUBLAS_STATUS_NOT_SUPPORTED
_COMPILER = ("g++", "-std=c++20", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-fvisibility=hidden")


def cuda_folder() -> Path:
    """Return the folder of pip's CUDA 13 in this environment.

    Raises:
        FileNotFoundError: when it is not installed.
    """
    for entry in sys.path:
        found = Path(entry) / "nvidia" / "cu13"
        if (found / "lib" / RUNTIME).is_file() and (found / "include" / "cuda_runtime_api.h").is_file():
            return found
    msg = "finding pip's CUDA 13 failed: none is installed here. Fix: pip install torch==2.11.0"
    raise FileNotFoundError(msg)


def torch_libraries() -> list[Path]:
    """Return the libraries of the installed torch."""
    found = importlib.util.find_spec("torch")
    assert found is not None
    assert found.origin is not None
    return sorted((Path(found.origin).parent / "lib").glob("libtorch_cuda*.so"))


def symbols(library: Path, *, is_defined: bool = True) -> set[str]:
    """Return the functions that a library exports, or imports."""
    which = "--defined-only" if is_defined else "--undefined-only"
    command = ["nm", "--dynamic", "--just-symbols", which, str(library)]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    return {line.partition("@")[0] for line in ran.stdout.split()}


def stubs(names: set[str], status: int) -> str:
    """Return C++ source of functions that print their name and fail with a status."""
    lines = ["#include <cstdio>"]
    for name in sorted(names):
        body = f'std::fputs("stand-in: {name} is not implemented\\n", stderr); return {status};'
        lines.append(f'extern "C" __attribute__((visibility("default"))) int {name}() {{ {body} }}')
    return "\n".join(lines) + "\n"


def build(folder: Path) -> None:
    """Compile all libraries into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    cuda = cuda_folder()
    exported = {name for name in symbols(cuda / "lib" / RUNTIME) if "cuda" in name}
    script = folder / "versions"
    script.write_text(
        f'{RUNTIME} {{ global: cuda*; __cuda*; extern "C++" {{ stand_in::*; }}; local: *; }};\n', encoding="utf-8"
    )
    sources = [HERE / "device.cpp", HERE / "runtime.cpp", f"-Wl,--version-script={script}"]
    _library(folder / RUNTIME, sources, exported, UNSUPPORTED["cuda"])
    declared = set(re.findall(r"CUDAAPI (cu[A-Z]\w+)\(", (cuda / "include" / "cuda.h").read_text(encoding="utf-8")))
    _library(folder / DRIVER, [HERE / "driver.cpp", folder / RUNTIME], declared, UNSUPPORTED["cuda"])
    imported = {name for library in torch_libraries() for name in symbols(library, is_defined=False)}
    products = {name for name in imported if name.startswith("cublas")}
    sources = [HERE / name for name in ("product.cpp", "cublas.cpp", "cublas_lt.cpp")]
    _library(folder / PRODUCTS, [*sources, folder / RUNTIME], products, UNSUPPORTED["cublas"])


def _library(library: Path, sources: Sequence[Path | str], names: set[str], status: int) -> None:
    """Compile a library, and again with stubs for those names that its sources lack."""
    generated = library.with_suffix(".stubs.cpp")
    command = [*_COMPILER, f"-I{cuda_folder() / 'include'}", *sources, "-ldl", f"-Wl,-soname,{library.name}"]
    command += ["-Wl,-rpath,$ORIGIN", "-o", library]
    subprocess.run(command, check=True)
    generated.write_text(stubs(names - symbols(library), status), encoding="utf-8")
    # -w: the compiler knows other signatures of some names
    subprocess.run([*command, "-w", generated], check=True)


if __name__ == "__main__":
    build(Path(sys.argv[1]).resolve())
