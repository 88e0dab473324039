// Lion (Chen et al., arXiv:2302.06675): the sign of an interpolated momentum, with decoupled weight decay.
//
// Memory traffic with float32 everywhere: 12 B read and 8 B written a parameter.

#pragma once

#include <cstdint>

#include "precision.h"
#include "tensor_table.h"

namespace anyaccel {

struct LionCoefficients {
  float lr;
  float beta1;
  float beta2;
  float one_minus_beta1;
  float one_minus_beta2;
  float kept;           // 1 - lr * weight_decay
  float gradient_sign;  // -1 when the objective is maximised
};

inline void lion_step(float& param, float grad, float& exp_avg, const LionCoefficients& c) {
  grad *= c.gradient_sign;
  const float direction = c.beta1 * exp_avg + c.one_minus_beta1 * grad;
  // the sign of 0 is 0, and a NaN reaches the parameter
  const float sign = direction > 0.0f ? 1.0f : (direction < 0.0f ? -1.0f : direction);
  param = c.kept * param - c.lr * sign;
  exp_avg = c.beta2 * exp_avg + c.one_minus_beta2 * grad;
}

template <typename Param, typename Grad>
struct LionStep {
  TensorTable<3> tensors;  // params, grads, exp_avgs
  LionCoefficients coefficients;
  StepControl control;

  template <typename Group>
  void operator()(const Group& group) const {
    if (control.is_skipped()) {
      return;
    }
    const float factor = control.grad_factor();
    group.tensors(tensors, [=, this, c = coefficients](std::int32_t number) {
      Param* param = tensors.template at<Param>(number, 0);
      const Grad* grad = tensors.template at<const Grad>(number, 1);
      float* exp_avg = tensors.template at<float>(number, 2);
      return [=](std::int64_t i) {
        float p = to_float(param[i]);
        float m = exp_avg[i];
        lion_step(p, to_float(grad[i]) * factor, m, c);
        store(p, param[i]);
        exp_avg[i] = m;
      };
    });
  }
};

}  // namespace anyaccel
