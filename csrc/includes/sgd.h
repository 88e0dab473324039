// Stochastic gradient descent with momentum, as torch.optim.SGD defines it.
//
// Memory traffic with float32 everywhere: 12 B read and 8 B written a parameter.

#pragma once

#include <cstdint>

#include "precision.h"
#include "tensor_table.h"

namespace anyaccel {

struct SgdCoefficients {
  float lr;
  float momentum;
  float kept_buffer;    // momentum; 0 in the first step, whose buffer is the gradient
  float kept_gradient;  // 1 - dampening; 1 in the first step
  float l2;             // weight_decay, added to the gradient as l2 * param
  float gradient_sign;  // -1 when the objective is maximised
  bool is_nesterov;
};

template <bool HasL2>
inline void sgd_step(float& param, float grad, float& buffer, const SgdCoefficients& c) {
  grad *= c.gradient_sign;
  if constexpr (HasL2) {
    grad += c.l2 * param;
  }
  buffer = c.kept_buffer * buffer + c.kept_gradient * grad;
  param -= c.lr * (c.is_nesterov ? grad + c.momentum * buffer : buffer);
}

template <typename Param, typename Grad>
struct SgdStep {
  TensorTable<3> tensors;  // params, grads, momentum_buffers
  SgdCoefficients coefficients;
  StepControl control;

  template <typename Group>
  void operator()(const Group& group) const {
    if (control.is_skipped()) {
      return;
    }
    coefficients.l2 != 0.0f ? run<true>(group) : run<false>(group);
  }

 private:
  template <bool HasL2, typename Group>
  void run(const Group& group) const {
    const float factor = control.grad_factor();
    group.tensors(tensors, [=, this, c = coefficients](std::int32_t number) {
      Param* param = tensors.template at<Param>(number, 0);
      const Grad* grad = tensors.template at<const Grad>(number, 1);
      float* buffer = tensors.template at<float>(number, 2);
      return [=](std::int64_t i) {
        float p = to_float(param[i]);
        float b = buffer[i];
        sgd_step<HasL2>(p, to_float(grad[i]) * factor, b, c);
        store(p, param[i]);
        buffer[i] = b;
      };
    });
  }
};

}  // namespace anyaccel
