// CUDA's language extensions for a C++ compiler. Included before the source of a kernel.

#pragma once

#include <math.h>  // isnan and others without std::, too

#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../block.h"

namespace emulator {

template <std::size_t bytes>
constexpr std::size_t alignment() {
  return bytes;
}

template <typename Type>
constexpr std::size_t alignment() {
  return alignof(Type);
}

}  // namespace emulator

#define __global__
#define __device__
#define __host__
#define __constant__
#define __managed__
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __align__(bytes) __attribute__((aligned(bytes)))
#define alignas(...) __attribute__((aligned(::emulator::alignment<__VA_ARGS__>())))  // may follow `__shared__`
#define __shared__ thread_local  // blocks run one after the other; unlike `static`, it may follow `extern`

#define threadIdx (::emulator::thread_index)
#define blockIdx (::emulator::block_index)
#define blockDim (::emulator::block_size)
#define gridDim (::emulator::grid_size)
#define warpSize EMULATOR_LANES

#define EMULATOR_HAS_NO(what) __attribute__((error("the block emulator has no " what)))

#include "cuda_atomics.h"
#include "cuda_math.h"
#include "cuda_vectors.h"
#include "cuda_warp.h"

// A compiler expands these in place, where nothing checks them; calls of the functions are checked.
#define __builtin_memcpy memcpy
#define __builtin_memmove memmove
#define __builtin_memset memset
