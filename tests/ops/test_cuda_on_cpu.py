"""CUDA source on CPU tensors: kernels as tutorials have them are right, and what is wrong in a copy is named by its line."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import torch

from anyaccel.op_builder import BuildError, KernelFaultError, OpError
from anyaccel.ops import DeviceKernel

SOURCES = Path(__file__).parent / "cuda_sources"
NAMES = {"reduction": "reduce_sum<float, 128>", "transpose": "transpose", "histogram": "histogram"}
ARGS = {
    "reduction": ("tensor", "tensor", "uint64"),
    "transpose": ("tensor", "tensor", "int32", "int32"),
    "histogram": ("tensor", "tensor", "int32", "int32"),
}


def _kernel(source: str, file: Path | None = None) -> DeviceKernel:
    return DeviceKernel(file or SOURCES / f"{source}.cu", NAMES[source], ARGS[source])


def _reduce(kernel: DeviceKernel, n: int = 1003, said: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    x, out = torch.randint(-9, 9, (n,)).float(), torch.zeros(1)
    kernel(x, out, n if said is None else said, grid=3, block=128)
    return out, x.sum().reshape(1)


def _transpose(kernel: DeviceKernel, rows: int = 37, columns: int = 70) -> tuple[torch.Tensor, torch.Tensor]:
    x = torch.randn(rows, columns)
    out = torch.full((columns, rows), torch.nan)
    kernel(out, x, columns, rows, grid=(-(-columns // 32), -(-rows // 32)), block=(32, 8))
    return out, x.t()


def _histogram(kernel: DeviceKernel, n: int = 999, bins: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    x, counts = torch.randint(0, 256, (n,), dtype=torch.uint8), torch.zeros(bins, dtype=torch.int32)
    kernel(x, counts, n, bins, grid=4, block=96, shared_bytes=4 * bins)
    return counts, torch.bincount(x.long() * bins // 256, minlength=bins).int()


_RUNS: dict[str, Any] = {"reduction": _reduce, "transpose": _transpose, "histogram": _histogram}


@pytest.mark.parametrize(
    ("source", "sizes"),
    [
        ("reduction", [(1,), (31,), (1003,)]),
        ("transpose", [(1, 1), (37, 70), (64, 33)]),
        ("histogram", [(1, 1), (999, 7), (4097, 256)]),
    ],
)
def test_a_kernel_as_tutorials_have_it_is_right(source: str, sizes: list[Any]) -> None:
    kernel = _kernel(source)
    for size in sizes:
        result, expected = _RUNS[source](kernel, *size)
        assert torch.equal(result, expected), size


PLANTED = {
    "a race in a tree": ("reduction", "__syncthreads();  // of this step", "", "race", "+= partial"),
    "a race before atomics": (
        "histogram", "local_bins[b] = 0;\n  __syncthreads();", "local_bins[b] = 0;\n", "uninitialised shared memory",
        "atomicAdd(&local",
    ),
    "a race of a copy": ("transpose", "__syncthreads();", "__syncwarp();", "race", "out[(y"),
    "a race behind atomics": ("histogram", "1u);\n  }\n  __syncthreads();", "1u);\n  }\n", "race", "count = local"),
    "a race of blocks": ("histogram", "atomicAdd(&bins[b], count)", "bins[b] += count", "race", "bins[b] += count"),
    "a barrier in a branch": (
        "reduction", "__syncthreads();  // of this step", "if (tid < stride) __syncthreads();", "divergence",
        "if (tid < stride) __sync",
    ),
    "a shuffle in a branch": ("reduction", "if (tid < 32)", "if (tid < 20)", "divergence", "__shfl_down_sync"),
    "a barrier in a loop": (
        "transpose", "= in[(y + j) * width + x];", "= in[(y + j) * width + x]; __syncthreads();", "divergence",
        "__syncthreads();\n    }",
    ),
    "reading behind the end": ("transpose", "x < width && ", "", "access out of bounds", "= in["),
    "writing behind the end": ("transpose", "* height + x", "* width + x", "access out of bounds", "out[("),
    "beyond shared memory": ("histogram", "/ 256", "/ 255", "access out of bounds", "atomicAdd(&local"),
    "no initial value": ("histogram", "local_bins[b] = 0", "", "uninitialised shared memory", "atomicAdd(&local"),
    "a thread's value forgotten": (
        "reduction", "partial[tid] = sum", "if (tid != 5) partial[tid] = sum", "uninitialised shared memory", "+= partial",
    ),
    "a misaligned vector": (
        "transpose", "out[(y + j) * height + x] = ", "*(float2*)&out[1] = float2{1, 2}; out[(y + j) * height + x] = ",
        "misaligned access", "*(float2*)",
    ),
}  # fmt: skip
"""Changes of a kernel: its source, the old text, the new text, what it then does, and what its line begins to be known by."""


@pytest.mark.parametrize("planted", PLANTED)
def test_a_planted_fault_is_named_by_file_and_line(tmp_path: Path, planted: str) -> None:
    source, old, new, fault, at = PLANTED[planted]
    text = (SOURCES / f"{source}.cu").read_text()
    assert text.count(old) == 1
    file = tmp_path / "planted.cu"
    file.write_text(text := text.replace(old, new))
    line = text.count("\n", 0, text.index(at)) + 1
    torch.manual_seed(0)
    with pytest.raises(KernelFaultError) as caught:
        _RUNS[source](_kernel(source, file))
    assert (caught.value.fault, caught.value.place) == (fault, f"planted.cu:{line}"), str(caught.value)


UNDEFINED = {
    "memcpy behind a tensor": ("memcpy(y + 60, y, 64);", "access out of bounds"),
    "memcpy of more than a tensor": ("memcpy(y, y + 60, 200);", "access out of bounds"),
    "memcpy of a size that is passed": ("memcpy(y + 60, y, n);", "access out of bounds"),
    "memmove behind a tensor": ("memmove(y + 60, y, n);", "access out of bounds"),
    "memmove of a constant size": ("memmove(y + 60, y, 64);", "access out of bounds"),
    "memset behind a tensor": ("memset(y + 60, 0, 64);", "access out of bounds"),
    "std::memcpy": ("std::memcpy(y + 60, y, 64);", "access out of bounds"),
    "a builtin": ("__builtin_memcpy(y + 60, y, 200);", "access out of bounds"),
    "a race of a copy": ("if (t == 1) y[0] = 3; if (t == 0) memcpy(y + 16, y, 64);", "race"),
    "a local array, in a loop": ("float a[4]; for (int i = 0; i < n; i++) a[i] = i; y[t] = a[2];", "access out of bounds"),
    "a local array, written": ("volatile float a[4]; a[n - 60] = 7; y[t] = a[2];", "access out of bounds"),
    "a local array, read": ("float a[4] = {1, 2, 3, 4}; y[t] = a[n - 58];", "access out of bounds"),
    "a shared array, beyond the first of two": (
        "__shared__ float s[32], u[32]; s[t] = u[t] = 1; y[t] = s[t + 32];", "access out of bounds",
    ),
    "a shared array that nothing writes": ("__shared__ float s[32]; y[t] = s[t];", "uninitialised shared memory"),
    "a division by zero": ("y[t] = n / (n - 64);", "division by zero"),
    "a remainder by zero": ("y[t] = n % (n - 64);", "division by zero"),
}  # fmt: skip
"""What compilers expand, fold or leave to the processor, and what it is on a GPU."""


@pytest.mark.parametrize("name", UNDEFINED)
def test_what_a_compiler_may_hide_is_a_fault_and_writes_nothing_outside(tmp_path: Path, name: str) -> None:
    body, fault = UNDEFINED[name]
    file = tmp_path / "undefined.cu"
    file.write_text(
        f"__global__ void k(float* y, int n) {{\n  const int t = threadIdx.x;\n  {body}\n  if (t < 0) y[0] = n;\n}}\n"
    )
    around = torch.zeros(192)
    with pytest.raises(KernelFaultError) as caught:
        DeviceKernel(file, "k", ("tensor", "int32"))(around[64:128], 64, grid=1, block=32)
    assert (caught.value.fault, caught.value.place) == (fault, "undefined.cu:3"), str(caught.value)
    assert not around[:64].any()
    assert not around[128:].any()


def test_copies_within_bounds_are_made() -> None:
    code = "memcpy(y, y + 4, 16); memmove(y + 9, y + 8, 16); memset(y + 16, 0, 4); __builtin_memcpy(y + 20, y + 4, 4);"
    y = torch.arange(24.0)
    expected = y.clone()
    expected[:4], expected[9:13], expected[16], expected[20] = y[4:8].clone(), y[8:12].clone(), 0, y[4]
    DeviceKernel(f"__global__ void k(float* y) {{ {code} }}", "k", ("tensor",))(y, grid=1, block=1)
    assert torch.equal(y, expected)


LANGUAGE = """
#include <cuda_fp16.h>
#include <cuda_bf16.h>
enum { COUNT = ROWS };

