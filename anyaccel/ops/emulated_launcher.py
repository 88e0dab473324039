"""CUDA source on CPU tensors: the features that the block emulator supports, and the arguments that its kernels accept."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch

from ..op_builder.cpu.emulator import BlockEmulator, BlockEmulatorBuilder, TensorMemory
from ..op_builder.engine.errors import OpError
from .kernel_launchers import READ_ONLY, TENSORS, WRITTEN

if TYPE_CHECKING:
    from ..op_builder.cpu.emulator import Parameter
    from ..op_builder.engine.entry import Entry
    from .kernel_launchers import Launch
    from .kernel_source import KernelSource

__all__ = ["EmulatedLauncher"]

_HOSTS = re.compile(r"-[DUI].*|-include.*|--?(?:define-macro|undefine-macro|include-path|pre-include)=.*")
_UNKNOWN_TO_HOSTS = {
    "--define-macro=": "-D",
    "--undefine-macro=": "-U",
    "--include-path=": "-I",
    "--pre-include=": "-include",
}
_LACKS = {
    r"\basm\b(?:\s+volatile)?\s*\(": "inline PTX",
    r"(?:(?<![\w.>:])(?<!void )(?<!\* )(?<!\*)|(?<!\w)(?:std)?::)(?:malloc|free)\s*\(": "memory from a kernel's heap",
    r"\bnew\s+\w|\bdelete\s*(?:\[\s*\]\s*)?\w": "memory from a kernel's heap",
    r"<<<": "launches from source, neither a host's nor dynamic parallelism",
    r"\b(?:tex[123]D\w*|texCubemap\w*|surf[123]D\w*|cuda(?:Texture|Surface)Object_t)\b": "textures and surfaces",
    r"\b(?:wmma|nvcuda)\s*::": "tensor cores (wmma)",
    r"\b(?:__pipeline_\w+|__cp_async\w*)\b": "asynchronous copies",
    r"\bcuda\s*::": "libcu++ (cuda::)",
    r"\bcooperative_groups\b": "cooperative groups; use __syncthreads, __syncwarp and shuffles",
    r"\b(?:clock|clock64|globaltimer)\s*\(\s*\)": "clocks",
    r"\b__shfl(?:_up|_down|_xor)?\s*\(": "shuffles without a mask; use __shfl_sync and its kind",
}
_NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|\bR"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"', re.DOTALL)
_DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(if|ifdef|ifndef|elif|else|endif)\b(.*)$")
_ABOUT_EMULATOR = re.compile(r"\s*(?P<not>!\s*)?(?P<defined>defined\s*\(?\s*)?ANYACCEL_BLOCK_EMULATOR\s*\)?\s*$")
_FLOATS = {
    ("float", 4): torch.float32,
    ("float", 8): torch.float64,
    ("half", 2): torch.float16,
    ("bfloat16", 2): torch.bfloat16,
}
_KINDS = {
    "bool": ("integer", 1), "int32": ("integer", 4), "int64": ("integer", 8), "uint32": ("integer", 4),
    "uint64": ("integer", 8), "float32": ("float", 4), "float64": ("float", 8),
}  # fmt: skip


class EmulatedLauncher:
    """CUDA C++ for CPU tensors, by the block emulator."""

    def __init__(self, kernel: KernelSource, device: torch.device) -> None:
        self._name = kernel.name
        emulator: BlockEmulator = BlockEmulatorBuilder().load()
        self._kernel = emulator.load(kernel.name, self.build(kernel).binary)

    @staticmethod
    def build(kernel: KernelSource) -> Entry:
        """Compile the kernel into the cache.

        Raises:
            OpError: if the source uses what the emulator does not have.
            ToolchainError: if there is no C++ compiler.
            BuildError: if the compiler refuses the source.
        """
        _require_only_what_is_there(kernel)
        return BlockEmulator.build(kernel.file(), kernel.name, kernel.include_dirs, _options_of_hosts(kernel.options))

    def launch(self, device: torch.device, launch: Launch) -> None:
        """Run every block.

        Raises:
            TypeError: if the kernel has another number of parameters than ``args``.
            ValueError: if a parameter is of another type than its entry of ``args``, or than the tensor's elements, or a block
                is larger than any GPU's.
            KernelFaultError: if the kernel does what a GPU leaves undefined.
        """
        parameters = self._kernel.parameters
        if len(parameters) != len(launch.args):
            msg = (
                f"launching '{self._name}' failed: got {len(launch.args)} args; expected {len(parameters)}, one for each "
                f"parameter of the source. Fix: list the type of each parameter in DeviceKernel's args."
            )
            raise TypeError(msg)
        for index, (parameter, arg, value) in enumerate(zip(parameters, launch.args, launch.given, strict=True)):
            self._require_type(index, parameter, arg, value)
        threads = launch.block[0] * launch.block[1] * launch.block[2]
        if threads > 1024 or launch.block[2] > 64 or not 0 <= launch.shared_bytes <= BlockEmulator.MOST_SHARED_BYTES:
            got = f"blocks of {threads} threads with {launch.shared_bytes} shared bytes"
            most = f"at most 1024, 64 of them along z, and {BlockEmulator.MOST_SHARED_BYTES} bytes"
            raise self._refusal(got, most, "launch smaller blocks")
        if launch.grid[0] >= 2**31 or max(launch.grid[1:]) >= 2**16:
            raise self._refusal(
                f"grid {launch.grid}",
                "less than 2**31 blocks along x and 2**16 along y and z",
                "put the largest number first",
            )
        memory = [
            TensorMemory(f"args[{index}]", value.data_ptr(), value.nbytes)
            for index, value in enumerate(launch.given)
            if isinstance(value, torch.Tensor)
        ]
        self._kernel.run(launch.grid, launch.block, launch.shared_bytes, launch.values, memory)

    def _require_type(self, index: int, parameter: Parameter, arg: str, value: Any) -> None:
        kind = f"{parameter.kind} of {parameter.bytes} bytes"
        if parameter.is_pointer != (arg in TENSORS):
            declared = f"a pointer to {kind}" if parameter.is_pointer else kind
            fix = "write 'tensor' there" if parameter.is_pointer else "write the number's type there, such as 'int32'"
            raise self._refusal(f"{arg!r} for args[{index}]", f"the type of the parameter, {declared}", fix)
        if arg not in TENSORS:
            if (parameter.kind, parameter.bytes) != _KINDS[arg]:
                fix = "change args, or the parameter in the source"
                raise self._refusal(f"{arg!r} for args[{index}]", f"the type of the parameter, {kind}", fix)
            return
        if arg == READ_ONLY and not parameter.is_const:
            fix = f"declare it const if the kernel only reads it; otherwise write '{WRITTEN}' there"
            raise self._refusal(f"{arg!r} for args[{index}]", f"a parameter that points to const {kind}", fix)
        wanted = _FLOATS.get((parameter.kind, parameter.bytes))
        is_wide_integer = parameter.kind == "integer" and parameter.bytes > 1
        if (wanted is not None and value.dtype != wanted) or (
            is_wide_integer and value.element_size() != parameter.bytes
        ):
            fix = f"pass tensor.to({wanted})" if wanted is not None else "convert it with tensor.to(dtype)"
            raise self._refusal(f"a tensor of {value.dtype} for args[{index}]", f"elements of {wanted or kind}", fix)

    def _refusal(self, got: str, expected: str, fix: str) -> ValueError:
        return ValueError(f"launching '{self._name}' failed: got {got}; expected {expected}. Fix: {fix}.")


def _options_of_hosts(options: tuple[str, ...]) -> list[str]:
    """Return the options of NVRTC that the host's compiler also accepts: macros and headers."""
    kept = []
    words = iter(options)
    for option in words:
        if option in ("-D", "-U", "-I", "-include"):
            kept += [option, next(words, "")]
        elif _HOSTS.fullmatch(option):
            long = next((long for long in _UNKNOWN_TO_HOSTS if option.startswith(long)), "")
            kept.append(_UNKNOWN_TO_HOSTS.get(long, "") + option.removeprefix(long))
    return kept


