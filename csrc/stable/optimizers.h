// What the host sides of the optimizers share.

#pragma once

#include <optional>
#include <vector>

#include "tensor_lists.h"

namespace anyaccel {

// The tensors that decide on the device whether a step is taken; they must outlive the launches.
inline StepControl step_control(const Arguments& arguments, const std::optional<Tensor>& skip,
                                const std::optional<Tensor>& grad_scale, const std::vector<Tensor>& params) {
  StepControl control{nullptr, nullptr};
  if (params.empty()) {
    return control;
  }
  if (skip.has_value()) {
    arguments.same_device(*skip, "noop_flag", params[0], "params[0]");
    const bool fits =
        skip->numel() == 1 && (skip->scalar_type() == ScalarType::Int || skip->scalar_type() == ScalarType::Float);
    if (!fits) {
      arguments.refuse("noop_flag", "of " + std::string(text_of(skip->scalar_type())) + " and shape " + text_of(*skip),
                       "one int32 or float32", "make it one number");
    }
    control.skip = static_cast<const std::int32_t*>(skip->const_data_ptr());  // 0.0f is the integer 0 too
  }
  if (grad_scale.has_value()) {
    arguments.same_device(*grad_scale, "grad_scale", params[0], "params[0]");
    arguments.dtype(*grad_scale, "grad_scale", ScalarType::Float);
    arguments.one_number(*grad_scale, "grad_scale");
    control.grad_scale = static_cast<const float*>(grad_scale->const_data_ptr());
  }
  return control;
}

}  // namespace anyaccel
