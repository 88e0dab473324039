// The argument of the device kernels of `adam`: several tensors in one launch, passed by value.

#pragma once

#include <cstdint>

#include "adam.h"

namespace anyaccel {

inline constexpr int kAdamTensorsPerLaunch = 64;  // 2.6 KB of the 4 KB that a kernel's arguments may take

struct AdamDeviceTensor {
  void* param;
  const void* grad;
  void* exp_avg;
  void* exp_avg_sq;
  std::int64_t end;  // of its elements, counted through all tensors of the launch
};

struct AdamLaunch {
  AdamCoefficients coefficients;
  std::int32_t count;
  AdamDeviceTensor tensors[kAdamTensorsPerLaunch];
};

}  // namespace anyaccel
