// Mixtures of experts (Shazeer et al., arXiv:1701.06538): each token's best experts and their weights, and the copying
// of rows between token order and expert order.
//
// Memory traffic with float32: gating reads 4 bytes and writes 4 for each token and expert; gathering reads and writes
// 4 bytes per element; combining reads k * 4 bytes and writes 4 bytes per element.

#pragma once

#include <cstdint>

#include "division.h"
#include "elementary.h"
#include "precision.h"
#include "row.h"
#include "tile.h"

namespace anyaccel {

inline constexpr int kMostExpertsAToken = 16;
inline constexpr std::int64_t kMostExperts = 1
                                             << 24;  // their numbers are compared as floats, which are exact up to here

// On the CPU, the host rejects an index out of range. On a device, the host does not wait to read indices, so every
// kernel checks before it uses one: an index out of range reads nothing and counts as zero.
inline bool is_within(std::int64_t index, std::int64_t count) {
  return static_cast<std::uint64_t>(index) < static_cast<std::uint64_t>(count);
}

// Softmax over all experts, then the k largest; ties go to the lower number.
template <typename T>
struct TopkGating {
  const T* logits;              // (tokens, experts)
  Compute<T>* probabilities;    // (tokens, experts)
  Compute<T>* weights;          // (tokens, k)
  std::int64_t* experts_taken;  // (tokens, k)
  std::int64_t tokens;
  std::int64_t experts;
  std::int32_t k;
  bool is_normalised;  // the weights of a token add up to 1

  template <typename Group>
  void operator()(const Group& group) const {
    using C = Compute<T>;
    group.rows(tokens, [&](std::int64_t token) {
      const T* from = logits + token * experts;
      const C largest = group.template max<C>(experts, [=](std::int64_t i) { return to_float(from[i]); });
      group.template with_values<C>(experts, probabilities + token * experts, [&](auto&& values) {
        values.fill([=](std::int64_t i) { return exponential(to_float(from[i]) - largest); });
        const C total = values.sum();
        const C inverse = reciprocal(total);  // the largest of its terms is 1
        values.change([=](C value) { return value * inverse; });
        values.publish();
        choose(group, token, total, values);
      });
    });
  }

 private:
  // `damage` is NaN if all probabilities are.
  template <typename Group, typename C, typename Values>
  void choose(const Group& group, std::int64_t token, C damage, Values& values) const {
    C* weight = weights + token * k;
    std::int64_t* taken = experts_taken + token * k;
    C sum = 0;
    for (std::int32_t choice = 0; choice < k; ++choice) {
      const C best = values.max([](std::int64_t, C value) { return value; });
      const C none = -static_cast<C>(experts);
      const C place = values.max([=](std::int64_t i, C value) { return value == best ? -static_cast<C>(i) : none; });
      const std::int64_t expert = place > none ? -static_cast<std::int64_t>(place) : 0;  // NaN: any valid expert
      const C value = best >= 0 ? best : damage;
      sum += value;
      if (group.is_first()) {
        taken[choice] = expert;
        weight[choice] = value;
      }
      values.replace(expert, C(-1));  // excluded from the next choices, until all are made
    }
    for (std::int32_t choice = 0; choice < k; ++choice) {
      values.restore(taken[choice], weight[choice]);
    }
    if (group.is_first() && is_normalised) {
      for (std::int32_t choice = 0; choice < k; ++choice) {
        weight[choice] /= sum;
      }
    }
  }
};

template <typename T>
struct TopkGatingBackward {
  const Compute<T>* grad_weights;        // (tokens, k)
  const Compute<T>* grad_probabilities;  // (tokens, experts)
  const Compute<T>* probabilities;
  const std::int64_t* experts_taken;
  T* grad_logits;
  std::int64_t tokens;
  std::int64_t experts;
  std::int32_t k;
  bool is_normalised;

  template <typename Group>
  void operator()(const Group& group) const {
    using C = Compute<T>;
    group.rows(tokens, [&](std::int64_t token) {
      const C* p = probabilities + token * experts;
      const C* of_all = grad_probabilities + token * experts;
      const std::int64_t* taken = experts_taken + token * k;
      const C* of_taken = grad_weights + token * k;
      // First of all: its loads take longest, and bring what the chosen experts need.
      C along = group.template sum<C>(experts, [=](std::int64_t i) { return of_all[i] * p[i]; });
      C sum = 0;
      C mean = 0;  // the mean of the weights' gradients, weighted by the weights
      for (std::int32_t choice = 0; choice < k; ++choice) {
        if (is_within(taken[choice], experts)) {
          sum += p[taken[choice]];
          mean += p[taken[choice]] * of_taken[choice];
        }
      }
      // Weights that add up to 1 do not change when all probabilities grow alike.
      along += is_normalised ? C(0) : mean;
      mean = is_normalised ? mean / sum : C(0);
      const C factor = is_normalised ? 1 / sum : C(1);
      T* out = grad_logits + token * experts;
      group.each(experts, [=](std::int64_t i) { store(p[i] * (of_all[i] - along), out[i]); });
      group.wait();
      // Writes the few elements again that the weights' gradients reach, too; one that was chosen twice, once.
      group.each(k, [=, choices = k, most = experts](std::int64_t one) {
        const std::int64_t i = taken[one];
        if (!is_within(i, most)) {
          return;
        }
        C slope = of_all[i];
        bool is_again = false;
        for (std::int32_t choice = 0; choice < choices; ++choice) {
          const bool is_same = taken[choice] == i;
          is_again |= is_same && choice < one;
          slope += is_same ? (of_taken[choice] - mean) * factor : C(0);
        }
        if (!is_again) {
          store(p[i] * (slope - along), out[i]);
        }
      });
    });
  }
};

// Row r of the result is row `source[r] / divisor` of x, times `weights[source[r]]` if there are weights.
template <typename T>
struct GatherRows {
  static constexpr int kBlocksOfAnSm = 3;