// A warp's sum in shared memory, ordered by __syncwarp alone.
__global__ void warp_order(float* out) {
  __shared__ volatile float s[64];
  const int lane = threadIdx.x;
  s[lane] = lane;
  s[lane + 32] = 0;
  __syncwarp();
  for (int d = 16; d > 0; d /= 2) {
    const float other = s[lane + d];
    __syncwarp();
    s[lane] += other;
    __syncwarp();
  }
  if (lane == 0) out[0] = s[0];
}

// The last block to come adds up what all have written.
__device__ unsigned int arrived = 0;
__global__ void last_block(float* parts, float* out) {
  __shared__ bool is_last;
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = blockIdx.x + 1;
    __threadfence();
    is_last = atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (is_last && threadIdx.x == 0) {
    for (int b = 0; b < gridDim.x; b++) out[0] += parts[b];
  }
}

// The same without the fence.
__global__ void no_fence(float* parts, float* out) {
  if (threadIdx.x == 0) {
    parts[blockIdx.x] = 1;
    if (atomicAdd(&arrived, 1u) % gridDim.x == gridDim.x - 1) out[0] = parts[0];
  }
}

__device__ int lock_of_all = 0;
__global__ void locked(int* x) {
  for (bool done = false; !done;) {
    if (atomicCAS(&lock_of_all, 0, 1) == 0) {
      atomicAdd(x, 1);
      atomicExch(&lock_of_all, 0);
      done = true;
    }
  }
}

