// The op `sgd`: schema, argument checks and launches, for every device.

#include "sgd.h"

#include "optimizers.h"
#include "register_ops.h"

namespace anyaccel {
namespace {

constexpr std::array<ListRole, 3> kRoles = {
    {{"params", true, false}, {"grads", false, false}, {"momentum_buffers", true, true}}};

void sgd_step(std::vector<Tensor> params, std::vector<Tensor> grads, std::vector<Tensor> momentum_buffers,
              std::optional<Tensor> noop_flag, std::optional<Tensor> grad_scale, double lr, double momentum,
              double dampening, double weight_decay, bool nesterov, bool maximize, bool first_step) {
  const Arguments arguments{"sgd_step"};
  const StepControl control = step_control(arguments, noop_flag, grad_scale, params);
  TensorLists<3> lists(arguments, kRoles, {std::move(params), std::move(grads), std::move(momentum_buffers)});
  const SgdCoefficients coefficients{static_cast<float>(lr),
                                     static_cast<float>(momentum),
                                     first_step ? 0.0f : static_cast<float>(momentum),
                                     first_step ? 1.0f : static_cast<float>(1.0 - dampening),
                                     static_cast<float>(weight_decay),
                                     maximize ? -1.0f : 1.0f,
                                     nesterov};
  lists.each_launch([&](auto param, auto grad, const TensorTable<3>& table, std::size_t index) {
    const TensorStep<Sgd, decltype(param), decltype(grad)> kernel{table, coefficients, control};
    launch(lists.tensor(index, 0), kernel, work_of(table));
  });
  lists.finish();
}

constexpr Registration kOps[] = {
    ANYACCEL_OP(sgd_step,
                "sgd_step(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] momentum_buffers, *, Tensor? noop_flag, "
                "Tensor? grad_scale, float lr, float momentum, float dampening, float weight_decay, bool nesterov, "
                "bool maximize, bool first_step) -> ()"),
};

}  // namespace
}  // namespace anyaccel

ANYACCEL_REGISTER(anyaccel::kOps)
