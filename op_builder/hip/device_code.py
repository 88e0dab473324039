"""The recipes for an op's device code for AMD GPUs, with or without a GPU."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..engine import environment
from ..engine.cache import open_cache
from ..engine.device_code import DeviceCodeFacts, DeviceCodeRecipe
from ..engine.targets import wave_lanes
from ..engine.toolchains.amdgpu import COMPILE, LINK, AmdgpuClang, choose_amdgpu
from ..op import CSRC

if TYPE_CHECKING:
    from ..engine.build import Workplace
    from ..op import Op

__all__ = ["HipCodeRecipe", "HiprtcCodeRecipe", "device_code_recipe"]

_OPTIONS = (
    "-O3", "-std=c++20", "-mcode-object-version=5", "-ffp-contract=fast-honor-pragmas",
    "-Wno-pass-failed",  # pragmas ask for unrolling that is not always possible
    "-include", "hip_language.h",
)  # fmt: skip
_PASSES = ("-mllvm", "-disable-lsr", "-mllvm", "-enable-gvn-memdep=false")
"""Without LLVM's loop strength reduction, whose pointers take more registers and instructions than the addresses they replace,
and without a search for equal loads that finds almost none; a fifth less compile time (decision 67)."""
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


@dataclass(frozen=True)
class HiprtcCodeRecipe(DeviceCodeRecipe):
    """The recipe for a code object by hipRTC, which compiles all kernels in one call.

    Attributes:
        in_place_of: clang's recipe, whose result has the same name in a wheel.
    """

    in_place_of: HipCodeRecipe | None = None

    def key(self) -> str:
        return self.in_place_of.key() if self.in_place_of else super().key()


def device_code_recipe(op: Op, target: str, *, any_compiler: bool = False) -> HipCodeRecipe | HiprtcCodeRecipe:
    """Return the recipe for an op's device code for an AMD GPU.

    Args:
        op: the op.
        target: such as ``gfx942``.
        any_compiler: do not search for a compiler; the recipe then only names its result.

    Raises:
        ToolchainError: when neither ziglang nor hipRTC is found.
    """
    options = (*_OPTIONS, op.header_macro(), f"-DANYACCEL_LANES={wave_lanes(target)}")
    compiler = AmdgpuClang("any") if any_compiler else choose_amdgpu(open_cache(environment.cache_dir()).root)
    by_clang = HipCodeRecipe(
        op=op.name,
        source=CSRC / "runtime" / "kernels.hip",
        include_dirs=_INCLUDE_DIRS,
        target=target,
        compiler=compiler if isinstance(compiler, AmdgpuClang) else AmdgpuClang("any"),
        options=(*options, *_PASSES, "-target-cpu", target),
        output=f"{op.name}.hsaco",
        kernels=op.kernels_for("hip"),
    )
    if isinstance(compiler, AmdgpuClang):
        return by_clang
    return HiprtcCodeRecipe(
        op=op.name,
        source=by_clang.source,
        include_dirs=_INCLUDE_DIRS,
        target=target,
        compiler=compiler,
        options=(*options, f"--offload-arch={target}"),
        output=by_clang.output,
        kernels=by_clang.kernels,
        in_place_of=by_clang,
    )
