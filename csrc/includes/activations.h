// GELU (Hendrycks & Gimpel, arXiv:1606.08415) of a biased input, and the gated units SwiGLU and GeGLU (Shazeer,
// arXiv:2002.05202): act(gate) * up.
//
// Memory traffic with float32: bias-GELU forward 4 B read and 4 B written an element, backward 8 and 4; a gated unit
// forward 8 and 4, backward 12 and 8.

#pragma once

#include <cstdint>

#include "column_sum.h"
#include "elementary.h"
#include "precision.h"

namespace anyaccel {

// The distribution function of the normal distribution. For float Abramowitz & Stegun, 7.1.26: absolute error 1e-7.
inline float normal_distribution(float x) {
  const float magnitude = (x < 0.0f ? -x : x) * 0.70710678f;
  const float t = 1.0f / (1.0f + 0.3275911f * magnitude);
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

// With the approximation by a hyperbolic tangent.
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
    group.rows(rows, [&](std::int64_t row) {
      const T* g = gate + row * gate_stride;
      const T* u = up + row * up_stride;
      T* out = y + row * columns;
      group.each(columns, [=](std::int64_t i) {
        store(value_of<Activation>(Compute<T>(to_float(g[i]))) * to_float(u[i]), out[i]);
      });
    });
  }
};

template <typename T, typename Activation>
struct GatedBackward {
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
    group.rows(rows, [&](std::int64_t row) {
      const T* d = grad + row * columns;
      const T* g = gate + row * gate_stride;
      const T* u = up + row * up_stride;
      T* to_gate = grad_gate + row * columns;
      T* to_up = grad_up + row * columns;
      group.each(columns, [=](std::int64_t i) {
        Compute<T> value = 0;
        Compute<T> slope = 0;
        Activation::both(Compute<T>(to_float(g[i])), value, slope);
        const Compute<T> change = to_float(d[i]);
        store(change * to_float(u[i]) * slope, to_gate[i]);
        store(change * value, to_up[i]);
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
    group.rows(rows, [&](std::int64_t row) {
      const T* from = x + row * columns;
      const T* b = bias;
      T* out = y + row * columns;
      group.each(columns, [=](std::int64_t i) {
        store(value_of<Activation>(Compute<T>(to_float(from[i]) + to_float(b[i]))), out[i]);
      });
    });
  }
};

template <typename T, typename Activation>
struct BiasedBackward {
  const T* grad;
  const T* x;
  const T* bias;
  T* grad_x;
  Compute<T>* partials;  // (groups, columns): each group's part of the bias's gradient
  std::int64_t rows;
  std::int64_t columns;

  template <typename Group>
  void operator()(const Group& group) const {
    Compute<T>* mine = partials + group.index * columns;
    group.each(columns, [=](std::int64_t i) { mine[i] = 0; });
    group.rows(rows, [&](std::int64_t row) {
      const T* d = grad + row * columns;
      const T* from = x + row * columns;
      const T* b = bias;
      T* out = grad_x + row * columns;
      group.each(columns, [=](std::int64_t i) {
        Compute<T> value = 0;
        Compute<T> slope = 0;
        Activation::both(Compute<T>(to_float(from[i]) + to_float(b[i])), value, slope);
        const Compute<T> change = to_float(d[i]) * slope;
        store(change, out[i]);
        mine[i] += change;
      });
    });
  }
};

}  // namespace anyaccel
