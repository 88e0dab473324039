"""float16 on the CPU by integers, as GCC gets it: every value is right, and every loop is vectorised."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from anyaccel.op_builder.builder import CPU_FLAGS
from anyaccel.op_builder.op import CSRC, FLOATS
from anyaccel.op_builder.table import OPS

FLAGS = [*(flag for flag in CPU_FLAGS if not flag.startswith(("-march", "-W"))), "-fopenmp-simd", "-w"]
INCLUDES = [f"-I{CSRC / folder}" for folder in ("includes", "runtime")]
QUICK = ("multi_tensor_adam", "rms_norm", "sgd")


@pytest.fixture(scope="module")
def gcc() -> str:
    """g++ on x86-64, whose reports of what it vectorised are read."""
    compiler = shutil.which("g++")
    if compiler is None or "clang" in subprocess.check_output([compiler, "--version"], text=True):
        pytest.skip("no g++")
    if subprocess.check_output([compiler, "-dumpmachine"], text=True).split("-")[0] != "x86_64":
        pytest.skip("g++ is not for x86-64, where float16 is by integers")
    return compiler


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_conversions_are_those_of_the_compilers_type(gcc: str, tmp_path: Path, level: str) -> None:
    # the compiler's own type has no instructions at these levels but F16C's, which v2 lacks: a library rounds there
    program = tmp_path / "float16"
    source = Path(__file__).with_name("float16.cpp")
    subprocess.run([gcc, *FLAGS, f"-march={level}", *INCLUDES, source, "-o", program], check=True)
    if subprocess.run([program, str(1 << 32)], check=False).returncode < 0:
        pytest.skip(f"this CPU is below {level}")
    assert subprocess.check_output([program, "61"], text=True) == "0\n"


def vectorised_loads(gcc: str, name: str, instances: list[str]) -> int:
    """Return how many loops that load tiles of one element g++ vectorises in kernels on the CPU's group."""
    lines = (CSRC / "includes" / "tile.h").read_text(encoding="utf-8").splitlines()
    load = lines.index("    tile[0] = to_float(row[range.first]);") + 1  # where GCC says that the loop is
    source = [f"#include <{header}>" for header in ("cmath", "memory")]  # device code brings its own
    source += ['#include "cpu_group.h"', f'#include "{name}.h"', "using namespace anyaccel;"]
    source += [
        f"template void anyaccel::{kernel}::operator()<CpuGroup>(const CpuGroup&) const;" for kernel in instances
    ]
    options = ["-march=x86-64-v4", "-mprefer-vector-width=512", "-fopt-info-vec-optimized", "-S", "-o", "/dev/null"]
    compiled = subprocess.run(
        [gcc, "-x", "c++", "-", *FLAGS, *options, *INCLUDES],
        input="\n".join(source),
        capture_output=True,
        text=True,
        check=True,
    )
    return len(re.findall(rf"/tile\.h:{load}:\d+: optimized: loop vectorized", compiled.stderr))


@pytest.mark.parametrize(
    "name", [op.name if op.name in QUICK else pytest.param(op.name, marks=pytest.mark.slow) for op in OPS if op.kernels]
)
def test_loops_over_16_bit_floats_are_vectorised_where_those_over_float32_are(gcc: str, name: str) -> None:
    """A branch in a conversion or in a formula leaves a loop scalar, which takes 10 to 30 times as long."""
    kernels = next(op.kernels for op in OPS if op.name == name)
    loops = {}
    for dtype in FLOATS:
        others = [other for other in FLOATS if other != dtype]
        instances = [
            one
            for one in kernels
            if dtype in re.findall(r"\w+", one) and not set(others) & set(re.findall(r"\w+", one))
        ]
        loops[dtype] = vectorised_loads(gcc, name, instances)
    assert loops["BFloat16"] >= loops["float"]
    assert loops["Half"] >= loops["float"]
