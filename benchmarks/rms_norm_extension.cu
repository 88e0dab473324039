// The peer in bench_device_build.py: RMSNorm's forward only, three dtypes, with torch's headers in the usual way.

#include <torch/extension.h>

template <typename T>
__global__ void rms_forward(const T* x, const T* weight, T* y, float* inverse_rms, int64_t columns, float eps) {
  __shared__ float parts[32];
  const T* from = x + blockIdx.x * columns;
  float total = 0.0f;
  for (int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
    const float value = static_cast<float>(from[i]);
    total += value * value;
  }
  for (int offset = 16; offset > 0; offset /= 2) {
    total += __shfl_xor_sync(0xffffffffu, total, offset);
  }
  if (threadIdx.x % 32 == 0) {
    parts[threadIdx.x / 32] = total;
  }
  __syncthreads();
  total = threadIdx.x % 32 < blockDim.x / 32 ? parts[threadIdx.x % 32] : 0.0f;
  for (int offset = 16; offset > 0; offset /= 2) {
    total += __shfl_xor_sync(0xffffffffu, total, offset);
  }
  const float scale = rsqrtf(total / columns + eps);
  for (int64_t i = threadIdx.x; i < columns; i += blockDim.x) {
    y[blockIdx.x * columns + i] = static_cast<T>(static_cast<float>(from[i]) * scale * static_cast<float>(weight[i]));
  }
  if (threadIdx.x == 0) {
    inverse_rms[blockIdx.x] = scale;
  }
}

template __global__ void rms_forward(const float*, const float*, float*, float*, int64_t, float);
template __global__ void rms_forward(const c10::BFloat16*, const c10::BFloat16*, c10::BFloat16*, float*, int64_t,
                                     float);
template __global__ void rms_forward(const c10::Half*, const c10::Half*, c10::Half*, float*, int64_t, float);
