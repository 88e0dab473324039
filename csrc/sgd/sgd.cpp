// The op `sgd`: schema, argument checks and launches, for every device.

#include "sgd.h"

#include "optimizers.h"
#include "register_ops.h"

namespace anyaccel {
namespace {

void sgd_step(std::vector<Tensor> params, std::vector<Tensor> grads, std::vector<Tensor> momentum_buffers,
              std::optional<Tensor> noop_flag, std::optional<Tensor> grad_scale, std::optional<Tensor> device_lr,
              double lr, double momentum, double dampening, double weight_decay, bool nesterov, bool maximize,
              bool first_step) {
  const bool reads_buffers = momentum != 0.0 && !first_step;
  if (momentum == 0.0 && momentum_buffers.empty()) {
    for (const Tensor& param : params) {
      momentum_buffers.push_back(empty_of(param, ScalarType::Float));
    }
  }
  const SgdCoefficients coefficients{static_cast<float>(lr),
                                     nesterov ? static_cast<float>(momentum) : 1.0f,
                                     static_cast<float>(momentum),
                                     reads_buffers ? static_cast<float>(1.0 - dampening) : 1.0f,  // like torch
                                     static_cast<float>(weight_decay),
                                     maximize ? -1.0f : 1.0f,
                                     nesterov ? ~0u : 0u,
                                     reads_buffers ? ~0u : 0u};
  take_step<Sgd>({"sgd_step"}, "momentum_buffers", std::move(params), std::move(grads), std::move(momentum_buffers),
                 {noop_flag, grad_scale, device_lr}, coefficients);
}

constexpr Registration kOps[] = {
    ANYACCEL_OP(sgd_step,
                "sgd_step(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] momentum_buffers, *, Tensor? noop_flag, "
                "Tensor? grad_scale, Tensor? device_lr, float lr, float momentum, float dampening, float weight_decay, "
                "bool nesterov, bool maximize, bool first_step) -> ()"),
};

}  // namespace
}  // namespace anyaccel

ANYACCEL_REGISTER(anyaccel::kOps)
