// Softmax of scaled scores, some of them hidden: y = softmax(scale * x), hidden ones exactly 0, and a row that is
// hidden altogether 0 as well.
//
// Memory traffic with float32, where a row stays in cache between its passes: forward 4 B read and 4 B written an
// element (1 B more read with a mask); backward 8 B read and 4 B written.

#pragma once

#include <cstdint>

#include "elementary.h"
#include "precision.h"

namespace anyaccel {

// Which scores are hidden: those where `mask` is not zero, and of a causal matrix those to the right of the diagonal.
struct SoftmaxMask {
  const std::uint8_t* mask;  // broadcast over (batch, heads, queries, columns); null when there is none
  std::int64_t strides[4];
  std::int64_t heads;
  std::int64_t queries;
  bool is_causal;

  // How many of a row's scores are not to the right of the diagonal, which ends in the last column.
  std::int64_t visible(std::int64_t row, std::int64_t columns) const {
    return is_causal ? row % queries + 1 + columns - queries : columns;
  }

  const std::uint8_t* of_row(std::int64_t row) const {
    const std::int64_t matrix = row / queries;
    return mask + matrix / heads * strides[0] + matrix % heads * strides[1] + row % queries * strides[2];
  }
};

template <typename T>
struct SoftmaxForward {
  const T* x;  // (rows, columns)
  T* y;
  SoftmaxMask hidden;
  std::int64_t rows;
  std::int64_t columns;
  Compute<T> scale;

  template <typename Group>
  void operator()(const Group& group) const {
    group.rows(rows, [&](std::int64_t row) {
      const T* from = x + row * columns;
      const Compute<T> factor = scale;
      if (hidden.mask == nullptr) {
        normalise(group, row, [=](std::int64_t i) { return to_float(from[i]) * factor; });
      } else {
        const std::uint8_t* mask = hidden.of_row(row);
        const std::int64_t stride = hidden.strides[3];
        const Compute<T> lowest = -infinity<Compute<T>>();
        normalise(group, row, [=](std::int64_t i) {
          const Compute<T> score = to_float(from[i]) * factor;
          return mask[i * stride] != 0 ? lowest : score;
        });
      }
    });
  }

 private:
  template <typename Group, typename Score>
  void normalise(const Group& group, std::int64_t row, const Score& score) const {
    using C = Compute<T>;
    T* out = y + row * columns;
    const std::int64_t visible = hidden.visible(row, columns);
    const C largest = group.template max<C>(visible, score);
    if (largest == -infinity<C>()) {  // nothing is visible, unless what is visible is NaN
      const C nans = group.template sum<C>(visible, [=](std::int64_t i) { return score(i) == score(i) ? C(0) : C(1); });
      const C value = nans > 0 ? not_a_number<C>() : C(0);
      group.each(columns, [=](std::int64_t i) { store(i < visible ? value : C(0), out[i]); });
      return;
    }
    if constexpr (sizeof(T) == sizeof(C)) {  // the exponentials wait in the result's place
      const C total = group.template sum<C>(visible, [=](std::int64_t i) {
        const C power = exponential(score(i) - largest);
        store(power, out[i]);
        return power;
      });
      const C inverse = 1 / total;
      group.each(visible, [=](std::int64_t i) { store(to_float(out[i]) * inverse, out[i]); });
    } else {
      const C total = group.template sum<C>(visible, [=](std::int64_t i) { return exponential(score(i) - largest); });
      const C inverse = 1 / total;
      group.each(visible, [=](std::int64_t i) { store(exponential(score(i) - largest) * inverse, out[i]); });
    }
    T* rest = out + visible;
    group.each(columns - visible, [=](std::int64_t i) { store(C(0), rest[i]); });
  }
};

// Needs no mask: where y is 0, so is the derivative.
template <typename T>
struct SoftmaxBackward {
  const T* grad;
  const T* y;
  T* grad_x;
  std::int64_t rows;
  std::int64_t columns;
  Compute<T> scale;

  template <typename Group>
  void operator()(const Group& group) const {
    using C = Compute<T>;
    group.rows(rows, [&](std::int64_t row) {
      const T* g = grad + row * columns;
      const T* p = y + row * columns;
      T* out = grad_x + row * columns;
      const C factor = scale;
      const C mean = group.template sum<C>(columns, [=](std::int64_t i) { return to_float(g[i]) * to_float(p[i]); });
      group.each(columns, [=](std::int64_t i) { store(factor * to_float(p[i]) * (to_float(g[i]) - mean), out[i]); });
    });
  }
};

}  // namespace anyaccel
