// The op `multi_tensor_adam`: schema, argument checks and launches, for every device. On the CPU, `adam` is faster for
// many small tensors; this op takes a gradient scale and an overflow flag on the device.

#include "multi_tensor_adam.h"

#include "optimizers.h"
#include "register_ops.h"

namespace anyaccel {
namespace {

constexpr std::array<ListRole, 4> kRoles = {
    {{"params", true, false}, {"grads", false, false}, {"exp_avgs", true, true}, {"exp_avg_sqs", true, true}}};

// `steps` are the numbers of the steps to take, counted from 1, one per parameter; empty with `device_steps`.
void multi_tensor_adam_step(std::vector<Tensor> params, std::vector<Tensor> grads, std::vector<Tensor> exp_avgs,
                            std::vector<Tensor> exp_avg_sqs, std::vector<std::int64_t> steps,
                            std::optional<Tensor> noop_flag, std::optional<Tensor> grad_scale,
                            std::optional<Tensor> device_lr, std::optional<Tensor> device_steps, double lr,
                            double beta1, double beta2, double weight_decay, double eps, bool decoupled,
                            bool bias_correction, bool maximize) {
  const Arguments arguments{"multi_tensor_adam_step"};
  const std::size_t wanted = device_steps.has_value() ? 0 : params.size();
  if (steps.size() != wanted || (!steps.empty() && *std::ranges::min_element(steps) < 1)) {
    arguments.refuse("steps", "with " + std::to_string(steps.size()) + " numbers",
                     device_steps.has_value() ? "none together with device_steps"
                                              : "one of 1 or more for each of " + std::to_string(wanted) + " params",
                     "pass 1 for a parameter's first step; or no steps and device_steps");
  }
  StepControl control = step_control(arguments, {noop_flag, grad_scale, device_lr}, params);
  control.steps = steps_taken(arguments, device_steps, params);
  TensorLists<4> lists(arguments, kRoles,
                       {std::move(params), std::move(grads), std::move(exp_avgs), std::move(exp_avg_sqs)});
  const AdamOptions options{lr, beta1, beta2, weight_decay, eps, decoupled, bias_correction, maximize};
  const auto step_of = [&](std::size_t index) { return steps.empty() ? 1.0 : static_cast<double>(steps[index]); };
  lists.each_launch_of(step_of, [&](auto param, auto grad, const TensorTable<4>& table, std::size_t index) {
    const double step = step_of(index);
    const AdamStep<decltype(param), decltype(grad)> kernel{
        table, adam_coefficients(options, step), decoupled ? static_cast<float>(weight_decay) : 0.0f,
        schedule_of(lr, step, beta1, beta2, bias_correction), control};
    launch(lists.tensor(index, 0), kernel, work_of(table));
  });
  lists.finish();
}

constexpr Registration kOps[] = {
    ANYACCEL_OP(multi_tensor_adam_step,
                "multi_tensor_adam_step(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avgs, "
                "Tensor(c!)[] exp_avg_sqs, int[] steps, *, Tensor? noop_flag, Tensor? grad_scale, Tensor? device_lr, "
                "Tensor? device_steps, float lr, float beta1, float beta2, float weight_decay, float eps, "
                "bool decoupled, bool bias_correction, bool maximize) -> ()"),
};

}  // namespace
}  // namespace anyaccel

ANYACCEL_REGISTER(anyaccel::kOps)
