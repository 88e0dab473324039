// The op `lion`: schema, argument checks and launches, for every device.

#include "lion.h"

#include "optimizers.h"
#include "register_ops.h"

namespace anyaccel {
namespace {

constexpr std::array<ListRole, 3> kRoles = {
    {{"params", true, false}, {"grads", false, false}, {"exp_avgs", true, true}}};

void lion_step(std::vector<Tensor> params, std::vector<Tensor> grads, std::vector<Tensor> exp_avgs,
               std::optional<Tensor> noop_flag, std::optional<Tensor> grad_scale, double lr, double beta1, double beta2,
               double weight_decay, bool maximize) {
  const Arguments arguments{"lion_step"};
  const StepControl control = step_control(arguments, noop_flag, grad_scale, params);
  TensorLists<3> lists(arguments, kRoles, {std::move(params), std::move(grads), std::move(exp_avgs)});
  const LionCoefficients coefficients{static_cast<float>(lr),          static_cast<float>(beta1),
                                      static_cast<float>(beta2),       static_cast<float>(1.0 - beta1),
                                      static_cast<float>(1.0 - beta2), static_cast<float>(1.0 - lr * weight_decay),
                                      maximize ? -1.0f : 1.0f,         0.0f};
  lists.each_launch([&](auto param, auto grad, const TensorTable<3>& table, std::size_t index) {
    const TensorStep<Lion, decltype(param), decltype(grad)> kernel{table, coefficients, control};
    launch(lists.tensor(index, 0), kernel, work_of(table));
  });
  lists.finish();
}

constexpr Registration kOps[] = {
    ANYACCEL_OP(lion_step,
                "lion_step(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avgs, *, Tensor? noop_flag, "
                "Tensor? grad_scale, float lr, float beta1, float beta2, float weight_decay, bool maximize) -> ()"),
};

}  // namespace
}  // namespace anyaccel

ANYACCEL_REGISTER(anyaccel::kOps)
