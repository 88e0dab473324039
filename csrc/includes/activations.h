// GELU (Hendrycks & Gimpel, arXiv:1606.08415) of a biased input, and the gated units SwiGLU and GeGLU (Shazeer,
// arXiv:2002.05202): act(gate) * up.
//
// Memory traffic with float32: bias-GELU forward 4 bytes read and 4 written per element, backward 8 and 4; a gated unit
// forward 8 and 4, backward 12 and 8.

#pragma once

#include <cstdint>

#include "column_sum.h"
#include "elementary.h"
#include "precision.h"
#include "tile.h"

namespace anyaccel {

// The distribution function of the normal distribution. For float Abramowitz & Stegun, 7.1.26: absolute error 1e-7.
inline float normal_distribution(float x) {
  const float magnitude = (x < 0.0f ? -x : x) * 0.70710678f;
  const float t = reciprocal(1.0f + 0.3275911f * magnitude);
  const float polynomial =
      ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f) * t;
  const float tail = 0.5f * polynomial * exponential(-magnitude * magnitude);
  return x < 0.0f ? tail : 1.0f - tail;
}

inline double normal_distribution(double x) { return 0.5 * (1.0 + error_function(x * 0.70710678118654752)); }

struct Silu {
  template <typename C>
  static void both(C x, C& value, C& slope) {
    const C s = logistic(x);
    value = x * s;
    slope = s * (1 + x * (1 - s));
  }
};

struct Gelu {
  template <typename C>
  static void both(C x, C& value, C& slope) {
    const C p = normal_distribution(x);
    value = x * p;
    slope = p + x * C(0.39894228040143268) * exponential(x * x * C(-0.5));
  }
};

// GELU with the tanh approximation.
struct GeluTanh {
  template <typename C>
  static void both(C x, C& value, C& slope) {
    const C cubed = C(0.044715) * x * x * x;
    const C t = logistic(C(2 * 0.79788456080286536) * (x + cubed));  // (1 + tanh) / 2
    value = x * t;
    slope = t + 2 * x * t * (1 - t) * C(0.79788456080286536) * (1 + C(3 * 0.044715) * x * x);
  }
};

template <typename Activation, typename C>
inline C value_of(C x) {
  C value = 0;
  C slope = 0;
  Activation::both(x, value, slope);
  return value;
}

template <typename T, typename Activation>
struct GatedForward {
  const T* gate;  // (rows, columns)
  const T* up;
  T* y;
  std::int64_t gate_stride;  // from row to row
  std::int64_t up_stride;
  std::int64_t rows;
  std::int64_t columns;

  template <typename Group>
  void operator()(const Group& group) const {
    const bool is_aligned = are_aligned(gate, up, y) && keep_aligned<T>(gate_stride, up_stride, columns);
    group.rows(rows, [&](std::int64_t row) {
      const T* g = gate + row * gate_stride;
      const T* u = up + row * up_stride;
      T* out = y + row * columns;
      group.template tiles<T>(columns, is_aligned, [=](auto range) {
        auto gates = load(g, range);
        const auto ups = load(u, range);
        for (int i = 0; i < range.kCount; ++i) {
          gates[i] = value_of<Activation>(gates[i]) * ups[i];
        }
        store(gates, out, range);
      });
    });
  }
};

template <typename T, typename Activation>
struct GatedBackward {
  static constexpr int kBlocksOfAnSm = 3;

  const T* grad;
  const T* gate;
  const T* up;
  T* grad_gate;
  T* grad_up;
  std::int64_t gate_stride;
  std::int64_t up_stride;
  std::int64_t rows;
  std::int64_t columns;

  template <typename Group>
  void operator()(const Group& group) const {
    const bool is_aligned =
        are_aligned(grad, gate, up, grad_gate, grad_up) && keep_aligned<T>(gate_stride, up_stride, columns);
    group.rows(rows, [&](std::int64_t row) {
      const T* d = grad + row * columns;
      const T* g = gate + row * gate_stride;
      const T* u = up + row * up_stride;
      T* to_gate = grad_gate + row * columns;
      T* to_up = grad_up + row * columns;
      group.template tiles<T>(columns, is_aligned, [=](auto range) {
        auto gates = load(g, range);
        auto ups = load(u, range);
        const auto changes = load(d, range);
        for (int i = 0; i < range.kCount; ++i) {
          Compute<T> value = 0;
          Compute<T> slope = 0;
          Activation::both(gates[i], value, slope);
          gates[i] = changes[i] * ups[i] * slope;
          ups[i] = changes[i] * value;
        }
        store(gates, to_gate, range);
        store(ups, to_up, range);
      });
    });
  }
};

template <typename T, typename Activation>
struct BiasedForward {
  const T* x;     // (rows, columns)
  const T* bias;  // (columns)
  T* y;
  std::int64_t rows;
  std::int64_t columns;

  template <typename Group>
  void operator()(const Group& group) const {
    const bool is_aligned = are_aligned(x, bias, y) && keep_aligned<T>(columns);
    group.rows(rows, [&](std::int64_t row) {
      const T* from = x + row * columns;
      const T* b = bias;
      T* out = y + row * columns;
      group.template tiles<T>(columns, is_aligned, [=](auto range) {
        auto values = load(from, range);
        const auto biases = load(b, range);
        for (int i = 0; i < range.kCount; ++i) {
          values[i] = value_of<Activation>(values[i] + biases[i]);
        }
        store(values, out, range);
      });
    });
  }
};

template <typename T, typename Activation>
struct BiasedBackward {
  static constexpr bool kKeepsTotals = true;

  const T* grad;
  const T* x;
  const T* bias;
  T* grad_x;
  Compute<T>* partials;  // (groups, columns): each group's part of the bias's gradient
  std::int64_t rows;
  std::int64_t columns;

  template <typename Group>
  void operator()(const Group& group) const {
    const bool is_aligned = are_aligned(grad, x, bias, grad_x, partials) && keep_aligned<T>(columns);
    group.template with_totals<1, T>(columns, is_aligned, partials + group.index * columns, [&](auto&& totals) {
      group.rows(rows, [&](std::int64_t row) {
        group.fetch_next(row, rows, columns, grad, x);
        const T* d = grad + row * columns;
        const T* from = x + row * columns;
        const T* b = bias;
        T* out = grad_x + row * columns;
        totals.each([=](auto range, auto& sums) {
          auto changes = load(d, range);
          const auto values = load(from, range);
          const auto biases = load(b, range);
          for (int i = 0; i < range.kCount; ++i) {
            Compute<T> value = 0;
            Compute<T> slope = 0;
            Activation::both(values[i] + biases[i], value, slope);
            changes[i] *= slope;
            sums[0][i] += changes[i];
          }
          store(changes, out, range);
        });
      });
    });
  }
};

}  // namespace anyaccel
