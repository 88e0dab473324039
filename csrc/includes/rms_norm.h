// Root-mean-square normalisation (Zhang & Sennrich, arXiv:1910.07467): y = x / sqrt(mean(x^2) + eps) * weight.
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
struct RmsNormForward {
  static constexpr int kBlocksOfAnSm = sizeof(T) == 2 ? 3 : 2;

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
    using C = Compute<T>;
    const bool is_aligned = are_aligned(x, residual, weight, sum, y) && keep_aligned<T, W>(columns);
    group.rows(rows, [&](std::int64_t row) {
      group.template with_row<T, W>(columns, is_aligned, AsTheyAre{}, [&](auto& values) {
        if (residual != nullptr) {
          values.read_sum(x + row * columns, residual + row * columns, sum + row * columns);
        } else {
          values.read(x + row * columns);
        }
        const C squares = values.sum([](C value) { return value * value; });
        const C scale = 1 / square_root(squares / static_cast<C>(columns) + eps);
        T* out = y + row * columns;
        const W* w = weight;
        values.each([=](auto range, auto tile) {
          const auto weights = load(w, range);
          for (int i = 0; i < range.kCount; ++i) {
            tile[i] = tile[i] * scale * weights[i];
          }
          store(tile, out, range);
        });
        if (group.is_first()) {
          inverse_rms[row] = scale;
        }
      });
    });
  }
};

template <typename T, typename W>
struct RmsNormBackward {
  static constexpr bool kKeepsTotals = true;

  const T* grad;      // the gradient of y
  const T* x;         // the normalised input: the sum, if there was a residual
  const T* grad_sum;  // the gradient of the sum from its other uses; null when there is none
  const W* weight;
  const Compute<T>* inverse_rms;
  T* grad_x;
  Compute<T>* partials;  // (groups, columns): each group's part of the weight's gradient
  std::int64_t rows;
  std::int64_t columns;

  template <typename Group>
  void operator()(const Group& group) const {
    using C = Compute<T>;
    const bool is_aligned = are_aligned(grad, x, grad_sum, weight, grad_x, partials) && keep_aligned<T, W>(columns);
    group.template with_totals<1, T, W>(columns, is_aligned, partials + group.index * columns, [&](auto&& totals) {
      group.rows(rows, [&](std::int64_t row) {
        group.fetch_next(row, rows, columns, grad, x, grad_sum);
        const T* g = grad + row * columns;
        const T* from = x + row * columns;
        const T* other = grad_sum == nullptr ? nullptr : grad_sum + row * columns;
        T* out = grad_x + row * columns;
        const W* w = weight;
        const C scale = inverse_rms[row];
        const C dot = group.template sum_tiles<C, T, W>(columns, is_aligned, [=](auto range) {
          const auto slopes = load(g, range);
          const auto values = load(from, range);
          const auto weights = load(w, range);
          return sum_over(range, [&](int i) { return slopes[i] * weights[i] * values[i]; });
        });
        const C along = dot * scale * scale * scale / static_cast<C>(columns);
        const auto step = [=](auto range, auto& of_weight) {
          auto slopes = load(g, range);
          const auto values = load(from, range);
          const auto weights = load(w, range);
          for (int i = 0; i < range.kCount; ++i) {
            of_weight[i] += slopes[i] * values[i] * scale;
            slopes[i] = slopes[i] * weights[i] * scale - values[i] * along;
          }
          return slopes;
        };
        if (other != nullptr) {
          totals.each([=](auto range, auto& mine) {
            const auto others = load(other, range);
            auto changes = step(range, mine[0]);
            for (int i = 0; i < range.kCount; ++i) {
              changes[i] += others[i];
            }
            store(changes, out, range);
          });
        } else {
          totals.each([=](auto range, auto& mine) { store(step(range, mine[0]), out, range); });
        }
      });
    });
  }
};

}  // namespace anyaccel
