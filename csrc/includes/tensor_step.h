// One step of optimizers with one state per parameter, for several tensors in one launch.
//
// Memory traffic with float32 everywhere: 12 bytes read and 8 written per parameter.

#pragma once

#include <cstdint>

#include "precision.h"
#include "tensor_table.h"

namespace anyaccel {

// `Formula` defines Coefficients, with `gradient_sign` (-1 when the objective is maximised) and `l2` (weight decay adds
// l2 * param to the gradient), and `step(param, grad, state, coefficients)`; also `with_lr(coefficients, lr)` if the
// learning rate may be on the device.
template <typename Formula, typename Param, typename Grad>
struct TensorStep {
  TensorTable<3> tensors;  // params, grads, states
  typename Formula::Coefficients coefficients;
  StepControl control;

  template <typename Group>
  void operator()(const Group& group) const {
    if (control.is_skipped()) {
      return;
    }
    coefficients.l2 != 0.0f ? run<true>(group) : run<false>(group);
  }

 private:
  using Coefficients = typename Formula::Coefficients;

  Coefficients at_devices_rate(const Coefficients& c) const {
    if constexpr (requires { Formula::with_lr(c, 0.0f); }) {
      return control.lr == nullptr ? c : Formula::with_lr(c, *control.lr);
    } else {
      return c;
    }
  }

  // A constant, so that nothing computes 0 * param, which is NaN for an infinite parameter.
  template <bool HasL2, typename Group>
  void run(const Group& group) const {
    const float factor = control.grad_factor();
    const auto c = at_devices_rate(coefficients);
    group.template tensors<Param, Grad, float>(tensors, [=, this](std::int32_t number) {
      Param* param = tensors.template at<Param>(number, 0);
      const Grad* grad = tensors.template at<const Grad>(number, 1);
      float* state = tensors.template at<float>(number, 2);
      return [=](auto range) {
        auto p = load(param, range);
        auto g = load(grad, range);
        auto s = load(state, range);
        for (int i = 0; i < range.kCount; ++i) {
          g[i] = g[i] * factor * c.gradient_sign;
          if constexpr (HasL2) {
            g[i] += c.l2 * p[i];
          }
          Formula::step(p[i], g[i], s[i], c);
        }
        store(p, param, range);
        store(s, state, range);
      };
    });
  }
};

}  // namespace anyaccel
