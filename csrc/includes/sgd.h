// Stochastic gradient descent with momentum, as torch.optim.SGD defines it.

#pragma once

#include <cstdint>

#include "tensor_step.h"

namespace anyaccel {

struct SgdCoefficients {
  float lr;
  float buffer_weight;  // in the update: the momentum with Nesterov's, else 1
  float kept_buffer;    // momentum; 0 in the first step, whose buffer is the gradient
  float kept_gradient;  // 1 - dampening; 1 in the first step
  float l2;
  float gradient_sign;
  std::uint32_t gradient_mask;  // all ones with Nesterov's momentum, else 0
};

struct Sgd {
  using Coefficients = SgdCoefficients;

  static Coefficients with_lr(Coefficients c, float lr) {
    c.lr = lr;
    return c;
  }

  static void step(float& param, float grad, float& buffer, const Coefficients& c) {
    buffer = c.kept_buffer * buffer + c.kept_gradient * grad;
    // A mask, because a branch keeps the loop from being vectorised, and a factor of 0 makes a NaN of an infinity.
    const float ahead = bit_cast<float>(bit_cast<std::uint32_t>(grad) & c.gradient_mask);
    param -= c.lr * (ahead + c.buffer_weight * buffer);
  }
};

}  // namespace anyaccel
