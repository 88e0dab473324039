// The activation of a dense layer, y = sigmoid(z + bias), and its gradient, which needs only y.
//
// Memory traffic with float32: forward 4 bytes read and 4 written per element, in place; backward 8 and 4.

#pragma once

#include <cstdint>

#include "column_sum.h"
#include "elementary.h"
#include "precision.h"
#include "tile.h"

namespace anyaccel {

template <typename T>
struct BiasSigmoidForward {
  T* z;           // (rows, columns); overwritten with y
  const T* bias;  // (columns), or null
  std::int64_t rows;
  std::int64_t columns;

  template <typename Group>
  void operator()(const Group& group) const {
    const bool is_aligned = are_aligned(z, bias) && keep_aligned<T>(columns);
    group.rows(rows, [&](std::int64_t row) {
      T* here = z + row * columns;
      const T* b = bias;
      if (b == nullptr) {
        group.template tiles<T>(columns, is_aligned, [=](auto range) {
          auto values = load(here, range);
          for (int i = 0; i < range.kCount; ++i) {
            values[i] = logistic(values[i]);
          }
          store(values, here, range);
        });
      } else {
        group.template tiles<T>(columns, is_aligned, [=](auto range) {
          auto values = load(here, range);
          const auto biases = load(b, range);
          for (int i = 0; i < range.kCount; ++i) {
            values[i] = logistic(values[i] + biases[i]);
          }
          store(values, here, range);
        });
      }
    });
  }
};

template <typename T>
struct BiasSigmoidBackward {
  static constexpr bool kKeepsTotals = true;

  const T* grad;  // (rows, columns)
  const T* y;
  T* grad_z;
  Compute<T>* partials;  // (groups, columns): each group's part of the bias's gradient
  std::int64_t rows;
  std::int64_t columns;

  template <typename Group>
  void operator()(const Group& group) const {
    const bool is_aligned = are_aligned(grad, y, grad_z, partials) && keep_aligned<T>(columns);
    group.template with_totals<1, T>(columns, is_aligned, partials + group.index * columns, [&](auto&& totals) {
      group.rows(rows, [&](std::int64_t row) {
        group.fetch_next(row, rows, columns, grad, y);
        const T* d = grad + row * columns;
        const T* value = y + row * columns;
        T* out = grad_z + row * columns;
        totals.each([=](auto range, auto& sums) {
          auto changes = load(d, range);
          const auto values = load(value, range);
          for (int i = 0; i < range.kCount; ++i) {
            changes[i] = changes[i] * values[i] * (1 - values[i]);
            sums[0][i] += changes[i];
          }
          store(changes, out, range);
        });
      });
    });
  }
};

}  // namespace anyaccel
