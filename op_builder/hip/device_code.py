"""The recipe for an op's device code for AMD GPUs, with or without a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..engine import environment
from ..engine.cache import open_cache
from ..engine.device_code import DeviceCodeFacts
from ..engine.targets import wave_lanes
from ..engine.toolchains.amdgpu import COMPILE, LINK, AmdgpuClang, choose_amdgpu
from ..op import CSRC

if TYPE_CHECKING:
    from ..engine.build import Workplace
    from ..op import Op

__all__ = ["HipCodeRecipe", "device_code_recipe"]

_OPTIONS = (
    "-O3", "-std=c++20", "-mcode-object-version=5", "-ffp-contract=fast-honor-pragmas",
    "-Wno-pass-failed",  # pragmas ask for unrolling that is not always possible
    "-include", "hip_language.h",
)  # fmt: skip
_INCLUDE_DIRS = (CSRC / "includes", CSRC / "runtime", CSRC / "device_std")


@dataclass(frozen=True)
class HipCodeRecipe(DeviceCodeFacts):
    """The recipe for a code object, which is linked from an object file per kernel.

    Optimising a kernel takes up to a second, and reading the sources 0.03 s, so kernels are compiled alone and in parallel.
    """

    compiler: AmdgpuClang

    def _facts(self) -> dict[str, Any]:
        return {**super()._facts(), "compile": list(COMPILE), "link": list(LINK)}

    def produce(self, workplace: Workplace) -> dict[str, Any]:
        """Compile and link in a workplace, and return the kernels' symbols.

        Raises:
            BuildError: when the compiler rejects the source.
        """
        from ..engine.ninja_file import Command, run_ninja, write_ninja

        symbols = {kernel: f"anyaccel_kernel_{number}" for number, kernel in enumerate(self.kernels)}
        options = [*self.options, *(f"-I{folder}" for folder in self.include_dirs)]
        commands = []
        for number, (kernel, symbol) in enumerate(symbols.items()):
            text = f'#include "{self.source}"\nANYACCEL_HIP_KERNEL({symbol}, {kernel})\n'
            (workplace.folder / f"{number}.hip").write_text(text, encoding="utf-8")
            compiling = self.compiler.compiling(f"{number}.hip", options, f"{number}.o")
            commands.append(Command(compiling, f"{number}.o"))
        objects = tuple(command.output for command in commands)
        commands.append(Command(self.compiler.linking(objects, self.output), self.output, objects))
        write_ninja(commands, workplace.folder, workplace.limit_seconds)
        failure = run_ninja(commands, workplace.folder, workplace.jobs, workplace.environment, workplace.tick)
        if failure is not None:
            raise workplace.error(self.op, failure)
        return {"symbols": symbols}


def device_code_recipe(op: Op, target: str, *, any_compiler: bool = False) -> HipCodeRecipe:
    """Return the recipe for an op's device code for an AMD GPU.

    Args:
        op: the op.
        target: such as ``gfx942``.
        any_compiler: do not search for a compiler; the recipe then only names its result.

    Raises:
        ToolchainError: when ziglang is not found.
    """
    return HipCodeRecipe(
        op=op.name,
        source=CSRC / "runtime" / "kernels.hip",
        include_dirs=_INCLUDE_DIRS,
        target=target,
        compiler=AmdgpuClang("any") if any_compiler else choose_amdgpu(open_cache(environment.cache_dir()).root),
        options=(*_OPTIONS, op.header_macro(), f"-DANYACCEL_LANES={wave_lanes(target)}", "-target-cpu", target),
        output=f"{op.name}.hsaco",
        kernels=op.kernels_for("hip"),
    )
