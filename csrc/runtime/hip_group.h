// A kernel's view of an AMD GPU: a block of threads in waves of 32 or 64 lanes; see block_group.h.

#pragma once

#include "block_bounds.h"
#include "block_group.h"

namespace anyaccel {

// The waves' size is the target's (op_builder/hip/targets.py).
using HipGroup = BlockGroup<ANYACCEL_LANES>;

}  // namespace anyaccel

// Defines a kernel that takes a struct and calls it; the engine writes one for each instance that it compiles. The
// limit on a block's threads leaves the compiler as many registers as a kernel needs. It has a name, because hipRTC's
// __launch_bounds__ takes two arguments, and a type has commas.
#define ANYACCEL_HIP_KERNEL(name, ...)                                  \
  constexpr int name##_threads = anyaccel::most_threads<__VA_ARGS__>(); \
  extern "C" __global__ __launch_bounds__(name##_threads) void name(const __VA_ARGS__ kernel) { kernel(HipGroup{}); }
