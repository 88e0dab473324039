"""Compiles the stand-in for CUDA's runtime and driver against the headers of the installed torch's CUDA."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
RUNTIME, DRIVER = "libcudart.so.13", "libcuda.so.1"
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


def symbols(library: Path, *, is_defined: bool = True) -> set[str]:
    """Return the functions that a library exports, or imports."""
    which = "--defined-only" if is_defined else "--undefined-only"
    command = ["nm", "--dynamic", "--just-symbols", which, str(library)]
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    return {line.partition("@")[0] for line in ran.stdout.split()}


def stubs(names: set[str]) -> str:
    """Return C++ source of functions that print their name and fail with cudaErrorNotSupported."""
    lines = ["#include <cstdio>"]
    for name in sorted(names):
        body = f'std::fputs("stand-in: {name} is not implemented\\n", stderr); return 801;'
        lines.append(f'extern "C" __attribute__((visibility("default"))) int {name}() {{ {body} }}')
    return "\n".join(lines) + "\n"


def build(folder: Path) -> None:
    """Compile both libraries into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    cuda = cuda_folder()
    include, runtime = f"-I{cuda / 'include'}", folder / RUNTIME
    exported = {name for name in symbols(cuda / "lib" / RUNTIME) if "cuda" in name}
    script = folder / "versions"
    script.write_text(f'{RUNTIME} {{ global: cuda*; __cuda*; extern "C++" {{ stand_in::*; }}; local: *; }};\n')
    generated = folder / "stubs.cpp"
    sources = [HERE / "device.cpp", HERE / "runtime.cpp"]
    link = [f"-Wl,-soname,{RUNTIME}", f"-Wl,--version-script={script}", "-o", runtime]
    generated.write_text("")
    subprocess.run([*_COMPILER, include, *sources, generated, *link], check=True)
    generated.write_text(stubs(exported - symbols(runtime)))
    subprocess.run([*_COMPILER, "-w", include, *sources, generated, *link], check=True)
    driver = [HERE / "driver.cpp", generated, runtime, f"-Wl,-soname,{DRIVER}", "-Wl,-rpath,$ORIGIN"]
    declared = set(re.findall(r"CUDAAPI (cu[A-Z]\w+)\(", (cuda / "include" / "cuda.h").read_text(encoding="utf-8")))
    generated.write_text("", encoding="utf-8")
    subprocess.run([*_COMPILER, include, *driver, "-o", folder / DRIVER], check=True)
    generated.write_text(stubs(declared - symbols(folder / DRIVER)), encoding="utf-8")
    subprocess.run([*_COMPILER, "-w", include, *driver, "-o", folder / DRIVER], check=True)


if __name__ == "__main__":
    build(Path(sys.argv[1]).resolve())
