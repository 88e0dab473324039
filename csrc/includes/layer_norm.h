// Layer normalisation (Ba et al., arXiv:1607.06450): y = (x - mean) / sqrt(variance + eps) * weight + bias, with the
// biased variance.
//
// Memory traffic with float32, if a row stays in registers or cache between passes: forward 4 bytes read and 4
// written per element (with a residual 8 and 8); backward 8 read and 4 written.

#pragma once

#include <cstdint>

#include "column_sum.h"
#include "elementary.h"
#include "precision.h"
#include "row.h"
#include "tile.h"

namespace anyaccel {

template <typename T, typename W>
struct LayerNormForward {
  static constexpr int kBlocksOfAnSm = sizeof(T) == 2 && sizeof(W) == 2 ? 3 : 2;

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
    const bool is_aligned = are_aligned(x, residual, weight, bias, sum, y) && keep_aligned<T, W>(columns);
    group.rows(rows, [&](std::int64_t row) {
      group.template with_row<T, W>(columns, is_aligned, AsTheyAre{}, [&](auto& values) {
        if (residual != nullptr) {
          values.read_sum(x + row * columns, residual + row * columns, sum + row * columns);
        } else {
          values.read(x + row * columns);
        }
        const C count = static_cast<C>(columns);
        C center = values.sum([](C value) { return value; }) / count;
        // a separate pass: the mean of squares minus the squared mean loses precision if the mean is large
        C squares = values.sum([=](C value) {
          const C distance = value - center;
          return distance * distance;
        });
        if (center * center > 100 * (squares / count + eps)) {  // the mean's rounding would be a part of the result
          const C shift = values.sum([=](C value) { return value - center; }) / count;
          center += shift;
          const C rest = squares - count * shift * shift;
          squares = rest > 0 ? rest : 0;
        }
        const C scale = 1 / square_root(squares / count + eps);
        T* out = y + row * columns;
        const W* w = weight;
        const W* b = bias;
        values.each([=](auto range, auto tile) {
          const auto weights = load(w, range);
          const auto biases = load(b, range);
          for (int i = 0; i < range.kCount; ++i) {
            tile[i] = (tile[i] - center) * scale * weights[i] + biases[i];
          }
          store(tile, out, range);
        });
        if (group.is_first()) {
          mean[row] = center;
          inverse_deviation[row] = scale;
        }
      });
    });
  }
};

template <typename T, typename W>
struct LayerNormBackward {
  static constexpr bool kKeepsTotals = true;

  const T* grad;      // the gradient of y
  const T* x;         // the normalised input: the sum, if there was a residual
  const T* grad_sum;  // the gradient of the sum from its other uses; null when there is none
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
    const bool is_aligned = are_aligned(grad, x, grad_sum, weight, grad_x, partials) && keep_aligned<T, W>(columns);
    group.template with_totals<2, T, W>(columns, is_aligned, partials + group.index * 2 * columns, [&](auto&& totals) {
      group.rows(rows, [&](std::int64_t row) {
        group.fetch_next(row, rows, columns, grad, x, grad_sum);
        const T* g = grad + row * columns;
        const T* from = x + row * columns;
        const T* other = grad_sum == nullptr ? nullptr : grad_sum + row * columns;
        T* out = grad_x + row * columns;
        const W* w = weight;
        const C center = mean[row];
        const C scale = inverse_deviation[row];
        C slopes = 0;
        C products = 0;
        group.template sums<T, W>(columns, is_aligned, slopes, products, [=](auto range, C& first, C& second) {
          const auto changes = load(g, range);
          const auto values = load(from, range);
          const auto weights = load(w, range);
          for (int i = 0; i < range.kCount; ++i) {
            const C slope = changes[i] * weights[i];
            first += slope;
            second += slope * (values[i] - center);
          }
        });
        const C level = slopes / static_cast<C>(columns);
        const C along = products * scale * scale / static_cast<C>(columns);
        const auto step = [=](auto range, auto& of_weight, auto& of_bias) {
          auto changes = load(g, range);
          const auto values = load(from, range);
          const auto weights = load(w, range);
          for (int i = 0; i < range.kCount; ++i) {
            const C distance = values[i] - center;
            of_weight[i] += changes[i] * distance * scale;
            of_bias[i] += changes[i];
            changes[i] = (changes[i] * weights[i] - level - distance * along) * scale;
          }
          return changes;
        };
        if (other != nullptr) {
          totals.each([=](auto range, auto& mine) {
            const auto others = load(other, range);
            auto changes = step(range, mine[0], mine[1]);
            for (int i = 0; i < range.kCount; ++i) {
              changes[i] += others[i];
            }
            store(changes, out, range);
          });
        } else {
          totals.each([=](auto range, auto& mine) { store(step(range, mine[0], mine[1]), out, range); });
        }
      });
    });
  }
};

}  // namespace anyaccel
