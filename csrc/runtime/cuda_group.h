// A kernel's view of a CUDA device: a block of threads in warps of 32 lanes; see block_group.h.

#pragma once

#include "block_bounds.h"
#include "block_group.h"

namespace anyaccel {

using CudaGroup = BlockGroup<32>;

// Every kernel is an instance of this one, named after its type. A kernel is its own argument: a struct of pointers and
// sizes with a call operator. Its register count is limited to what the largest blocks launched allow.
template <typename Kernel>
__global__ __launch_bounds__(most_threads<Kernel>(),
                             blocks_of_a_unit<Kernel>()) void run(const __grid_constant__ Kernel kernel) {
  kernel(CudaGroup{});
}

}  // namespace anyaccel
