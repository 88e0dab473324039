// Sums an array in the classic way: a grid-stride loop, a tree in shared memory, the last warp by shuffles, and one atomic
// addition for each block.

#include <cuda_runtime.h>

#define FULL_MASK 0xffffffffu

template <typename T>
__device__ __forceinline__ T warp_sum(T value) {
#pragma unroll
  for (int offset = warpSize / 2; offset > 0; offset /= 2) value += __shfl_down_sync(FULL_MASK, value, offset);
  return value;
}

template <typename T, int BLOCK>
__global__ void __launch_bounds__(BLOCK) reduce_sum(const T* __restrict__ input, T* __restrict__ output, size_t n) {
  __shared__ T partial[BLOCK];
  const unsigned tid = threadIdx.x;

  T sum = 0;
  for (size_t i = blockIdx.x * (size_t)BLOCK + tid; i < n; i += (size_t)gridDim.x * BLOCK) {
    sum += input[i];
  }
  partial[tid] = sum;
  __syncthreads();  // every partial sum is there

#pragma unroll
  for (unsigned stride = BLOCK / 2; stride >= 32; stride >>= 1) {
    if (tid < stride) {
      partial[tid] += partial[tid + stride];
    }
    __syncthreads();  // of this step
  }

  if (tid < 32) {
    sum = warp_sum(partial[tid]);
    if (tid == 0) atomicAdd(output, sum);
  }
}
