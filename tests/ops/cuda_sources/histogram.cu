// A histogram of bytes: each block counts in dynamic shared memory and adds its counts to the result.

#include <stdint.h>

__global__ void histogram(const uint8_t* data, unsigned int* bins, int n, int num_bins) {
  extern __shared__ unsigned int local_bins[];

  for (int b = threadIdx.x; b < num_bins; b += blockDim.x) local_bins[b] = 0;
  __syncthreads();

  const int stride = blockDim.x * gridDim.x;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
    const int bin = data[i] * num_bins / 256;
    atomicAdd(&local_bins[bin], 1u);
  }
  __syncthreads();

  for (int b = threadIdx.x; b < num_bins; b += blockDim.x) {
    const unsigned int count = local_bins[b];
    if (count > 0) atomicAdd(&bins[b], count);
  }
}
