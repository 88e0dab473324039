// The op `lion`: schema, argument checks and launches, for every device.

#include "lion.h"

#include "optimizers.h"
#include "register_ops.h"

namespace anyaccel {
namespace {

void lion_step(std::vector<Tensor> params, std::vector<Tensor> grads, std::vector<Tensor> exp_avgs,
               std::optional<Tensor> noop_flag, std::optional<Tensor> grad_scale, std::optional<Tensor> device_lr,
               double lr, double beta1, double beta2, double weight_decay, bool maximize) {
  const LionCoefficients coefficients{static_cast<float>(lr),
                                      static_cast<float>(beta1),
                                      static_cast<float>(beta2),
                                      static_cast<float>(1.0 - beta1),
                                      static_cast<float>(1.0 - beta2),
                                      static_cast<float>(weight_decay),
                                      static_cast<float>(1.0 - lr * weight_decay),
                                      maximize ? -1.0f : 1.0f,
                                      0.0f};
  take_step<Lion>({"lion_step"}, "exp_avgs", std::move(params), std::move(grads), std::move(exp_avgs),
                  {noop_flag, grad_scale, device_lr}, coefficients);
}

constexpr Registration kOps[] = {
    ANYACCEL_OP(lion_step,
                "lion_step(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avgs, *, Tensor? noop_flag, "
                "Tensor? grad_scale, Tensor? device_lr, float lr, float beta1, float beta2, float weight_decay, "
                "bool maximize) -> ()"),
};

}  // namespace
}  // namespace anyaccel

ANYACCEL_REGISTER(anyaccel::kOps)
