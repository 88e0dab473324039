// Lion (Chen et al., arXiv:2302.06675): the sign of an interpolated momentum, with decoupled weight decay.

#pragma once

#include "tensor_step.h"

namespace anyaccel {

struct LionCoefficients {
  float lr;
  float beta1;
  float beta2;
  float one_minus_beta1;
  float one_minus_beta2;
  float weight_decay;
  float kept;  // 1 - lr * weight_decay
  float gradient_sign;
  float l2;  // 0
};

struct Lion {
  using Coefficients = LionCoefficients;

  static Coefficients with_lr(Coefficients c, float lr) {
    c.lr = lr;
    c.kept = 1.0f - lr * c.weight_decay;
    return c;
  }

  static void step(float& param, float grad, float& exp_avg, const Coefficients& c) {
    const float direction = c.beta1 * exp_avg + c.one_minus_beta1 * grad;
    // the sign of 0 is 0, and a NaN reaches the parameter
    const float sign = direction > 0.0f ? 1.0f : (direction < 0.0f ? -1.0f : direction);
    param = c.kept * param - c.lr * sign;
    exp_avg = c.beta2 * exp_avg + c.one_minus_beta2 * grad;
  }
};

}  // namespace anyaccel
