// The interface between adam.cpp's checks and the CPU's loops.

#pragma once

#include <cstdint>
#include <span>

#include "adam.h"

namespace anyaccel {

enum class Precision : std::uint8_t { Float, BFloat16, Half };

// One tensor's step: four arrays of `numel` elements. The state's precision differs from the parameter's only if the
// state is float32.
struct AdamTensor {
  void* param;
  const void* grad;
  void* exp_avg;
  void* exp_avg_sq;
  std::int64_t numel;
  Precision param_precision;
  Precision grad_precision;
  Precision state_precision;
  AdamCoefficients coefficients;
};

enum class AdamDirection : std::uint8_t { Step, Rollback };

// Applies one step (or reverts one) for elements [begin, end) of a tensor, on the calling thread.
void adam_cpu_range(const AdamTensor& tensor, std::int64_t begin, std::int64_t end, AdamDirection direction);

}  // namespace anyaccel
