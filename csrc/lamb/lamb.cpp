// The op `lamb`: schema, argument checks and launches, for every device.

#include "lamb.h"

#include <cmath>

#include "allocation.h"
#include "optimizers.h"
#include "register_ops.h"
#include "tensor_norms.h"

namespace anyaccel {
namespace {

constexpr std::array<ListRole, 5> kRoles = {{{"params", true, false},
                                             {"grads", false, false},
                                             {"exp_avgs", true, true},
                                             {"exp_avg_sqs", true, true},
                                             {"updates", true, true}}};

// Returns each parameter's trust ratio, (params), float32. `step` is counted from 1; 0 with `device_steps`.
Tensor lamb_step(std::vector<Tensor> params, std::vector<Tensor> grads, std::vector<Tensor> exp_avgs,
                 std::vector<Tensor> exp_avg_sqs, std::int64_t step, std::optional<Tensor> noop_flag,
                 std::optional<Tensor> grad_scale, std::optional<Tensor> device_lr, std::optional<Tensor> device_steps,
                 double lr, double beta1, double beta2, double weight_decay, double eps, double min_coeff,
                 double max_coeff, bool bias_correction, bool eps_inside_sqrt, bool maximize) {
  const Arguments arguments{"lamb_step"};
  if (params.empty() || (device_steps.has_value() ? step != 0 : step < 1)) {
    arguments.refuse(params.empty() ? "params" : "step", params.empty() ? "none" : std::to_string(step),
                     params.empty() || !device_steps.has_value() ? "one or more" : "0 together with device_steps",
                     "pass parameters, and 1 for the first step; or 0 and device_steps");
  }
  StepControl control = step_control(arguments, {noop_flag, grad_scale, device_lr}, params);
  control.steps = steps_taken(arguments, device_steps, params);
  std::vector<Tensor> updates;
  for (const Tensor& param : params) {
    updates.push_back(empty_of(param, ScalarType::Float));
  }
  TensorLists<5> lists(arguments, kRoles,
                       {std::move(params), std::move(grads), std::move(exp_avgs), std::move(exp_avg_sqs), updates});
  const Schedule schedule = schedule_of(lr, static_cast<double>(step), beta1, beta2, bias_correction);
  const double bc1 = bias_correction ? 1.0 - std::pow(beta1, step) : 1.0;
  const double bc2 = bias_correction ? 1.0 - std::pow(beta2, step) : 1.0;
  const LambCoefficients coefficients{static_cast<float>(beta1),
                                      static_cast<float>(beta2),
                                      static_cast<float>(1.0 - beta1),
                                      static_cast<float>(1.0 - beta2),
                                      static_cast<float>(eps),
                                      static_cast<float>(weight_decay),
                                      static_cast<float>(lr * std::sqrt(bc2) / bc1),
                                      static_cast<float>(min_coeff),
                                      static_cast<float>(max_coeff),
                                      maximize ? -1.0f : 1.0f,
                                      eps_inside_sqrt};
  const Tensor& like = lists.tensor(0, 0);
  const auto count = static_cast<std::int64_t>(lists.size());
  const Tensor param_norms = empty_of(like, {count}, ScalarType::Float);
  const Tensor update_norms = empty_of(like, {count}, ScalarType::Float);
  Tensor ratios = empty_of(like, {count}, ScalarType::Float);
  torch::stable::fill_(ratios, 1.0);  // the result of a skipped step
  lists.each_launch([&](auto param, auto grad, const TensorTable<5>& table, std::size_t index) {
    const LambUpdate<decltype(param), decltype(grad)> kernel{table, coefficients, control};
    launch(lists.tensor(index, 0), kernel, work_of(table));
  });
  launch_norms(lists, 0, param_norms, nullptr);
  launch_norms(lists, 4, update_norms, nullptr);
  lists.each_launch([&](auto param, auto, const TensorTable<5>& all, std::size_t index) {
    TensorTable<2> table{};
    table.first = all.first;
    for (std::int32_t number = 0; number < all.count; ++number) {
      table.add(all.elements_of(number), {all.data[number][0], all.data[number][4]});
    }
    const LambApply<decltype(param)> kernel{
        table,  read<float>(param_norms), read<float>(update_norms), written<float>(ratios), coefficients, schedule,
        control};
    launch(lists.tensor(index, 0), kernel, work_of(table));
  });
  lists.finish();
  return ratios;
}

constexpr Registration kOps[] = {
    ANYACCEL_OP(
        lamb_step,
        "lamb_step(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs, "
        "int step, *, Tensor? noop_flag, Tensor? grad_scale, Tensor? device_lr, Tensor? device_steps, float lr, "
        "float beta1, float beta2, float weight_decay, float eps, float min_coeff, float max_coeff, "
        "bool bias_correction, bool eps_inside_sqrt, bool maximize) -> Tensor"),
};

}  // namespace
}  // namespace anyaccel

ANYACCEL_REGISTER(anyaccel::kOps)
