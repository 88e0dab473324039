// Root-mean-square normalisation (Zhang & Sennrich, arXiv:1910.07467): y = x / sqrt(mean(x^2) + eps) * weight.
//
// Memory traffic with float32, where a row stays in cache between its passes: forward 4 B read and 4 B written an
// element (with a residual 8 and 8); backward 8 B read and 4 B written.

#pragma once

#include <cstdint>

#include "column_sum.h"
#include "elementary.h"
#include "precision.h"

namespace anyaccel {

template <typename T, typename W>
struct RmsNormForward {
  const T* x;         // (rows, columns)
  const T* residual;  // added to x first; null when there is none
  const W* weight;    // (columns)
  T* sum;             // x + residual; null when there is none
  T* y;
  Compute<T>* inverse_rms;  // (rows)
  std::int64_t rows;
  std::int64_t columns;
  Compute<T> eps;

  template <typename Group>
  void operator()(const Group& group) const {
    group.rows(rows, [&](std::int64_t row) {
      const T* from = x + row * columns;
      if (residual != nullptr) {
        const T* added = residual + row * columns;
        T* to = sum + row * columns;
        group.each(columns, [=](std::int64_t i) { store(to_float(from[i]) + to_float(added[i]), to[i]); });
        from = to;  // a thread reads only what it wrote
      }
      const Compute<T> squares = group.template sum<Compute<T>>(columns, [=](std::int64_t i) {
        const Compute<T> value = to_float(from[i]);
        return value * value;
      });
      const Compute<T> scale = 1 / square_root(squares / static_cast<Compute<T>>(columns) + eps);
      T* out = y + row * columns;
      const W* w = weight;
      group.each(columns, [=](std::int64_t i) { store(to_float(from[i]) * scale * to_float(w[i]), out[i]); });
      if (group.is_first()) {
        inverse_rms[row] = scale;
      }
    });
  }
};

template <typename T, typename W>
struct RmsNormBackward {
  const T* grad;      // of y
  const T* x;         // what was normalised: the sum, where there was a residual
  const T* grad_sum;  // of the sum, from its other uses; null when there is none
  const W* weight;
  const Compute<T>* inverse_rms;
  T* grad_x;
  Compute<T>* partials;  // (groups, columns): each group's part of the weight's gradient
  std::int64_t rows;
  std::int64_t columns;

  template <typename Group>
  void operator()(const Group& group) const {
    Compute<T>* mine = partials + group.index * columns;
    group.each(columns, [=](std::int64_t i) { mine[i] = 0; });
    group.rows(rows, [&](std::int64_t row) {
      const T* g = grad + row * columns;
      const T* from = x + row * columns;
      const T* other = grad_sum == nullptr ? nullptr : grad_sum + row * columns;
      T* out = grad_x + row * columns;
      const W* w = weight;
      const Compute<T> scale = inverse_rms[row];
      const Compute<T> dot = group.template sum<Compute<T>>(
          columns, [=](std::int64_t i) { return to_float(g[i]) * to_float(w[i]) * to_float(from[i]); });
      const Compute<T> along = dot * scale * scale * scale / static_cast<Compute<T>>(columns);
      const auto step = [=](std::int64_t i) {
        const Compute<T> value = to_float(from[i]);
        const Compute<T> slope = to_float(g[i]);
        mine[i] += slope * value * scale;
        return slope * to_float(w[i]) * scale - value * along;
      };
      if (other != nullptr) {
        group.each(columns, [=](std::int64_t i) { store(step(i) + to_float(other[i]), out[i]); });
      } else {
        group.each(columns, [=](std::int64_t i) { store(step(i), out[i]); });
      }
    });
  }
};

}  // namespace anyaccel
