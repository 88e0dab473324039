// Common host code of the optimizer ops.

#pragma once

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "schedule.h"
#include "tensor_lists.h"
#include "tensor_step.h"

namespace anyaccel {

// The schema names of the tensors that decide on the device whether and how a step is taken.
struct DeviceControl {
  const std::optional<Tensor>& noop_flag;
  const std::optional<Tensor>& grad_scale;
  const std::optional<Tensor>& device_lr;
};

inline const float* one_float(const Arguments& arguments, const std::optional<Tensor>& tensor, const char* name,
                              const Tensor& param) {
  if (!tensor.has_value()) {
    return nullptr;
  }
  arguments.same_device(*tensor, name, param, "params[0]");
  arguments.dtype(*tensor, name, ScalarType::Float);
  arguments.one_number(*tensor, name);
  return static_cast<const float*>(tensor->const_data_ptr());
}

// Its tensors must outlive the launches.
inline StepControl step_control(const Arguments& arguments, const DeviceControl& given,
                                const std::vector<Tensor>& params) {
  StepControl control{};
  const std::optional<Tensor>& skip = given.noop_flag;
  if (params.empty()) {
    return control;
  }
  if (skip.has_value()) {
    arguments.same_device(*skip, "noop_flag", params[0], "params[0]");
    const bool fits =
        skip->numel() == 1 && (skip->scalar_type() == ScalarType::Int || skip->scalar_type() == ScalarType::Float);
    if (!fits) {
      arguments.refuse("noop_flag", "of " + std::string(text_of(skip->scalar_type())) + " and shape " + text_of(*skip),
                       "one int32 or float32", "pass torch.zeros(1, dtype=torch.int32, device=params[0].device)");
    }
    control.skip = static_cast<const std::int32_t*>(skip->const_data_ptr());  // 0.0f has the bits of the integer 0
  }
  control.grad_scale = one_float(arguments, given.grad_scale, "grad_scale", params[0]);
  control.lr = one_float(arguments, given.device_lr, "device_lr", params[0]);
  return control;
}

// The number of steps so far, one per parameter, if it is on the device; otherwise null.
inline const float* steps_taken(const Arguments& arguments, const std::optional<Tensor>& device_steps,
                                const std::vector<Tensor>& params) {
  if (!device_steps.has_value() || params.empty()) {
    return nullptr;
  }
  arguments.same_device(*device_steps, "device_steps", params[0], "params[0]");
  arguments.dtype(*device_steps, "device_steps", ScalarType::Float);
  arguments.shape(*device_steps, "device_steps", {static_cast<std::int64_t>(params.size())}, params[0], "params");
  if (!device_steps->is_contiguous()) {
    arguments.refuse("device_steps", "with gaps between its elements", "no gaps", "pass device_steps.contiguous()");
  }
  return static_cast<const float*>(device_steps->const_data_ptr());
}

inline Schedule schedule_of(double lr, double step, double beta1, double beta2, bool bias_correction) {
  const double none = -std::numeric_limits<double>::infinity();
  return {static_cast<float>(lr), static_cast<float>(step),
          static_cast<float>(bias_correction ? std::log(beta1) : none),
          static_cast<float>(bias_correction ? std::log(beta2) : none)};
}

// A whole step of an optimizer with one state per parameter; `states_name` is the state's name in the schema.
template <typename Formula>
void take_step(const Arguments& arguments, const char* states_name, std::vector<Tensor> params,
               std::vector<Tensor> grads, std::vector<Tensor> states, const DeviceControl& given,
               const typename Formula::Coefficients& coefficients) {
  const StepControl control = step_control(arguments, given, params);
  TensorLists<3> lists(arguments, {{{"params", true, false}, {"grads", false, false}, {states_name, true, true}}},
                       {std::move(params), std::move(grads), std::move(states)});
  lists.each_launch([&](auto param, auto grad, const TensorTable<3>& table, std::size_t index) {
    const TensorStep<Formula, decltype(param), decltype(grad)> kernel{table, coefficients, control};
    launch(lists.tensor(index, 0), kernel, work_of(table));
  });
  lists.finish();
}

}  // namespace anyaccel
