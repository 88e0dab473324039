"""Programs that are right on a GPU run in the block emulator, others have a fault, and any launch can be interrupted."""

from __future__ import annotations

import _thread
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
import torch

from anyaccel.op_builder.engine.errors import KernelFaultError
from anyaccel.ops import DeviceKernel

if TYPE_CHECKING:
    from pathlib import Path

_TEMPLATE = "template <int a, int b> __device__ int f(int x) { return x + a * b; }\n"
_PAIR = "struct Pair { int key; double value; };\n"


def _kernel(body: str, before: str = "", types: str = "int* y") -> str:
    return f"{before}__global__ void k({types}) {{ const int t = threadIdx.x; {body} }}"


def _run(source: str, block: int = 32, grid: int = 1, given: Any = ()) -> torch.Tensor:
    y = torch.zeros(64, dtype=torch.int32)
    DeviceKernel(source, "k", ("tensor", *(kind for kind, _ in given)))(
        y, *(one for _, one in given), grid=grid, block=block
    )
    return y


RIGHT = {
    "a shared array of halves": _kernel(
        "__shared__ half a[32]; a[t] = __float2half(t); __syncthreads(); y[t] = __half2float(a[31 - t]) == 31 - t;"
    ),
    "shared halves of the file": _kernel(
        "b[t / 8][t % 8] = __float2half(1.0f); __syncthreads(); y[t] = __half2float(b[3][7]);",
        "__shared__ half b[4][8];\n",
    ),
    "a shared array with a constructor": _kernel(
        "__shared__ One a[32]; a[t].v = 1; __syncthreads(); y[t] = a[31 - t].v;",
        "struct One { int v; __device__ One() {} };\n",
    ),
    "a copied struct with padding": _kernel(
        "__shared__ Pair s[33]; s[t].key = 1; s[t].value = t; __syncthreads(); if (t == 0) s[32] = s[31]; __syncthreads();"
        " y[t] = s[32].value == 31;",
        _PAIR,
    ),
    "a struct at a multiple of 8": _kernel(
        "__shared__ double d[5]; Pair* p = (Pair*)(d + 1); if (t == 0) { Pair q; q.key = 1; q.value = 2; *p = q; }"
        " __syncthreads(); Pair r = *p; y[t] = r.value == 2;",
        _PAIR,
    ),
    "masks that chain": _kernel(
        "if (t == 1 || t == 2) __syncwarp(0x6); if (t == 0 || t == 1) __syncwarp(0x3); y[t] = 1;"
    ),
    "__syncwarp in two branches": _kernel(
        "__shared__ int s[32]; if (t < 16) { s[t] = 1; __syncwarp(); y[t] = s[t + 16]; }"
        " else { s[t] = 1; __syncwarp(); y[t] = s[t - 16]; }"
    ),
    "masks that chain at one place": _kernel(
        "for (int i = 0; i < 31; ++i) if (t == i || t == i + 1) __syncwarp(3u << i); y[t] = 1;"
    ),
    "a write that partial masks order after two reads": _kernel(
        "__shared__ int s; if (t == 0) s = 1; __syncthreads(); int own = 0; if (t == 0) own = s;"
        " if (t == 0 || t == 2) __syncwarp(5u); if (t == 1 || t == 3) __syncwarp(10u); "
        " if (t == 1) own = s; if (t == 1 || t == 2) __syncwarp(6u);"
        " if (t == 2) s = 2; y[t] = own == (t < 2);"
    ),
    "an alignment of a type": _kernel(
        "__shared__ alignas(double) char s[32]; s[t] = 1; *(volatile char*)&s[t] = 2;"
        " y[t] = (unsigned long long)s % alignof(double) == 0 && (unsigned long long)&b % 16 == 0;",
        "template <typename T> struct Wide { alignas(T) char first; alignas(sizeof(T)) char second; };\n"
        "alignas(16) __device__ Wide<double> b;\n",
    ),
    "virtual functions": _kernel(
        "__shared__ Two shared; if (t == 0) new (&shared) Two; __syncthreads(); Two own; One* both[2] = {&own, &shared};"
        " y[t] = both[t % 2]->get() == 2;",
        "#include <new>\nstruct One { __device__ virtual int get() { return 1; } };\n"
        "struct Two : One { __device__ int get() override { return 2; } };\n",
    ),
    "commas of a template": _kernel(
        "y[t] = __ballot_sync(0xffffffffu, f<1, 2>(0)) == 0xffffffffu && __syncthreads_or(f<1, 2>(0))"
        " && __reduce_add_sync(0xffffffffu, f<1, 2>(0)) == 64 && __all_sync(0xffffffffu, f<1, 2>(0));",
        _TEMPLATE,
    ),
    "a part for GPUs": _kernel(
        '\n#ifndef ANYACCEL_BLOCK_EMULATOR\n asm volatile("trap;");\n#else\n y[t] = 1;\n#endif\n'
        '#if defined(ANYACCEL_BLOCK_EMULATOR)\n#else\n asm volatile("trap;");\n#endif\n'
    ),
    "a method called free": _kernel(
        'Pool p; p.free(1); y[t] = R"(x "malloc(" )"[0] == 120;', "struct Pool { __device__ void free(int) {} };\n"
    ),
    "sums that wrap around": _kernel(
        "volatile int one = 1; int sum = 2147483647 + one; y[t] = sum == -2147483647 - 1;"
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_program_runs(name: str) -> None:
    assert _run(RIGHT[name])[:32].tolist() == [1] * 32


WRONG = {
    "uninitialised shared memory: 16 bytes": _kernel(
        "__shared__ Pair s[2]; if (t == 0) { s[1] = s[0]; y[0] = s[1].value; }", _PAIR
    ),
    "uninitialised shared memory: 1 bytes": _kernel("__shared__ char a[32]; y[t] = a[t];"),
    "overflow of a division: of 'int'": _kernel(
        "int least = -2147483647 - 1 - y[t], other = y[t] - 1; y[t] = least / other;"
    ),
    "division by zero: of 'int'": _kernel("y[t] = 5 / y[t];"),
    "divergence in block 0: thread 0 is at __syncwarp": _kernel("if (t < 16) __syncwarp();"),
    "whose mask differs from lane 1's": _kernel("__syncwarp(t == 0 ? 0x3u : 1u << t);"),
    "endless loop": _kernel("while (atomicCAS(y, 1, 2) != 1) { }"),
    "endless loop: ": _kernel("while (atomicCAS(y, 1, 2) != 1) { y[t + 1] = y[t + 1] + 1; }"),
    "race: 4 bytes written": _kernel(
        "__shared__ float4 s[1]; if (t == 0) s[0].x = 1; __syncthreads(); if (t == 0) *reinterpret_cast<float4*>(y) = s[0];"
        " if (t == 1) s[0].y = 2;"
    ),
    "race: 4 bytes read": _kernel(
        "__threadfence(); if (blockIdx.x == 0) y[0] = 1; if (atomicAdd(&counter, 1) == 1) y[1] = y[0];",
        "__device__ int counter;\n",
    ),
}


def test_a_header_may_declare_dynamic_shared_memory(tmp_path: Path) -> None:
    (tmp_path / "a folder").mkdir()
    (tmp_path / "a folder" / "parts.cuh").write_text(
        '#pragma once\n#include "parts.cuh"\nextern __shared__ int parts[];\n'
    )
    source = '#include "parts.cuh"\n' + _kernel("parts[t] = t; __syncthreads(); y[t] = parts[31 - t];")
    y = torch.zeros(32, dtype=torch.int32)
    kernel = DeviceKernel(source, "k", ("tensor",), include_dirs=[tmp_path / "a folder"])
    kernel(y, grid=1, block=32, shared_bytes=128)
    assert y.tolist() == list(range(31, -1, -1))


@pytest.mark.parametrize("said", WRONG)
def test_a_wrong_program_has_a_fault(said: str) -> None:
    with pytest.raises(KernelFaultError, match=said):
        _run(WRONG[said], block=1 if "counter" in WRONG[said] else 32, grid=2 if "counter" in WRONG[said] else 1)


def test_lanes_that_a_block_does_not_have_take_no_part() -> None:
    every = DeviceKernel(
        _kernel("y[t] = __reduce_add_sync(0xffffffffu, 1) + __any_sync(0xffffffffu, t == 63);"), "k", ("tensor",)
    )
    y = torch.zeros(64, dtype=torch.int32)
    every(y, grid=1, block=64)  # what its lanes gave must not be read again
    assert y.tolist() == [32] * 32 + [33] * 32
    every(y.zero_(), grid=1, block=40)
    assert y.tolist() == [32] * 32 + [8] * 8 + [0] * 24


def test_floats_match_by_their_bits() -> None:
    x = torch.tensor([float("nan")] * 16 + [0.0] * 8 + [-0.0] * 8)
    y = _run(
        _kernel("y[t] = __match_any_sync(0xffffffffu, x[t]);", types="int* y, const float* x"), given=[("tensor", x)]
    )
    assert [value & 0xFFFFFFFF for value in y[[0, 16, 31]].tolist()] == [0xFFFF, 0xFF0000, 0xFF000000]


def test_a_long_reduction_is_no_endless_loop() -> None:
    source = _kernel("for (int i = t; i < 2200000; i += blockDim.x) atomicMax(y, x[i]);", types="int* y, const int* x")
    assert _run(source, given=[("tensor", torch.ones(2_200_000, dtype=torch.int32))])[0] == 1


@pytest.mark.parametrize(
    "loop",
    [
        "y[t] += 1;",
        "atomicAdd(y, 1);",
        "__syncthreads();",
        "y[t] = __shfl_sync(0xffffffffu, t, 1);",
        "__threadfence();",
    ],
)
def test_what_a_signal_raises_ends_the_kernel_first(loop: str) -> None:
    """Its memory may be freed afterwards."""
    kernel = DeviceKernel(_kernel(f"for (;;) {{ {loop} }}"), "k", ("tensor",))
    kernel.compile("cpu")
    DeviceKernel(_kernel("y[t] = 1;"), "k", ("tensor",))(torch.zeros(64, dtype=torch.int32), grid=1, block=32)  # loaded
    y = torch.zeros(64, dtype=torch.int32)

    class Interruption(BaseException):
        """Nothing catches it on the way."""

    def interrupt(*_: Any) -> None:
        raise Interruption

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(Interruption):
            signal.setitimer(signal.ITIMER_REAL, 0.5, 2)  # again: a finaliser that runs just then loses an exception
            kernel(y, grid=1, block=32)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    at_first = y.clone()
    time.sleep(0.1)
    assert torch.equal(y, at_first)


@pytest.mark.parametrize("when", ["before", "at once", "later"])
def test_an_exception_while_a_kernel_starts_ends_it_too(when: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal may come at any place: where the thread is started, its handler raises before or after that."""
    kernel = DeviceKernel(_kernel("for (;;) y[t] += 1;"), "k", ("tensor",))
    kernel.compile("cpu")
    y, start = torch.zeros(64, dtype=torch.int32), _thread.start_new_thread

    class Interruption(BaseException):
        """Nothing catches it on the way."""

    def interrupted(*given: Any) -> None:
        if when != "before":
            start(*given)
        time.sleep(0.05 if when == "later" else 0)
        raise Interruption

    monkeypatch.setattr(_thread, "start_new_thread", interrupted)
    with pytest.raises(Interruption):
        kernel(y, grid=1, block=32)
    at_first = y.clone()
    time.sleep(0.05)
    assert torch.equal(y, at_first)
    assert bool(y.any()) is (when == "later") or when == "at once"


def test_a_file_with_spaces_has_its_lines(tmp_path: Path) -> None:
    file = tmp_path / "my kernel.cu"
    for line in ("y[64] = 1;", "if (t == 0) __syncthreads();"):
        file.write_text(_kernel(f"\n{line}\n"))
        with pytest.raises(KernelFaultError) as caught:
            DeviceKernel(file, "k", ("tensor",))(torch.zeros(64, dtype=torch.int32), grid=1, block=32)
        assert caught.value.place == "my kernel.cu:2"


def test_a_byte_order_mark_is_skipped_and_another_encoding_refused(tmp_path: Path) -> None:
    file = tmp_path / "kernel.cu"
    file.write_bytes(b"\xef\xbb\xbf" + _kernel("y[t] = 1;").encode())
    y = torch.zeros(32, dtype=torch.int32)
    DeviceKernel(file, "k", ("tensor",))(y, grid=1, block=32)
    assert y.all()
    file.write_bytes(b"// \xe4\n" + _kernel("y[t] = 1;").encode())
    with pytest.raises(ValueError, match=r"reading .*kernel.cu failed: got a byte that is not UTF-8"):
        DeviceKernel(file, "k", ("tensor",))
