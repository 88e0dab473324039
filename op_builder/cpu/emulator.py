"""CUDA source on the CPU: ``csrc/emulator``, which runs a block's threads as fibers and checks each of their accesses."""

# anyaccel: ignore-file[device-name]  "cuda" is a language here
from __future__ import annotations

import _thread
import ctypes
import re
import threading
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from .. import loading, torch_libraries
from ..engine import environment
from ..engine.build import ensure_built
from ..engine.cache import open_cache
from ..engine.errors import KernelFaultError, OpLoadError
from ..engine.native import NativeRecipe
from ..engine.toolchains.cxx import choose_cxx
from ..host_library import HostLibrary
from ..op import CSRC

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ..engine.entry import Entry

__all__ = ["BlockEmulator", "BlockEmulatorBuilder", "EmulatedKernel", "Parameter", "TensorMemory"]

_LANGUAGE = CSRC / "emulator" / "language"
_FLAGS = (
    "-std=c++20", "-O1", "-g1", "-fsanitize=thread,alignment,bounds,integer-divide-by-zero,signed-integer-overflow",
    "-w", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-fno-omit-frame-pointer", "-DANYACCEL_BLOCK_EMULATOR",
    "-fno-builtin-memcpy", "-fno-builtin-memmove", "-fno-builtin-memset",  # what is expanded in place is not checked
)  # fmt: skip
_OF_GCC = ("-fno-gnu-unique", "-fno-ipa-reference-addressable")  # or a shared array that nothing writes is a constant
_LINK_FLAGS = ("-Wl,--wrap=memcpy,--wrap=memmove,--wrap=memset,--wrap=__assert_fail",)
_UNSIZED = re.compile(r"(\w+)\s*\[\s*\]\s*\Z")
_INCLUDES = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"\n]+)"', re.MULTILINE)
_COMMENTS = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_FIXES = {
    "race": "put __syncthreads() or __syncwarp() between the two accesses, or make them atomic operations",
    "divergence": "let every thread of the block, or every lane of the mask, reach the same place",
    "access out of bounds": "compare the index with the number of elements",
    "misaligned access": "read vectors only from addresses that are a multiple of their size",
    "division by zero": "test the divisor first; a GPU gives any result",
    "overflow of a division": "test for the smallest number divided by -1 first; a GPU gives any result",
    "uninitialised shared memory": "write it first in each block, and put __syncthreads() between the write and the read",
}
_NEAR_BYTES = 1 << 20
_INTERVAL = 0.01
"""Seconds between two interruptions of a kernel: the first may come before it has begun."""
_LOOK = 0.1
"""Seconds after which a waiting thread handles signals at the latest."""
_AS_A_BUG = "correct the source at that line"


class BlockEmulatorBuilder(HostLibrary):
    """Builds the emulator; it needs no torch and no GPU."""

    NAME = "block_emulator"
    SOURCES = tuple(
        f"emulator/{name}.cpp" for name in (
            "accesses", "block", "fibers", "guards", "history", "instrumentation", "launch", "lines", "names", "tensors",
            "undefined",
        )
    )  # fmt: skip

    def cxx_args(self) -> list[str]:
        return ["-O2", "-std=c++20", "-pthread"]

    def link_libraries(self) -> tuple[str, ...]:
        return ("-Wl,-z,defs", "-pthread", "-ldl")

    def require_torch(self) -> None:
        pass

    def prebuilt(self, trace: Any) -> None:
        return None

    def _load_library(self, binary: Path) -> BlockEmulator:
        try:
            library = ctypes.CDLL(str(binary), ctypes.RTLD_GLOBAL)  # kernels are linked without it
        except OSError as error:
            msg = (
                f"loading the op '{self.name}' failed: got {error}; expected {binary} to load. "
                f"Fix: delete that file to compile it again; if this fails again, report it as a bug."
            )
            raise OpLoadError(msg) from error
        return BlockEmulator(library)


class _Coordinates(ctypes.Structure):
    _fields_: ClassVar = [("x", ctypes.c_uint), ("y", ctypes.c_uint), ("z", ctypes.c_uint)]


class _Tensor(ctypes.Structure):
    _fields_: ClassVar = [("begin", ctypes.c_size_t), ("bytes", ctypes.c_size_t)]


class _Request(ctypes.Structure):
    """``Request`` of ``csrc/emulator/launch.cpp``."""

    _fields_: ClassVar = [
        ("kernel", ctypes.c_void_p),
        ("blocks", _Coordinates),
        ("threads", _Coordinates),
        ("argument", ctypes.c_void_p),
        ("argument_bytes", ctypes.c_size_t),
        ("shared_bytes", ctypes.c_size_t),
        ("tensors", ctypes.c_void_p),
        ("tensor_count", ctypes.c_size_t),
    ]


