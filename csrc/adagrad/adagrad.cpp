// The op `adagrad`: schema, argument checks and launches, for every device.

#include "adagrad.h"

#include "optimizers.h"
#include "register_ops.h"

namespace anyaccel {
namespace {

constexpr std::array<ListRole, 3> kRoles = {{{"params", true, false}, {"grads", false, false}, {"sums", true, true}}};

void adagrad_step(std::vector<Tensor> params, std::vector<Tensor> grads, std::vector<Tensor> sums,
                  std::optional<Tensor> noop_flag, std::optional<Tensor> grad_scale, double lr, double weight_decay,
                  double eps, bool maximize) {
  const Arguments arguments{"adagrad_step"};
  const StepControl control = step_control(arguments, noop_flag, grad_scale, params);
  TensorLists<3> lists(arguments, kRoles, {std::move(params), std::move(grads), std::move(sums)});
  const AdagradCoefficients coefficients{static_cast<float>(lr), static_cast<float>(eps),
                                         static_cast<float>(weight_decay), maximize ? -1.0f : 1.0f};
  lists.each_launch([&](auto param, auto grad, const TensorTable<3>& table, std::size_t index) {
    const TensorStep<Adagrad, decltype(param), decltype(grad)> kernel{table, coefficients, control};
    launch(lists.tensor(index, 0), kernel, work_of(table));
  });
  lists.finish();
}

constexpr Registration kOps[] = {
    ANYACCEL_OP(adagrad_step,
                "adagrad_step(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] sums, *, Tensor? noop_flag, "
                "Tensor? grad_scale, float lr, float weight_decay, float eps, bool maximize) -> ()"),
};

}  // namespace
}  // namespace anyaccel

ANYACCEL_REGISTER(anyaccel::kOps)
