// Adam and AdamW for several tensors in one launch, with the formula from adam.h.
//
// Memory traffic with float32 everywhere: 16 bytes read and 12 written per parameter.

#pragma once

#include <cstdint>

#include "adam.h"
#include "precision.h"
#include "schedule.h"
#include "tensor_table.h"

namespace anyaccel {

template <typename Param, typename Grad>
struct AdamStep {
  TensorTable<4> tensors;  // params, grads, exp_avgs, exp_avg_sqs
  AdamCoefficients coefficients;
  float decoupled_decay;  // weight_decay of AdamW
  Schedule schedule;
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
    group.template tensors<Param, Grad, float>(tensors, [=, this](std::int32_t number) {
      const AdamCoefficients c = coefficients_of(number);
      Param* param = tensors.template at<Param>(number, 0);
      const Grad* grad = tensors.template at<const Grad>(number, 1);
      float* exp_avg = tensors.template at<float>(number, 2);
      float* exp_avg_sq = tensors.template at<float>(number, 3);
      return [=](auto range) {
        auto p = load(param, range);
        const auto g = load(grad, range);
        auto m = load(exp_avg, range);
        auto v = load(exp_avg_sq, range);
        for (int i = 0; i < range.kCount; ++i) {
          adam_step<HasL2>(p[i], g[i] * factor, m[i], v[i], c);
        }
        store(p, param, range);
        store(m, exp_avg, range);
        store(v, exp_avg_sq, range);
      };
    });
  }

  AdamCoefficients coefficients_of(std::int32_t number) const {
    AdamCoefficients c = coefficients;
    if (control.lr != nullptr || control.steps != nullptr) {
      const SchedulePoint now = schedule.at(control, tensors.first + number);
      c.step_size = quotient(now.lr, now.bias_correction1);
      c.inverse_root_bc2 = quotient(1.0f, square_root(now.bias_correction2));
      c.kept = 1.0f - now.lr * decoupled_decay;
    }
    return c;
  }
};

}  // namespace anyaccel
