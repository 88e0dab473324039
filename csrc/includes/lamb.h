// LAMB (You et al., arXiv:1904.00962): Adam's update, scaled for each tensor by the ratio of two norms.
//
// Memory traffic with float32 everywhere: 16 bytes read and 12 written per parameter for the update, 8 read for the
// norms, 8 read and 4 written to apply it.

#pragma once

#include <cstdint>

#include "elementary.h"
#include "multi_tensor.h"
#include "precision.h"
#include "schedule.h"
#include "tensor_table.h"

namespace anyaccel {

struct LambCoefficients {
  float beta1;
  float beta2;
  float one_minus_beta1;
  float one_minus_beta2;
  float eps;
  float weight_decay;
  float step_size;  // the learning rate times its bias corrections
  float least_ratio;
  float most_ratio;
  float gradient_sign;  // -1 when the objective is maximised
  bool has_eps_inside_root;
};

inline float lamb_update(float param, float grad, float& exp_avg, float& exp_avg_sq, const LambCoefficients& c) {
  grad *= c.gradient_sign;
  exp_avg = c.beta1 * exp_avg + c.one_minus_beta1 * grad;
  exp_avg_sq = c.beta2 * exp_avg_sq + c.one_minus_beta2 * grad * grad;
  const float inside = c.has_eps_inside_root ? c.eps : 0.0f;
  const float outside = c.has_eps_inside_root ? 0.0f : c.eps;
  return quotient(exp_avg, square_root(exp_avg_sq + inside) + outside) + c.weight_decay * param;
}

template <typename Param, typename Grad>
struct LambUpdate {
  TensorTable<5> tensors;  // params, grads, exp_avgs, exp_avg_sqs, updates
  LambCoefficients coefficients;
  StepControl control;

  template <typename Group>
  void operator()(const Group& group) const {
    if (control.is_skipped()) {
      return;
    }
    const float factor = control.grad_factor();
    group.template tensors<Param, Grad, float>(tensors, [=, this, c = coefficients](std::int32_t number) {
      const Param* param = tensors.template at<const Param>(number, 0);
      const Grad* grad = tensors.template at<const Grad>(number, 1);
      float* exp_avg = tensors.template at<float>(number, 2);
      float* exp_avg_sq = tensors.template at<float>(number, 3);
      float* update = tensors.template at<float>(number, 4);
      return [=](auto range) {
        auto p = load(param, range);
        const auto g = load(grad, range);
        auto m = load(exp_avg, range);
        auto v = load(exp_avg_sq, range);
        for (int i = 0; i < range.kCount; ++i) {
          p[i] = lamb_update(p[i], g[i] * factor, m[i], v[i], c);
        }
        store(p, update, range);
        store(m, exp_avg, range);
        store(v, exp_avg_sq, range);
      };
    });
  }
};

template <typename Param>
struct LambApply {
  TensorTable<2> tensors;    // params, updates
  const float* param_norms;  // for all tensors of the call
  const float* update_norms;
  float* ratios;
  LambCoefficients coefficients;
  Schedule schedule;
  StepControl control;

  template <typename Group>
  void operator()(const Group& group) const {
    if (control.is_skipped()) {
      return;
    }
    if (group.index == 0) {
      group.each(tensors.count, [this](std::int64_t number) { ratios[tensors.first + number] = ratio_of(number); });
    }
    group.template tensors<Param, float>(tensors, [=, this](std::int32_t number) {
      Param* param = tensors.template at<Param>(number, 0);
      const float* update = tensors.template at<const float>(number, 1);
      const float step = step_size_of(number) * ratio_of(number);
      return [=](auto range) {
        auto p = load(param, range);
        const auto u = load(update, range);
        for (int i = 0; i < range.kCount; ++i) {
          p[i] -= step * u[i];
        }
        store(p, param, range);
      };
    });
  }

 private:
  float step_size_of(std::int32_t number) const {
    if (control.lr == nullptr && control.steps == nullptr) {
      return coefficients.step_size;
    }
    const SchedulePoint now = schedule.at(control, tensors.first + number);
    return quotient(now.lr * square_root(now.bias_correction2), now.bias_correction1);
  }

  float ratio_of(std::int64_t number) const {
    const float of_param = param_norms[tensors.first + number];
    const float of_update = update_norms[tensors.first + number];
    if (of_param == 0.0f || of_update == 0.0f) {
      return 1.0f;
    }
    const float ratio = quotient(of_param, of_update);
    const float at_most = ratio > coefficients.most_ratio ? coefficients.most_ratio : ratio;
    return at_most < coefficients.least_ratio ? coefficients.least_ratio : at_most;
  }
};

}  // namespace anyaccel