class _Parameter(ctypes.Structure):
    _fields_: ClassVar = [
        ("kind", ctypes.c_char_p), ("bytes", ctypes.c_int32), ("is_pointer", ctypes.c_bool),
        ("is_const", ctypes.c_bool),
    ]  # fmt: skip


class Parameter(NamedTuple):
    """A parameter of a kernel, as its source declares it.

    Attributes:
        kind: "float", "half", "bfloat16", "integer" or "other", of itself or of what it points to.
        bytes: the size of that.
        is_pointer: whether it is a pointer.
        is_const: whether it is a pointer to what the kernel only reads.
    """

    kind: str
    bytes: int
    is_pointer: bool
    is_const: bool = False


class TensorMemory(NamedTuple):
    """Memory of a tensor that a kernel may access.

    Attributes:
        name: for messages, such as ``"args[0]"``.
        begin: its address.
        bytes: its size.
    """

    name: str
    begin: int
    bytes: int


class BlockEmulator:
    """Runs kernels of CUDA source on the CPU, and reports behavior that is undefined on a GPU."""

    MOST_SHARED_BYTES = 227 * 1024
    """Per block, as on the GPUs that have most."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        library.emulator_run.restype = ctypes.c_char_p
        library.emulator_interrupt.restype = None

    @staticmethod
    def build(source: Path, name: str, include_dirs: Sequence[Path], options: Sequence[str]) -> Entry:
        """Compile a kernel into the cache.

        Args:
            source: the file with the kernel.
            name: a ``__global__`` function, or an instance of a template.
            include_dirs: where the headers are that the source includes.
            options: more options for the compiler.

        Raises:
            ToolchainError: when there is no C++ compiler.
            BuildError: with the compiler's first errors, when it refuses the source.
        """
        cache = open_cache(environment.cache_dir())
        cxx = choose_cxx(environment.cxx(), environment.search_path(), cache.root)
        aliases = "".join(map(_alias, _dynamic_arrays(_with_headers(source, include_dirs))))
        headers = "".join(f'#include "{header}.h"\n' for header in ("cuda_on_host", "cuda_fp16", "cuda_bf16"))
        entry = f'{headers}#include "{source}"\n#include "entry.h"\nEMULATOR_ENTRY({name})\n'
        main = cache.keep_source(f'{entry}asm("{aliases}");\n' if aliases else entry, ".cpp")
        flags = [*_FLAGS, *(() if cxx.is_zig or "clang" in cxx.version else _OF_GCC), *options]
        compiler = torch_libraries.cxx_compiler(cxx, flags, [*include_dirs, _LANGUAGE], stable_abi=True)
        recipe = NativeRecipe(
            op="device_kernel",
            sources=(main,),
            compilers={".cpp": compiler._replace(system_include_dirs=())},
            linker=cxx.command,
            link_flags=_LINK_FLAGS,
            link_paths=(),
            include_dirs=compiler.include_dirs,
            facts={"target": "block emulator"},
            output="kernel.so",
        )
        return ensure_built(recipe, cache, environment.build_jobs())

    def load(self, name: str, binary: Path) -> EmulatedKernel:
        """Load a kernel that was compiled.

        Raises:
            OpLoadError: when it cannot be loaded.
        """
        return EmulatedKernel(self, name, loading.load_c_library(name, binary))


class EmulatedKernel:
    """A kernel in the emulator.

    Attributes:
        parameters: as its source declares them.
    """

    def __init__(self, emulator: BlockEmulator, name: str, library: ctypes.CDLL) -> None:
        self._emulator = emulator
        self._name = name
        self._library = library
        count = ctypes.c_int.in_dll(library, "emulator_parameter_count").value
        described = ctypes.POINTER(_Parameter).in_dll(library, "emulator_parameters")
        self.parameters = [
            Parameter(one.kind.decode(), one.bytes, one.is_pointer, one.is_const) for one in described[:count]
        ]
        self._kernel = ctypes.addressof(ctypes.c_char.in_dll(library, "emulator_kernel"))

    def run(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared_bytes: int,
        values: Sequence[Any],
        tensors: Sequence[TensorMemory],
    ) -> None:
        """Run every block, one after the other.

        Args:
            grid: how many blocks.
            block: how many threads each has.
            shared_bytes: of dynamic shared memory.
            values: ctypes values, one for each parameter.
            tensors: the memory that the kernel may access.

        Raises:
            KernelFaultError: when it does what a GPU would leave undefined.
        """
        arguments = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(value) for value in values))
        allowed = (_Tensor * max(1, len(tensors)))(*(_Tensor(one.begin, one.bytes) for one in tensors))
        request = _Request(
            self._kernel, _Coordinates(*grid), _Coordinates(*block), ctypes.addressof(arguments), 0, shared_bytes,
            ctypes.addressof(allowed), len(tensors),
        )  # fmt: skip
        problem = self._problem(request)
        if problem:
            raise self._fault(problem, tensors)

    def _problem(self, request: _Request) -> str:
        """Run a request in a separate thread: Ctrl-C is handled only by a thread that waits in Python.

        Whatever the handler of a signal raises, the kernel has ended afterwards, or never begins: its memory may be freed. After
        an exception, ``Thread.join`` takes a thread for ended that is not, and so do Python 3.10 to 3.12's ``is_alive``.
        """
        said: list[bytes | None] = []
        library, has_ended = self._emulator.library, threading.Event()
        turn = threading.Lock()  # for the one that comes first: the worker that begins, or the exception before it

        def run() -> None:
            try:
                if turn.acquire(blocking=False):
                    said.append(library.emulator_run(ctypes.byref(request)))
            finally:
                has_ended.set()

        raised: BaseException | None = None
        is_called_off = False
        while True:
            try:
                if raised is None:
                    # Not Thread.start(): an exception inside it leaves threading's tables wrong.
                    _thread.start_new_thread(run, ())
                    while not has_ended.wait(_LOOK):
                        pass  # a signal that comes just before the wait is handled after it
                is_called_off = is_called_off or (raised is not None and turn.acquire(blocking=False))
                while not is_called_off and not has_ended.wait(_INTERVAL):
                    library.emulator_interrupt(ctypes.byref(request))
                break
            except BaseException as error:  # noqa: BLE001  # raised below
                raised = raised or error
        if raised is not None:
            raise raised
        return (said[0] or b"").decode(errors="replace")

    def _fault(self, problem: str, tensors: Sequence[TensorMemory]) -> KernelFaultError:
        kind = problem.partition(":")[0]
        kind = "divergence" if kind.startswith("divergence") else kind
        place = re.search(r", at (.+?:\d+)", problem) or re.search(r" at ((?:(?! at ).)+?:\d+)", problem)
        found = re.search(r"at 0x([0-9a-f]+) by", problem)
        if kind == "access out of bounds" and found is not None:
            problem += _nearest(int(found[1], 16), tensors)
        msg = f"running '{self._name}' in the block emulator failed: {problem}. Fix: {_FIXES.get(kind, _AS_A_BUG)}."
        return KernelFaultError(msg, self._name, kind, place[1] if place else "")


def _with_headers(source: Path, include_dirs: Sequence[Path]) -> str:
    """Return a source's text and that of the headers that it names in quotes."""
    texts: dict[Path, str] = {}
    files = [source]
    while files:
        file = files.pop().resolve()  # or a header that names itself by another path has no end
        if file not in texts and file.is_file():
            texts[file] = _COMMENTS.sub(" ", file.read_text(encoding="utf-8", errors="replace"))
            files += [
                folder / name for name in _INCLUDES.findall(texts[file]) for folder in (file.parent, *include_dirs)
            ]
    return "\n".join(texts.values())


