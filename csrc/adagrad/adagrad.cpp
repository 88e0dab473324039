// The op `adagrad`: schema, argument checks and launches, for every device.

#include "adagrad.h"

#include "optimizers.h"
#include "register_ops.h"

namespace anyaccel {
namespace {

void adagrad_step(std::vector<Tensor> params, std::vector<Tensor> grads, std::vector<Tensor> sums,
                  std::optional<Tensor> noop_flag, std::optional<Tensor> grad_scale, double lr, double weight_decay,
                  double eps, bool maximize) {
  const AdagradCoefficients coefficients{static_cast<float>(lr), static_cast<float>(eps),
                                         static_cast<float>(weight_decay), maximize ? -1.0f : 1.0f};
  take_step<Adagrad>({"adagrad_step"}, "sums", std::move(params), std::move(grads), std::move(sums),
                     {noop_flag, grad_scale, std::nullopt}, coefficients);
}

constexpr Registration kOps[] = {
    ANYACCEL_OP(adagrad_step,
                "adagrad_step(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] sums, *, Tensor? noop_flag, "
                "Tensor? grad_scale, float lr, float weight_decay, float eps, bool maximize) -> ()"),
};

}  // namespace
}  // namespace anyaccel

ANYACCEL_REGISTER(anyaccel::kOps)
