"""Colossal-AI's base classes for implementations, by its import paths: the cases in its README, and an author's code."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from anyaccel.kernel import kernel_loader
from anyaccel.op_builder import NoKernelError

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

# The cases in the README of Colossal-AI's extensions, unchanged except for the package's name.
CASES = {
    "simply load": """
from anyaccel.kernel.kernel_loader import CPUAdamLoader

# load the kernel compatible with the current hardware
kernel = CPUAdamLoader().load()
""",
    "a specific one": """
from anyaccel.kernel.kernel_loader import CPUAdamLoader

# load the kernel by giving the kernel name
kernel = CPUAdamLoader().load(ext_name="cpu_adam_{machine}")
""",
    "your own": """
from anyaccel.kernel.kernel_loader import CPUAdamLoader
from anyaccel.kernel.base_extension import _Extension

# create your own extension class
class MyExtension(_Extension):

    def __init__(self):
        self._name = "my_extension"
        self._support_aot = True
        self._support_jit = True
        self.priority = 10

    # implementation here
    ...

# register your extension
# you can use the priority value to make sure your kernel will be loaded by default
CPUAdamLoader.register_extension(MyExtension)

# load the kernel
kernel = CPUAdamLoader().load()
""",
}


@pytest.mark.parametrize("case", CASES)
def test_the_three_cases_of_their_readme_run_as_printed(
    case: str, run_with_torch: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    import platform

    machine = "x86" if platform.machine() in ("x86_64", "AMD64") else "arm"
    program = CASES[case].replace("{machine}", machine)
    finished = run_with_torch(f"{program}\nprint(kernel.CPUAdamOptimizer(1e-3, 0.9, 0.999, 1e-8, 0.0, True))")
    assert "CPUAdamOptimizer" in finished.stdout
    if case == "your own":  # nothing is implemented yet: the next one is used, with a warning
        assert "MyExtension does not define is_available. Fix: define it" in finished.stderr


OWN = """
from anyaccel.kernel.base_extension import _Extension
from anyaccel.kernel.kernel_loader import CPUAdamLoader, KernelLoader

class Mine(_Extension):
    def __init__(self):
        self._name = "mine"
        self._support_aot = False
        self._support_jit = True
        self.priority = 10

    def is_{available}(self):
        return True

    def assert_{compatible}(self):
        asked.append("compatible")

    def build_aot(self):
        raise NotImplementedError

    def build_jit(self):
        return "mine"

    def load(self):
        return self.build_jit()

asked = []
CPUAdamLoader.register_extension(Mine)
CPUAdamLoader.register_extension(Mine)
assert CPUAdamLoader().load() == "mine"
assert CPUAdamLoader().load(ext_name="mine") == "mine"
assert asked == ["compatible"] * 2
assert [type(one).__name__ if not isinstance(one, type) else one.__name__ for one in CPUAdamLoader.REGISTRY].count("Mine") == 1
mine = Mine()
assert mine.is_available() is mine.is_hardware_available() is True
mine.assert_compatible(), mine.assert_hardware_compatible(), mine.assert_build_compatible()
assert (mine.name, mine.support_aot, mine.support_jit) == ("mine", False, True)

class Elsewhere(Mine):
    def __init__(self):
        super().__init__()
        self._name, self.priority = "elsewhere", 20
    def is_{available}(self):
        return False

CPUAdamLoader.register_extension(Elsewhere)
assert CPUAdamLoader().load() == "mine"
"""


@pytest.mark.parametrize("names", [("available", "compatible"), ("hardware_available", "hardware_compatible")])
def test_an_extension_of_ones_own_serves_by_the_names_of_either_generation(
    names: tuple[str, str], run_with_torch: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    run_with_torch(OWN.replace("{available}", names[0]).replace("{compatible}", names[1]))


IN_CPP = """
import pathlib, sys
from anyaccel.kernel.cpp_extension import _CppExtension
from anyaccel.kernel.kernel_loader import KernelLoader

class Doubler(_CppExtension):
    def __init__(self):
        super().__init__(name="doubler_of_colossal")
    def is_available(self):
        return True
    def sources_files(self):
        return [self.csrc_abs_path("doubler.cpp"), ""]
    def include_dirs(self):
        return [self.csrc_abs_path("")]
    def cxx_flags(self):
        return ["-O1", ""]

class DoublerLoader(KernelLoader):
    REGISTRY = [Doubler]
"""

DOUBLER = """
#include <pybind11/pybind11.h>
#include <ATen/core/Tensor.h>
#include "factor.h"
int doubled(int x) { return x * FACTOR; }
bool is_defined() { return at::Tensor().defined(); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("doubled", &doubled), m.def("is_defined", &is_defined); }
"""


def test_a_cpp_extension_is_compiled_and_described_for_setuptools(
    tmp_path: Path, run_with_torch: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc/doubler.cpp").write_text(DOUBLER)
    (tmp_path / "csrc/factor.h").write_text("#define FACTOR 2")
    (tmp_path / "doubler.py").write_text(IN_CPP)
    run_with_torch(
        """
import torch
from doubler import Doubler, DoublerLoader
module = DoublerLoader().load()
assert module.doubled(3) == 6 and not module.is_defined()
extension = Doubler()
assert extension.load() is extension.load() is extension.build_jit()
described = extension.build_aot()
assert described.name == "anyaccel._C.doubler_of_colossal", described.name
assert [path.rsplit("/")[-1] for path in described.sources] == ["doubler.cpp"]
""",
        PYTHONPATH=str(tmp_path),
    )


def test_an_extension_that_cannot_be_made_or_lacks_sources_is_refused_when_it_is_registered() -> None:
    from anyaccel.kernel.cpp_extension import _CppExtension
    from anyaccel.kernel.cuda_extension import _CudaExtension

    class Loader(kernel_loader.KernelLoader):  # type: ignore[name-defined,misc]
        pass

    class Incomplete(_CudaExtension):
        pass

    class WithArguments(_CppExtension):
        def sources_files(self) -> list[str]:
            return []

    with pytest.raises(TypeError, match=r"it does not define nvcc_flags, sources_files\. Fix: define these"):
        Loader.register_extension(Incomplete)
    with pytest.raises(TypeError, match=r"creating it raised TypeError: .*'name'\. Fix: give it an __init__ without"):
        Loader.register_extension(WithArguments)
    with pytest.raises(NoKernelError):
        Loader().load()
