// Layer normalisation (Ba et al., arXiv:1607.06450): y = (x - mean) / sqrt(variance + eps) * weight + bias, with the
// biased variance.
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
struct LayerNormForward {
  const T* x;         // (rows, columns)
  const T* residual;  // added to x first; null when there is none
  const W* weight;    // (columns)
  const W* bias;      // (columns)
  T* sum;             // x + residual; null when there is none
  T* y;
  Compute<T>* mean;               // (rows)
  Compute<T>* inverse_deviation;  // (rows)
  std::int64_t rows;
  std::int64_t columns;
  Compute<T> eps;

  template <typename Group>
  void operator()(const Group& group) const {
    using C = Compute<T>;
    group.rows(rows, [&](std::int64_t row) {
      const T* from = x + row * columns;
      if (residual != nullptr) {
        const T* added = residual + row * columns;
        T* to = sum + row * columns;
        group.each(columns, [=](std::int64_t i) { store(to_float(from[i]) + to_float(added[i]), to[i]); });
        from = to;  // a thread reads only what it wrote
      }
      const C count = static_cast<C>(columns);
      const C center = group.template sum<C>(columns, [=](std::int64_t i) { return to_float(from[i]); }) / count;
      // a pass of its own: the mean of squares less the squared mean cancels where the mean is large
      const C squares = group.template sum<C>(columns, [=](std::int64_t i) {
        const C distance = to_float(from[i]) - center;
        return distance * distance;
      });
      const C scale = 1 / square_root(squares / count + eps);
      T* out = y + row * columns;
      const W* w = weight;
      const W* b = bias;
      group.each(columns, [=](std::int64_t i) {
        store((to_float(from[i]) - center) * scale * to_float(w[i]) + to_float(b[i]), out[i]);
      });
      if (group.is_first()) {
        mean[row] = center;
        inverse_deviation[row] = scale;
      }
    });
  }
};

template <typename T, typename W>
struct LayerNormBackward {
  const T* grad;      // of y
  const T* x;         // what was normalised: the sum, where there was a residual
  const T* grad_sum;  // of the sum, from its other uses; null when there is none
  const W* weight;
  const Compute<T>* mean;
  const Compute<T>* inverse_deviation;
  T* grad_x;
  Compute<T>* partials;  // (groups, 2, columns): each group's part of the weight's and the bias's gradients
  std::int64_t rows;
  std::int64_t columns;

  template <typename Group>
  void operator()(const Group& group) const {
    using C = Compute<T>;
    C* of_weight = partials + group.index * 2 * columns;
    C* of_bias = of_weight + columns;
    group.each(columns, [=](std::int64_t i) { of_weight[i] = of_bias[i] = 0; });
    group.rows(rows, [&](std::int64_t row) {
      const T* g = grad + row * columns;
      const T* from = x + row * columns;
      const T* other = grad_sum == nullptr ? nullptr : grad_sum + row * columns;
      T* out = grad_x + row * columns;
      const W* w = weight;
      const C center = mean[row];
      const C scale = inverse_deviation[row];
      C slopes = 0;
      C products = 0;
      group.sums(columns, slopes, products, [=](std::int64_t i, C& first, C& second) {
        const C slope = to_float(g[i]) * to_float(w[i]);
        first += slope;
        second += slope * (to_float(from[i]) - center);
      });
      const C level = slopes / static_cast<C>(columns);
      const C along = products * scale * scale / static_cast<C>(columns);
      const auto step = [=](std::int64_t i) {
        const C distance = to_float(from[i]) - center;
        const C slope = to_float(g[i]);
        of_weight[i] += slope * distance * scale;
        of_bias[i] += slope;
        return (slope * to_float(w[i]) - level - distance * along) * scale;
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
