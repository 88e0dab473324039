// Adagrad (Duchi et al., JMLR 12, 2011): steps divided by the square root of the sum of squared gradients.

#pragma once

#include "elementary.h"
#include "tensor_step.h"

namespace anyaccel {

struct AdagradCoefficients {
  float lr;
  float eps;
  float l2;
  float gradient_sign;
};

struct Adagrad {
  using Coefficients = AdagradCoefficients;

  static void step(float& param, float grad, float& sum, const Coefficients& c) {
    sum += grad * grad;
    param -= quotient(c.lr * grad, square_root(sum) + c.eps);
  }
};

}  // namespace anyaccel
