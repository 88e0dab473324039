// The formula of Adam (Kingma & Ba, arXiv:1412.6980) and AdamW (Loshchilov & Hutter, arXiv:1711.05101), written once
// for every device. Memory traffic with float32 everywhere: 16 bytes read and 12 written per parameter.

#pragma once

#include <cmath>

#include "elementary.h"

namespace anyaccel {

// The coefficients of a step, the same for every element of a tensor.
struct AdamCoefficients {
  float beta1;
  float beta2;
  float one_minus_beta1;
  float one_minus_beta2;
  float step_size;         // lr / bias correction of the first moment
  float inverse_root_bc2;  // 1 / sqrt(bias correction of the second moment)
  float eps;
  float l2;             // Adam: weight_decay, added to the gradient as l2 * param
  float kept;           // AdamW: 1 - lr * weight_decay, the factor for param
  float gradient_sign;  // -1 when the objective is maximised
};

// The hyperparameters, with torch.optim.AdamW's names.
struct AdamOptions {
  double lr;
  double beta1;
  double beta2;
  double weight_decay;
  double eps;
  bool decoupled;  // AdamW rather than Adam
  bool bias_correction;
  bool maximize;
};

// `step` counts from 1.
inline AdamCoefficients adam_coefficients(const AdamOptions& options, double step) {
  const double bc1 = options.bias_correction ? 1.0 - std::pow(options.beta1, step) : 1.0;
  const double bc2 = options.bias_correction ? 1.0 - std::pow(options.beta2, step) : 1.0;
  AdamCoefficients c{};
  c.beta1 = static_cast<float>(options.beta1);
  c.beta2 = static_cast<float>(options.beta2);
  c.one_minus_beta1 = static_cast<float>(1.0 - options.beta1);
  c.one_minus_beta2 = static_cast<float>(1.0 - options.beta2);
  c.step_size = static_cast<float>(options.lr / bc1);
  c.inverse_root_bc2 = static_cast<float>(1.0 / std::sqrt(bc2));
  c.eps = static_cast<float>(options.eps);
  c.l2 = options.decoupled ? 0.0f : static_cast<float>(options.weight_decay);
  c.kept = options.decoupled ? static_cast<float>(1.0 - options.lr * options.weight_decay) : 1.0f;
  c.gradient_sign = options.maximize ? -1.0f : 1.0f;
  return c;
}

// One step of one element. `HasL2` is a constant so that AdamW does not compute 0 * param, which is NaN for an infinite
// parameter.
template <bool HasL2>
inline void adam_step(float& param, float grad, float& exp_avg, float& exp_avg_sq, const AdamCoefficients& c) {
  grad *= c.gradient_sign;
  if constexpr (HasL2) {
    grad += c.l2 * param;
  }
  exp_avg = c.beta1 * exp_avg + c.one_minus_beta1 * grad;
  exp_avg_sq = c.beta2 * exp_avg_sq + c.one_minus_beta2 * grad * grad;
  const float denominator = square_root(exp_avg_sq) * c.inverse_root_bc2 + c.eps;
  param = c.kept * param - quotient(c.step_size * exp_avg, denominator);
}

// The inverse of adam_step, with the same step's coefficients; exact except for rounding errors, which a second
// moment near zero amplifies.
template <bool HasL2>
inline void adam_rollback(float& param, float grad, float& exp_avg, float& exp_avg_sq, const AdamCoefficients& c) {
  const float denominator = square_root(exp_avg_sq) * c.inverse_root_bc2 + c.eps;
  param = (param + c.step_size * exp_avg / denominator) / c.kept;
  grad *= c.gradient_sign;
  if constexpr (HasL2) {
    grad += c.l2 * param;
  }
  exp_avg = (exp_avg - c.one_minus_beta1 * grad) / c.beta1;
  // a value that rounding makes negative would make the next square root NaN; fmax would be a call
  const float rest = (exp_avg_sq - c.one_minus_beta2 * grad * grad) / c.beta2;
  exp_avg_sq = rest > 0.0f ? rest : 0.0f;
}

}  // namespace anyaccel