def _without_gpus_part(text: str) -> str:
    """Return a source without the lines that ``#ifndef ANYACCEL_BLOCK_EMULATOR`` keeps from the emulator; lines keep numbers."""
    kept: list[str] = []
    branches: list[bool | None] = []  # of each #if: whether the emulator reads this branch; None for other conditions
    for line in text.split("\n"):
        directive = _DIRECTIVE.match(line)
        word, condition = (directive[1], directive[2]) if directive else ("", "")
        if word in ("if", "ifdef", "ifndef"):
            branches.append(_is_read(word, condition))
        elif word in ("elif", "else") and branches and branches[-1] is not None:
            branches[-1] = not branches[-1] if word == "else" else None
        elif word == "endif" and branches:
            branches.pop()
        kept.append("" if False in branches else line)
    return "\n".join(kept)


def _is_read(word: str, condition: str) -> bool | None:
    """Return whether the emulator reads what follows a condition about its macro alone; None for another condition."""
    about = _ABOUT_EMULATOR.match(condition)
    if about is None or (about["defined"] is None) == (word == "if"):
        return None
    return word != "ifndef" and about["not"] is None


def _require_only_what_is_there(kernel: KernelSource) -> None:
    text = _without_gpus_part(_NOT_CODE.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), kernel.text))
    shift = 1 if kernel.text.startswith("#line 1 ") else 0
    for pattern, what in _LACKS.items():
        found = re.search(pattern, text)
        if found is not None:
            line = text.count("\n", 0, found.start()) + 1 - shift
            msg = (
                f"compiling '{kernel.name}' for CPU tensors failed: got {found[0].strip()!r} in line {line}; the block emulator "
                f"has no {what}. Fix: run it on a GPU, or leave that out for CPU tensors (#ifndef ANYACCEL_BLOCK_EMULATOR)."
            )
            raise OpError(msg)
