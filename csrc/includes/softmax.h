// Softmax of scaled scores with a mask: y = softmax(scale * x); masked scores give exactly 0, and so does a row that
// is masked entirely.
//
// Memory traffic with float32, if a row stays in registers or cache between passes: forward 4 bytes read and 4
// written per element (1 more read with a mask); backward 8 read and 4 written.

#pragma once

#include <cstdint>

#include "division.h"
#include "elementary.h"
#include "precision.h"
#include "row.h"
#include "tile.h"

namespace anyaccel {

// The hidden scores: those where `mask` is not zero, and in a causal matrix those to the right of the diagonal.
struct SoftmaxMask {
  const std::uint8_t* mask;  // broadcast over (batch, heads, queries, columns); null when there is none
  std::int64_t strides[4];   // the last is 0 or 1
  std::int64_t heads;
  std::int64_t queries;
  bool is_causal;

  // The number of a row's scores up to the diagonal, which ends in the last column.
  std::int64_t visible(std::int64_t row, std::int64_t columns) const {
    return is_causal ? divided(row, queries).rest + 1 + columns - queries : columns;
  }

  const std::uint8_t* of_row(std::int64_t row) const {
    const Quotient of_queries = divided(row, queries);
    const Quotient of_heads = divided(of_queries.whole, heads);
    return mask + of_heads.whole * strides[0] + of_heads.rest * strides[1] + of_queries.rest * strides[2];
  }
};

template <typename T>
struct SoftmaxForward {
  static constexpr int kBlocksOfAnSm = sizeof(T) == 2 ? 3 : 2;

  const T* x;  // (rows, columns)
  T* y;
  SoftmaxMask hidden;
  std::int64_t rows;
  std::int64_t columns;
  Compute<T> scale;

  template <typename Group>
  void operator()(const Group& group) const {
    const bool is_aligned = are_aligned(x, y) && keep_aligned<T>(columns);
    group.rows(rows, [&](std::int64_t row) {
      // A compiler may fuse a product into the subtraction that follows, which then leaves what rounding took from the
      // other product: a lot, if the scores are large. Multiples by 1/2 or 1 are exact. Halves have a finite
      // difference, as a scale below 1 may still bring it near 0.
      const Compute<T> unit = (is_steep() ? Compute<T>(1) : Compute<T>(0.5)) * (scale > 0 ? 1 : scale < 0 ? -1 : scale);
      const std::uint8_t* mask = hidden.mask == nullptr ? nullptr : hidden.of_row(row);
      const bool is_of_rows = mask != nullptr && hidden.strides[3] == 0;
      if (is_of_rows && *mask != 0) {
        clear(group, y + row * columns, columns, is_aligned);
      } else if (mask == nullptr || is_of_rows) {
        normalise(group, row, is_aligned, [=](auto, Compute<T> value) { return value * unit; });
      } else {
        const Compute<T> lowest = -infinity<Compute<T>>();
        normalise(group, row, is_aligned, [=](auto i, Compute<T> value) {
          const Compute<T> score = value * unit;
          return mask[i] != 0 ? lowest : score;
        });
      }
    });
  }

 private:
  bool is_steep() const { return scale > 1 || scale < -1; }

  template <typename Group, typename ScoreOf>
  void normalise(const Group& group, std::int64_t row, bool is_aligned, const ScoreOf& score_of) const {
    using C = Compute<T>;
    constexpr std::int64_t kTile = Group::template kTile<T>;
    T* out = y + row * columns;
    const std::int64_t visible = hidden.visible(row, columns);
    // whole tiles: the last one may contain hidden scores
    const std::int64_t width = is_aligned ? (visible + kTile - 1) / kTile * kTile : visible;
    clear(group, out + width, columns - width, is_aligned);
    const auto score = [=](auto i, C value) {
      return kTile == 1 || i < static_cast<decltype(i)>(visible) ? score_of(i, value) : -infinity<C>();
    };
    const auto clear_hidden = [=](auto range, auto& tile) {
      if constexpr (kTile > 1) {
        const std::int64_t left = visible - range.first;
        const int shown = left < range.kCount ? static_cast<int>(left) : range.kCount;  // 64-bit ones cost twice below
        for (int i = 0; i < range.kCount; ++i) {
          tile[i] = i < shown ? tile[i] : C(0);
        }
      }
    };
    group.template with_row<T>(width, is_aligned, score, [&]<typename Row>(Row& scores) {
      scores.read(x + row * columns);
      const C largest = scores.max();
      if (largest == -infinity<C>()) {  // nothing is visible, unless the visible scores are NaN
        const C value = scores.sum([](C score) { return score == score ? C(0) : C(1); }) > 0 ? not_a_number<C>() : C(0);
        group.each(width, [=](std::int64_t i) { store(i < visible ? value : C(0), out[i]); });
        return;
      }
      const C steepness = scale == 0 ? C(1) : (is_steep() ? C(1) : C(2)) * (scale < 0 ? -scale : scale);
      const auto power = [=](C score) { return exponential((score - largest) * steepness); };
      if constexpr (Row::kReplaces) {
        const C inverse = reciprocal(scores.replace_and_sum(out, power));  // of 1 or more: the largest gives 1
        scores.each_new([=](auto range, auto powers) {
          for (int i = 0; i < range.kCount; ++i) {
            powers[i] *= inverse;
          }
          clear_hidden(range, powers);
          store(powers, out, range);
        });
      } else {
        const C inverse = reciprocal(scores.sum(power));
        scores.each([=](auto range, auto tile) {
          for (int i = 0; i < range.kCount; ++i) {
            tile[i] = power(tile[i]) * inverse;
          }
          clear_hidden(range, tile);
          store(tile, out, range);
        });
      }
    });
  }

  template <typename Group>
  static void clear(const Group& group, T* out, std::int64_t count, bool is_aligned) {
    group.template tiles<T>(count, is_aligned, [=](auto range) {
      const Tile<Compute<T>, decltype(range)::kCount> zeros{};
      store(zeros, out, range);
    });
  }
};

// Needs no mask: where y is 0, the gradient is 0 too.
template <typename T>
struct SoftmaxBackward {
  static constexpr int kBlocksOfAnSm = 2;

  const T* grad;
  const T* y;
  T* grad_x;
  std::int64_t rows;
  std::int64_t columns;
  Compute<T> scale;

  template <typename Group>
  void operator()(const Group& group) const {
    using C = Compute<T>;
    const bool is_aligned = are_aligned(grad, y, grad_x) && keep_aligned<T>(columns);
    group.rows(rows, [&](std::int64_t row) {
      group.template with_two_rows<T>(columns, is_aligned, [&](auto& slopes, auto& values) {
        slopes.read(grad + row * columns);
        values.read(y + row * columns);
        const C mean = slopes.sum_with(values, [](C slope, C value) { return slope * value; });
        T* out = grad_x + row * columns;
        const C factor = scale;
        slopes.each_with(values, [=](auto range, auto changes, const auto& powers) {
          for (int i = 0; i < range.kCount; ++i) {
            changes[i] = factor * powers[i] * (changes[i] - mean);
          }
          store(changes, out, range);
        });
      });
    });
  }
};

}  // namespace anyaccel
