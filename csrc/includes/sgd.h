// Stochastic gradient descent with momentum, as torch.optim.SGD defines it.

#pragma once

#include "tensor_step.h"

namespace anyaccel {

struct SgdCoefficients {
  float lr;
  float momentum;
  float kept_buffer;    // momentum; 0 in the first step, whose buffer is the gradient
  float kept_gradient;  // 1 - dampening; 1 in the first step
  float l2;
  float gradient_sign;
  bool is_nesterov;
};

struct Sgd {
  using Coefficients = SgdCoefficients;

  static Coefficients with_lr(Coefficients c, float lr) {
    c.lr = lr;
    return c;
  }

  static void step(float& param, float grad, float& buffer, const Coefficients& c) {
    buffer = c.kept_buffer * buffer + c.kept_gradient * grad;
    param -= c.lr * (c.is_nesterov ? grad + c.momentum * buffer : buffer);
  }
};

}  // namespace anyaccel