__global__ void waits_for_a_later_block(int* x) {
  if (blockIdx.x == 0) {
    while (atomicAdd(x, 0) == 0) {
    }
  } else {
    atomicExch(x, 1);
  }
}

__global__ void votes(int* out) {
  const int lane = threadIdx.x;
  const unsigned odd = __ballot_sync(~0u, lane % 2);
  out[lane] = odd == 0xaaaaaaaau && __any_sync(~0u, lane == 7) && !__all_sync(~0u, lane == 7) &&
              __syncthreads_count(lane < 5) == 5 && __syncthreads_or(lane == 3) && !__syncthreads_and(lane == 3) &&
              __shfl_sync(~0u, lane, 5) == 5 && __shfl_up_sync(~0u, lane, 1) == (lane ? lane - 1 : 0) &&
              __shfl_xor_sync(~0u, lane, 3) == (lane ^ 3) && __shfl_sync(~0u, lane, 1, 8) == lane / 8 * 8 + 1 &&
              __shfl_down_sync(~0u, lane, 4, 8) == (lane % 8 < 4 ? lane + 4 : lane) &&
              __reduce_add_sync(~0u, lane) == 496 && __match_any_sync(~0u, lane / 16) == (lane < 16 ? 0xffffu : 0xffff0000u);
}

