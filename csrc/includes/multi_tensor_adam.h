// Adam and AdamW for several tensors in one launch, by the formula in adam.h.
//
// Memory traffic with float32 everywhere: 16 B read and 12 B written a parameter.

#pragma once

#include <cstdint>

#include "adam.h"
#include "precision.h"
#include "tensor_table.h"

namespace anyaccel {

template <typename Param, typename Grad>
struct AdamStep {
  TensorTable<4> tensors;  // params, grads, exp_avgs, exp_avg_sqs
  AdamCoefficients coefficients;
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
      float* exp_avg = tensors.template at<float>(number, 2);
      float* exp_avg_sq = tensors.template at<float>(number, 3);
      return [=](std::int64_t i) {
        float p = to_float(param[i]);
        float m = exp_avg[i];
        float v = exp_avg_sq[i];
        adam_step<HasL2>(p, to_float(grad[i]) * factor, m, v, c);
        store(p, param[i]);
        exp_avg[i] = m;
        exp_avg_sq[i] = v;
      };
    });
  }
};

}  // namespace anyaccel
