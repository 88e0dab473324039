// The learning rate and the number of a step, from the host or from the device, where a replayed graph sees them
// change.

#pragma once

#include <cstdint>

#include "elementary.h"
#include "tensor_table.h"

namespace anyaccel {

// What Adam and LAMB need of them, for one tensor.
struct SchedulePoint {
  float lr;
  float bias_correction1;  // 1 - beta1^step, or 1
  float bias_correction2;
};

struct Schedule {
  float lr;    // where the device has none
  float step;  // the same; counted from 1
  float log_beta1;
  float log_beta2;

  // `tensor` counts through all of a call's tensors. expm1 keeps what 1 - beta^step would round away.
  SchedulePoint at(const StepControl& control, std::int64_t tensor) const {
    const float number = control.steps == nullptr ? step : control.steps[tensor] + 1.0f;
    return {control.lr == nullptr ? lr : *control.lr, -exponential_minus_one(number * log_beta1),
            -exponential_minus_one(number * log_beta2)};
  }
};

}  // namespace anyaccel