__global__ void small_floats(const __half* h, const __nv_bfloat16* b, __half* out) {
  const int i = threadIdx.x;
  const __half2 pair = __hadd2(__floats2half2_rn(__half2float(h[i]), __bfloat162float(b[i])), __float2half2_rn(1.0f));
  out[2 * i] = __low2half(pair);
  out[2 * i + 1] = __hfma(__ldg(&h[i]), __float2half(2.0f), pair.y);
}

__global__ void in_three(int* out) {
  const dim3 size = blockDim;
  const int thread = threadIdx.x + size.x * (threadIdx.y + size.y * threadIdx.z);
  const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  out[block * size.x * size.y * size.z + thread] = COUNT * 1000 + block * 100 + thread;
}

__global__ void says(int n) {
  if (threadIdx.x == 1) printf("block %d of %d\\n", blockIdx.x, n);
}

__global__ void atomics(int* i, unsigned int* u, float* f, double* d, unsigned long long* l) {
  atomicAdd(f, 0.5f); atomicAdd(d, 0.25); atomicAdd(l, 3ull); atomicMax(&i[0], (int)threadIdx.x);
  atomicMin(&i[1], -(int)threadIdx.x); atomicOr(&u[0], 1u << threadIdx.x % 8); atomicSub(&u[1], 1u); atomicXor(&u[2], 1u);
}

__global__ void asserts(const int* x) { assert(x[threadIdx.x] == 0); }

__global__ void traps(const int* x) {
  if (x[threadIdx.x] != 0) __trap();
}

// Bytes and words in one place.
__global__ void sizes(int* x) {
  x[threadIdx.x] = 0;
  reinterpret_cast<char*>(&x[threadIdx.x])[1] = 1;
  x[threadIdx.x] += 1;
}

