// The bounds that a kernel is compiled with, on CUDA and HIP: threads of a block, and blocks of a unit.

#pragma once

namespace anyaccel {

// The most threads of a block: kMostThreads or kMostThreadsWithTotals of launch_shape.h.
template <typename Kernel>
constexpr int most_threads() {
  if constexpr (requires { Kernel::kKeepsTotals; }) {
    return 1024;
  } else {
    return 512;
  }
}

// The number of blocks of 512 threads that an SM, or AMD's compute unit, should hold, if a kernel sets it. On an SM two
// leave a thread 64 registers, three 40; the compiler may choose 32 by itself, and spill the rest to memory.
template <typename Kernel>
constexpr int blocks_of_a_unit() {
  if constexpr (requires { Kernel::kBlocksOfAnSm; }) {
    return Kernel::kBlocksOfAnSm;
  } else {
    return 0;
  }
}

}  // namespace anyaccel