def _dynamic_arrays(source: str) -> list[str]:
    """Return the names of a source's arrays in dynamic shared memory."""
    shared = [text for text in re.split("[;{}]", source) if {"extern", "__shared__"} <= set(re.findall(r"\w+", text))]
    return list(dict.fromkeys(found[1] for text in shared if (found := _UNSIZED.search(text))))


def _alias(name: str) -> str:
    """Return assembly that makes an array an alias of dynamic shared memory, and gives it an initialiser that does nothing."""
    initialiser = f"_ZTH{len(name)}{name}"
    pairs = ((name, "emulator_dynamic_shared_memory"), (initialiser, "emulator_nothing_to_initialise"))
    return "".join(f".globl {one}\\n.hidden {one}\\n.set {one}, {other}\\n" for one, other in pairs)


def _nearest(at: int, tensors: Sequence[TensorMemory]) -> str:
    """Return where an address is relative to the nearest tensor, or an empty text if none is near."""
    distances = {min(abs(at - one.begin), abs(at - one.begin - one.bytes)): one for one in tensors}
    if not distances or min(distances) > _NEAR_BYTES:
        return ""
    near = distances[min(distances)]
    if near.begin <= at < near.begin + near.bytes:
        return f"; its first bytes are the last of {near.name}"
    side = "behind the end" if at >= near.begin else "before the beginning"
    return f"; that is {min(distances)} bytes {side} of {near.name}"
