// What the host sides of the optimizers share.

#pragma once

#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "tensor_lists.h"
#include "tensor_step.h"

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

// A whole step of an optimizer that keeps one state beside each parameter; `states_name` is the schema's for them.
template <typename Formula>
void take_step(const Arguments& arguments, const char* states_name, std::vector<Tensor> params,
               std::vector<Tensor> grads, std::vector<Tensor> states, const std::optional<Tensor>& noop_flag,
               const std::optional<Tensor>& grad_scale, const typename Formula::Coefficients& coefficients) {
  const StepControl control = step_control(arguments, noop_flag, grad_scale, params);
  TensorLists<3> lists(arguments, {{{"params", true, false}, {"grads", false, false}, {states_name, true, true}}},
                       {std::move(params), std::move(grads), std::move(states)});
  lists.each_launch([&](auto param, auto grad, const TensorTable<3>& table, std::size_t index) {
    const TensorStep<Formula, decltype(param), decltype(grad)> kernel{table, coefficients, control};
    launch(lists.tensor(index, 0), kernel, work_of(table));
  });
  lists.finish();
}

}  // namespace anyaccel