__global__ void forever(int* x) {
  for (;;) atomicAdd(x, 1);
}
"""
_T = "tensor"


def _of_language(name: str, *args: str, **more: Any) -> DeviceKernel:
    return DeviceKernel(LANGUAGE, name, args, options=["-DROWS=4", "--use_fast_math", "-std=c++17"], **more)


def _ints(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.int32)


def test_what_orders_threads_and_blocks_is_known() -> None:
    out, parts = torch.zeros(1), torch.zeros(5)
    _of_language("warp_order", _T)(out, grid=1, block=32)
    assert out.item() == 496
    kernel = _of_language("last_block", _T, _T)
    for times in (1, 2):  # a `__device__` variable stays, as on a GPU
        kernel(parts, out.zero_() if times == 1 else out, grid=5, block=64)
        assert out.item() == 15 * times
    with pytest.raises(KernelFaultError, match=r"race: 4 bytes read .*, and written by an earlier block"):
        _of_language("no_fence", _T, _T)(parts, out, grid=5, block=64)


def test_locks_work_and_what_would_hang_is_named() -> None:
    x = _ints(1)
    _of_language("locked", _T)(x, grid=3, block=40)
    assert x.item() == 120
    with pytest.raises(
        KernelFaultError, match=r"endless loop: .* changed nothing; the last was atomicAdd by thread"
    ) as caught:
        _of_language("waits_for_a_later_block", _T)(x.zero_(), grid=2, block=32)
    assert caught.value.fault == "endless loop"


def test_votes_shuffles_small_floats_dimensions_and_atomics() -> None:
    out = _ints(32)
    _of_language("votes", _T)(out, grid=1, block=32)
    assert out.tolist() == [1] * 32
    h, b, both = torch.randn(8).half(), torch.randn(8).bfloat16(), torch.zeros(16).half()
    _of_language("small_floats", _T, _T, _T)(h, b, both, grid=1, block=8)
    assert torch.equal(both[::2], h + 1)
    assert torch.allclose(both[1::2], h * 2 + (b.half() + 1), atol=1e-2)
    out = _ints(2 * 3 * 2 * 2 * 3 * 5)
    _of_language("in_three", _T)(out, grid=(2, 3, 2), block=(2, 3, 5))
    assert out.tolist() == [4000 + 100 * block + thread for block in range(12) for thread in range(30)]
    i, u, f, d, n = (
        _ints(2),
        torch.zeros(3, dtype=torch.uint32),
        torch.zeros(1),
        torch.zeros(1).double(),
        torch.zeros(1).long(),
    )
    _of_language("atomics", _T, _T, _T, _T, _T)(i, u, f, d, n, grid=2, block=33)
    assert (i.tolist(), u.tolist(), f.item(), d.item(), n.item()) == ([32, -32], [255, 2**32 - 66, 0], 33, 16.5, 198)
    words = _ints(9)
    _of_language("sizes", _T)(words, grid=1, block=9)
    assert words.tolist() == [257] * 9


IN_INTEGERS = """
__global__ void as_integers(const float* x, int* out, unsigned* unsigned_out) {
  const int i = threadIdx.x;
  out[4 * i] = __float2int_rn(x[i]); out[4 * i + 1] = __float2int_rz(x[i]);
  out[4 * i + 2] = __float2int_rd(x[i]); out[4 * i + 3] = __float2int_ru(x[i]);
  unsigned_out[i] = __float2uint_rn(x[i]);
}
__global__ void smaller(const float* x, const float* y, float* out) {
  const int i = threadIdx.x;
  out[2 * i] = min(x[i], y[i]); out[2 * i + 1] = max(x[i], y[i]);
}
__global__ void low_bits(const int* x, const int* y, int* out) {
  const int i = threadIdx.x;
  out[2 * i] = __mul24(x[i], y[i]); out[2 * i + 1] = __umul24(x[i], y[i]);
}
__global__ void fused(const TYPE* x, const TYPE* y, const TYPE* z, TYPE* out) {
  out[threadIdx.x] = __hfma(x[threadIdx.x], y[threadIdx.x], z[threadIdx.x]);
}
__global__ void from_double(const double* x, TYPE* out) { out[threadIdx.x] = TYPE(x[threadIdx.x]); }
"""


def test_conversions_saturate_and_nan_gives_zero_as_on_a_gpu() -> None:
    x = torch.tensor([2.5, -2.5, 3e9, -3e9, 5e9, torch.nan, torch.inf, -torch.inf])
    out, positive = torch.empty(8, 4, dtype=torch.int32), torch.empty(8, dtype=torch.uint32)
    kernel = DeviceKernel(IN_INTEGERS, "as_integers", ("tensor", "tensor", "tensor"), options=["-DTYPE=__half"])
    kernel(x, out, positive, grid=1, block=8)
    most, least = 2**31 - 1, -(2**31)
    assert out[:2].tolist() == [[2, 2, 2, 3], [-2, -2, -3, -2]]
    assert out[2:].tolist() == [[value] * 4 for value in (most, least, most, 0, most, least)]
    assert positive.tolist() == [2, 0, 3000000000, 0, 2**32 - 1, 0, 2**32 - 1, 0]


def test_of_a_nan_and_a_number_the_number_is_the_smaller_and_the_larger() -> None:
    x, y = torch.tensor([torch.nan, 1.0, 2.0, torch.nan]), torch.tensor([1.0, torch.nan, 1.0, torch.nan])
    out = torch.empty(4, 2)
    options = ["-DTYPE=__half"]
    DeviceKernel(IN_INTEGERS, "smaller", ("tensor",) * 3, options=options)(x, y, out, grid=1, block=4)
    assert out[:3].tolist() == [[1, 1], [1, 1], [1, 2]]
    assert out[3].isnan().all()


def test_products_of_24_bits_ignore_the_others() -> None:
    x, y = (
        torch.tensor(values, dtype=torch.int64).to(torch.int32) for values in ([0x01000003, -2, 0xFF000003], [5, 3, 5])
    )
    out = torch.empty(3, 2, dtype=torch.int32)
    options = ["-DTYPE=__half"]
    DeviceKernel(IN_INTEGERS, "low_bits", ("tensor",) * 3, options=options)(x, y, out, grid=1, block=3)
    assert out.tolist() == [[15, 15], [-6, 3 * 0xFFFFFE], [15, 15]]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_small_floats_are_rounded_once(dtype: torch.dtype) -> None:
    """A product and a sum are exact in fractions, and one rounding gives the nearest number."""
    generator = torch.Generator().manual_seed(0)
    x, y, z = (torch.randn(1024, generator=generator).to(dtype) for _ in range(3))
    y[:512] = 2.0 ** torch.randint(-6, 7, (512,), generator=generator)
    z[:512] *= 2.0 ** torch.randint(-9, 10, (512,), generator=generator)
    exactly = [
        Fraction(a) * Fraction(b) + Fraction(c) for a, b, c in zip(x.tolist(), y.tolist(), z.tolist(), strict=True)
    ]
    options = [f"-DTYPE={'__half' if dtype is torch.float16 else '__nv_bfloat16'}"]
    out = torch.empty_like(x)
    DeviceKernel(IN_INTEGERS, "fused", ("tensor",) * 4, options=options)(x, y, z, out, grid=1, block=1024)
    assert out.tolist() == [_nearest(number, dtype) for number in exactly]
    tie = 1.0 + torch.finfo(dtype).eps / 2
    values = torch.tensor([tie, tie + 1e-12, tie - 1e-12, -tie - 1e-12, 1e300, torch.inf, 0.0], dtype=torch.float64)
    converted = torch.empty(7, dtype=dtype)
    DeviceKernel(IN_INTEGERS, "from_double", ("tensor", "tensor"), options=options)(values, converted, grid=1, block=7)
    above = 1.0 + torch.finfo(dtype).eps
    assert converted.tolist() == [1.0, above, 1.0, -above, torch.inf, torch.inf, 0.0]


def _nearest(number: Fraction, dtype: torch.dtype) -> float:
    """Return the number of a dtype that is nearest to a fraction; of two, the one with an even last digit."""
    near = torch.tensor(float(number)).to(dtype)
    bits = near.view(torch.int16)
    around = [(bits + step).view(dtype).item() for step in (-1, 0, 1) if bits.item() & 0x7FFF or step >= 0]
    nearest = min(abs(Fraction(value) - number) for value in around)
    ends = [value for value in around if abs(Fraction(value) - number) == nearest]
    return next(
        value for value in ends if len(ends) == 1 or torch.tensor(value).to(dtype).view(torch.int16).item() % 2 == 0
    )


def test_printf_and_assert(capfd: pytest.CaptureFixture[str]) -> None:
    x = _ints(4)
    source = LANGUAGE.replace("says(int n)", "says(const int* x, int n)")
    DeviceKernel(source, "says", (_T, "int32"), options=["-DROWS=4"])(x, 2, grid=2, block=3)
    assert capfd.readouterr().out == "block 0 of 2\nblock 1 of 2\n"
    x[2] = 1
    with pytest.raises(
        KernelFaultError, match=r"assertion failed: x\[threadIdx.x\] == 0 by thread 2 of block 0, at kernel-"
    ):
        _of_language("asserts", _T)(x, grid=1, block=4)
    with pytest.raises(KernelFaultError, match="__trap: by thread 2 of block 0, at kernel-") as caught:
        _of_language("traps", _T)(x, grid=1, block=4)
    assert caught.value.fault == "__trap"


@pytest.mark.parametrize(
    ("name", "args", "values", "launch", "error", "said"),
    [
        ("in_three", (_T,), (torch.zeros(9),), {}, None, ""),
        ("warp_order", (_T,), (torch.zeros(1).double(),), {}, ValueError, "torch.float64 for args.0.; .* torch.float32"),
        ("small_floats", (_T,) * 3, (torch.zeros(9).half(),) * 3, {}, ValueError, "torch.float16 for args.1.; .* torch.bfloat16"),
        ("in_three", (_T,), (torch.zeros(9).long(),), {}, ValueError, "got a tensor of torch.int64 .* integer of 4 bytes"),
        ("in_three", (_T, _T), (_ints(9), _ints(9)), {}, TypeError, "got 2 args; expected 1, one for each parameter"),
        ("says", (_T,), (_ints(9),), {}, ValueError, "got 'tensor' for args.0.; .* parameter, integer of 4"),
        ("in_three", (_T,), (_ints(9),), {"block": 1025}, ValueError, "got blocks of 1025 threads"),
        ("in_three", (_T,), (_ints(9),), {"shared_bytes": 1 << 20}, ValueError, "1048576 shared bytes"),
        ("in_three", (_T,), (_ints(0),), {"grid": 0}, None, ""),
        ("in_three", (_T,), (_ints(0),), {}, KernelFaultError, "access out of bounds"),
    ],
)  # fmt: skip
def test_wrong_values_are_refused(name: str, args: Any, values: Any, launch: Any, error: Any, said: str) -> None:
    kernel = _of_language(name, *args)
    if error is None:
        kernel(*values, **{"grid": 1, "block": 2, **launch})
        return
    with pytest.raises(error, match=said):
        kernel(*values, **{"grid": 1, "block": 2, **launch})


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ('asm volatile("nop;");', OpError, "got 'asm volatile.' in line 2; the block emulator has no inline PTX"),
        ("other<<<1, 1>>>();", OpError, "launches from source"),
        ("float* p = (float*)malloc(4); free(p);", OpError, "memory from a kernel's heap"),
        ("float* p = new float; delete p;", OpError, "memory from a kernel's heap"),
        ("float* p = new float[2]; delete[] p;", OpError, "memory from a kernel's heap"),
        ("struct One { One(const One&) = delete; };", None, ""),
        ("x[0] = tex1Dfetch<float>(t, 0);", OpError, "textures"),
        ("// tex1Dfetch asm(", None, ""),
        ("x[0] = __activemask();", BuildError, "the block emulator has no __activemask"),
        ("x[0] = nothing;", BuildError, r"kernel-[0-9a-f]+\.cu:2:\d+: error: .nothing. was not declared"),
        ("__shared__ double d; atomicExch(&d, 1.0);", BuildError, "CUDA's atomicExch takes int"),
    ],
)
def test_what_the_emulator_does_not_have_is_named(text: str, error: Any, said: str) -> None:
    kernel = DeviceKernel(f"__global__ void k(float* x) {{\n{text}\n}}", "k", (_T,))
    if error is None:
        kernel.compile("cpu")
        return
    with pytest.raises(error, match=said):
        kernel(torch.zeros(1), grid=1, block=1)


def test_threads_and_a_forked_child_launch() -> None:
    kernel, wrong = _kernel("reduction"), []

    def run() -> None:
        for _ in range(10):
            result, expected = _reduce(kernel)
            wrong.extend([] if torch.equal(result, expected) else [1])

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    children = []
    for _ in range(5):  # while the threads launch
        child = os.fork()
        if child == 0:
            x, out = torch.ones(100), torch.zeros(1)
            kernel(x, out, 100, grid=1, block=128)
            os._exit(int(out.item() != 100))
        children.append(child)
    for thread in threads:
        thread.join()
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 5
    assert not wrong


def test_control_c_ends_a_kernel_that_does_not_end() -> None:
    program = f"""
import torch
from anyaccel.ops import DeviceKernel
source = {LANGUAGE!r}
print("begins", flush=True)
DeviceKernel(source, "forever", ("tensor",), options=["-DROWS=4"])(torch.zeros(1, dtype=torch.int32), grid=1, block=32)
"""
    _of_language("forever", _T).compile("cpu")
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stderr is not None
        assert child.stdout.readline() == "begins\n"
        while child.poll() is None:
            child.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(0.5)
        assert "KeyboardInterrupt" in child.stderr.read()
