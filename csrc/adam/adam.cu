// Adam on CUDA devices: one launch steps up to 64 tensors, a thread an element at a time.
//
// Memory traffic with float32 everywhere: 16 B read and 12 B written a parameter, each once and coalesced.

#include "adam.h"
#include "adam_launch.h"
#include "precision.h"

namespace anyaccel {

// The number of the tensor that holds an element; `ends` ascend, and a warp's elements almost always agree.
inline int tensor_of(const AdamLaunch& launch, std::int64_t element) {
  int low = 0;
  int high = launch.count - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (element < launch.tensors[middle].end) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

template <typename Param, typename Grad>
inline void adam_step_all(const AdamLaunch& launch) {
  const std::int64_t total = launch.tensors[launch.count - 1].end;
  const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const bool has_l2 = launch.coefficients.l2 != 0.0f;
  for (std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; at < total; at += stride) {
    const int number = tensor_of(launch, at);
    const AdamDeviceTensor& tensor = launch.tensors[number];
    const std::int64_t i = at - (number == 0 ? 0 : launch.tensors[number - 1].end);
    Param& param = static_cast<Param*>(tensor.param)[i];
    float& exp_avg = static_cast<float*>(tensor.exp_avg)[i];
    float& exp_avg_sq = static_cast<float*>(tensor.exp_avg_sq)[i];
    const float grad = to_float(static_cast<const Grad*>(tensor.grad)[i]);
    float p = to_float(param);
    float m = exp_avg;
    float v = exp_avg_sq;
    if (has_l2) {
      adam_step<true>(p, grad, m, v, launch.coefficients);
    } else {
      adam_step<false>(p, grad, m, v, launch.coefficients);
    }
    store(p, param);
    exp_avg = m;
    exp_avg_sq = v;
  }
}

}  // namespace anyaccel

// Named by the precisions of param and grad; the states are float32.
#define ANYACCEL_ADAM_KERNEL(name, Param, Grad)                                          \
  extern "C" __global__ void name(const __grid_constant__ anyaccel::AdamLaunch launch) { \
    anyaccel::adam_step_all<Param, Grad>(launch);                                        \
  }

ANYACCEL_ADAM_KERNEL(adam_step_float_float, float, float)
ANYACCEL_ADAM_KERNEL(adam_step_bfloat16_bfloat16, anyaccel::BFloat16, anyaccel::BFloat16)
ANYACCEL_ADAM_KERNEL(adam_step_bfloat16_float, anyaccel::BFloat16, float)
ANYACCEL_ADAM_KERNEL(adam_step_half_half, anyaccel::Half, anyaccel::Half)
ANYACCEL_ADAM_KERNEL(adam_step_half_float, anyaccel::Half, float)

#undef ANYACCEL_ADAM_KERNEL