  const T* x;                  // (x_rows, columns)
  const std::int64_t* source;  // (rows)
  const Compute<T>* weights;   // null when there are none
  T* y;                        // (rows, columns)
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t divisor;
  std::int64_t x_rows;

  template <typename Group>
  void operator()(const Group& group) const {
    const bool is_aligned = are_aligned(x, y) && keep_aligned<T>(columns);
    group.rows(rows, [&](std::int64_t row) {
      T* to = y + row * columns;
      const std::int64_t entry = source[row];
      const std::int64_t from_row = entry < 0 ? x_rows : divided(entry, divisor).whole;
      if (from_row >= x_rows || (weights != nullptr && entry >= rows)) {
        group.template tiles<T>(columns, is_aligned, [=](auto range) {
          const Tile<Compute<T>, decltype(range)::kCount> zeros{};
          store(zeros, to, range);
        });
        return;
      }
      const T* from = x + from_row * columns;
      if (weights == nullptr) {
        group.template tiles<T>(columns, is_aligned, [=](auto range) { copy(from, to, range); });
      } else {
        const Compute<T> weight = weights[entry];
        group.template tiles<T>(columns, is_aligned, [=](auto range) {
          auto values = load(from, range);
          for (int i = 0; i < range.kCount; ++i) {
            values[i] *= weight;
          }
          store(values, to, range);
        });
      }
    });
  }
};

// Token t of the result is the sum of rows `places[t, j]` of x, times `weights[t, j]` if there are weights.
template <typename T>
struct CombineRows {
  const T* x;                  // (x_rows, columns), at least one row
  const std::int64_t* places;  // (tokens, k)
  const Compute<T>* weights;   // (tokens, k); null when there are none
  T* y;                        // (tokens, columns)
  std::int64_t tokens;
  std::int64_t columns;
  std::int32_t k;
  std::int64_t x_rows;

  template <typename Group>
  void operator()(const Group& group) const {
    const bool is_aligned = are_aligned(x, y) && keep_aligned<T>(columns);
    group.rows(tokens, [&](std::int64_t token) {
      const std::int64_t* place = places + token * k;
      const Compute<T>* weight = weights == nullptr ? nullptr : weights + token * k;
      T* to = y + token * columns;
      const T* from = x;
      group.template strips<T>(columns, is_aligned, [=, count = k, width = columns, most = x_rows](auto range) {
        Tile<Compute<T>, decltype(range)::kCount> total{};
        for (std::int32_t choice = 0; choice < count; ++choice) {
          const bool is_there = is_within(place[choice], most);
          const auto values = load(from + (is_there ? place[choice] : 0) * width, range);
          const Compute<T> factor = weight == nullptr ? Compute<T>(1) : weight[choice];
          for (int i = 0; i < range.kCount; ++i) {
            total[i] += is_there ? values[i] * factor : 0;
          }
        }
        store(total, to, range);
      });
    });
  }
};

// The gradient of a combination's weights: the products of the result's gradient and the rows.
template <typename T>
struct CombineWeightsBackward {
  const T* grad;  // (tokens, columns)
  const T* x;
  const std::int64_t* places;
  Compute<T>* grad_weights;  // (tokens, k)
  std::int64_t tokens;
  std::int64_t columns;
  std::int32_t k;
  std::int64_t x_rows;

  template <typename Group>
  void operator()(const Group& group) const {
    const bool is_aligned = are_aligned(grad, x) && keep_aligned<T>(columns);
    group.rows(tokens * k, [&](std::int64_t entry) {
      const bool is_there = is_within(places[entry], x_rows);
      const T* g = grad + divided(entry, k).whole * columns;
      const T* from = x + (is_there ? places[entry] * columns : 0);
      const Compute<T> product =
          group.template sum_tiles<Compute<T>, T>(is_there ? columns : 0, is_aligned, [=](auto range) {
            const auto slopes = load(g, range);
            const auto values = load(from, range);
            return sum_over(range, [&](int i) { return slopes[i] * values[i]; });
          });
      if (group.is_first()) {
        grad_weights[entry] = product;
      }
    });
  }
};

}  // namespace anyaccel
