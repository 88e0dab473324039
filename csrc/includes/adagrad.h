// Adagrad (Duchi et al., JMLR 12, 2011): steps divided by the root of the sum of squared gradients.
//
// Memory traffic with float32 everywhere: 12 B read and 8 B written a parameter.

#pragma once

#include <cstdint>

#include "elementary.h"
#include "precision.h"
#include "tensor_table.h"

namespace anyaccel {

struct AdagradCoefficients {
  float lr;
  float eps;
  float l2;             // weight_decay, added to the gradient as l2 * param
  float gradient_sign;  // -1 when the objective is maximised
};

template <bool HasL2>
inline void adagrad_step(float& param, float grad, float& sum, const AdagradCoefficients& c) {
  grad *= c.gradient_sign;
  if constexpr (HasL2) {
    grad += c.l2 * param;
  }
  sum += grad * grad;
  param -= c.lr * grad / (square_root(sum) + c.eps);
}

template <typename Param, typename Grad>
struct AdagradStep {
  TensorTable<3> tensors;  // params, grads, sums
  AdagradCoefficients coefficients;
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
      float* sum = tensors.template at<float>(number, 2);
      return [=](std::int64_t i) {
        float p = to_float(param[i]);
        float s = sum[i];
        adagrad_step<HasL2>(p, to_float(grad[i]) * factor, s, c);
        store(p, param[i]);
        sum[i] = s;
      };
    });
  }
};

}  // namespace anyaccel
