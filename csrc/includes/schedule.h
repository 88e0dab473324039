// The learning rate and the step number, from the host or from the device, where a replayed graph sees their current
// values.

#pragma once

#include <cstdint>

#include "elementary.h"
#include "tensor_table.h"

namespace anyaccel {

// The values that Adam and LAMB derive from them, for one tensor.
struct SchedulePoint {
  float lr;
  float bias_correction1;  // 1 - beta1^step, or 1
  float bias_correction2;
};

struct Schedule {
  float lr;    // used if the device has none
  float step;  // used if the device has none; counted from 1
  float log_beta1;
  float log_beta2;

  // `tensor` counts all tensors of a call. expm1 keeps the digits that 1 - beta^step would lose.
  SchedulePoint at(const StepControl& control, std::int64_t tensor) const {
    const float number = control.steps == nullptr ? step : control.steps[tensor] + 1.0f;
    return {control.lr == nullptr ? lr : *control.lr, -exponential_minus_one(number * log_beta1),
            -exponential_minus_one(number * log_beta2)};
  }
};

}  // namespace anyaccel
