// The activation of a dense layer, y = sigmoid(z + bias), and its gradient, which needs y alone.
//
// Memory traffic with float32: forward 4 B read and 4 B written an element, in place; backward 8 and 4.

#pragma once

#include <cstdint>

#include "column_sum.h"
#include "elementary.h"
#include "precision.h"

namespace anyaccel {

template <typename T>
struct BiasSigmoidForward {
  T* z;           // (rows, columns); becomes y
  const T* bias;  // (columns), or null
  std::int64_t rows;
  std::int64_t columns;

  template <typename Group>
  void operator()(const Group& group) const {
    group.rows(rows, [&](std::int64_t row) {
      T* here = z + row * columns;
      const T* b = bias;
      if (b == nullptr) {
        group.each(columns, [=](std::int64_t i) { store(logistic(Compute<T>(to_float(here[i]))), here[i]); });
      } else {
        group.each(columns,
                   [=](std::int64_t i) { store(logistic(Compute<T>(to_float(here[i]) + to_float(b[i]))), here[i]); });
      }
    });
  }
};

template <typename T>
struct BiasSigmoidBackward {
  const T* grad;  // (rows, columns)
  const T* y;
  T* grad_z;
  Compute<T>* partials;  // (groups, columns): each group's part of the bias's gradient
  std::int64_t rows;
  std::int64_t columns;

  template <typename Group>
  void operator()(const Group& group) const {
    Compute<T>* mine = partials + group.index * columns;
    group.each(columns, [=](std::int64_t i) { mine[i] = 0; });
    group.rows(rows, [&](std::int64_t row) {
      const T* d = grad + row * columns;
      const T* value = y + row * columns;
      T* out = grad_z + row * columns;
      group.each(columns, [=](std::int64_t i) {
        const Compute<T> s = to_float(value[i]);
        const Compute<T> change = to_float(d[i]) * s * (1 - s);
        store(change, out[i]);
        mine[i] += change;
      });
    });
  }
};

}  // namespace anyaccel
