// Stochastic gradient descent with momentum, as torch.optim.SGD defines it.

#pragma once

#include <cstdint>

#include "tensor_step.h"

namespace anyaccel {

struct SgdCoefficients {
  float lr;
  float buffer_weight;  // in the update: the momentum with Nesterov's, else 1
  float kept_buffer;    // the momentum
  float kept_gradient;  // 1 - dampening; 1 in the first step
  float l2;
  float gradient_sign;
  std::uint32_t gradient_mask;  // all ones with Nesterov's momentum, else 0
  std::uint32_t buffer_mask;    // 0 if the buffer is not read: in the first step and without momentum; else all ones
};

struct Sgd {
  using Coefficients = SgdCoefficients;

  static Coefficients with_lr(Coefficients c, float lr) {
    c.lr = lr;
    return c;
  }

  static void step(float& param, float grad, float& buffer, const Coefficients& c) {
    buffer = c.kept_buffer * masked(buffer, c.buffer_mask) + c.kept_gradient * grad;
    param -= c.lr * (masked(grad, c.gradient_mask) + c.buffer_weight * buffer);
  }

 private:
  // A branch would keep the loop from being vectorised, and a factor of 0 makes a NaN of an infinity.
  static float masked(float value, std::uint32_t mask) {
    return bit_cast<float>(bit_cast<std::uint32_t>(value) & mask);
  }
};

}  // namespace anyaccel
