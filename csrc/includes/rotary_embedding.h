// Rotary position embedding (Su et al., arXiv:2104.09864): rotates each pair of a head's elements by the angle of its
// position. Pairs are (i, i + half), or (2 i, 2 i + 1) when interleaved.
//
// Memory traffic with float32: 4 bytes read and 4 written per element, and the tables once per position.

#pragma once

#include <cstdint>

#include "division.h"
#include "precision.h"
#include "tile.h"

namespace anyaccel {

template <typename T, bool Interleaved>
struct RotaryEmbedding {
  static constexpr int kBlocksOfAnSm = 2;

  const T* x;                // (batch, positions, heads, columns), strided except for the last dimension
  T* y;                      // like x; may be x
  const Compute<T>* cosine;  // (positions, pairs)
  const Compute<T>* sine;
  std::int64_t x_strides[3];
  std::int64_t y_strides[3];
  std::int64_t batch;
  std::int64_t positions;
  std::int64_t heads;
  std::int64_t heads_of_a_group;  // adjacent heads, which share a position's angles
  std::int64_t parts;             // groups of a position's heads
  std::int64_t columns;
  std::int64_t pairs;    // elements from 2 * pairs on are copied
  Compute<T> direction;  // 1, or -1 to rotate back

  template <typename Group>
  void operator()(const Group& group) const {
    using C = Compute<T>;
    const bool is_aligned = are_aligned(x, y, cosine, sine) &&
                            keep_aligned<T>(x_strides[0], x_strides[1], x_strides[2], pairs) &&
                            keep_aligned<T>(y_strides[0], y_strides[1], y_strides[2]);
    group.rows(batch * positions * parts, [&](std::int64_t row) {
      const Quotient of_parts = divided(row, parts);
      const Quotient of_positions = divided(of_parts.whole, positions);
      const std::int64_t first = of_parts.rest * heads_of_a_group;
      const std::int64_t position = of_positions.rest;
      const std::int64_t entry = of_positions.whole;
      const std::int64_t count = heads - first < heads_of_a_group ? heads - first : heads_of_a_group;
      const T* from = x + entry * x_strides[0] + position * x_strides[1] + first * x_strides[2];
      T* to = y + entry * y_strides[0] + position * y_strides[1] + first * y_strides[2];
      const std::int64_t from_stride = x_strides[2];
      const std::int64_t to_stride = y_strides[2];
      const C* c = cosine + position * pairs;
      const C* s = sine + position * pairs;
      const C sign = direction;
      const std::int64_t second = pairs;
      group.template tiles_of_rows<T>(count, pairs, is_aligned, [=](std::int64_t head) {
        const T* of_head = from + head * from_stride;
        T* turned = to + head * to_stride;
        return [=](auto range) {
          if constexpr (decltype(range)::kCount == 1) {  // in the form that CPU compilers vectorise
            const std::int64_t at = Interleaved ? 2 * range.first : range.first;
            const std::int64_t beside = at + (Interleaved ? 1 : second);
            const C left = to_float(of_head[at]);
            const C right = to_float(of_head[beside]);
            store(left * c[range.first] - right * s[range.first] * sign, turned[at]);
            store(right * c[range.first] + left * s[range.first] * sign, turned[beside]);
          } else {
            auto values = load_both(of_head, range, second);
            const auto cosines = load(c, range);
            const auto sines = load(s, range);
            for (int i = 0; i < range.kCount; ++i) {
              const C left = values.left[i];
              const C right = values.right[i];
              values.left[i] = left * cosines[i] - right * sines[i] * sign;
              values.right[i] = right * cosines[i] + left * sines[i] * sign;
            }
            store_both(values, turned, range, second);
          }
        };
      });
      if (from != to && columns > 2 * pairs) {
        const T* rest = from + 2 * pairs;
        T* copied = to + 2 * pairs;
        const bool has_tiles = is_aligned && keep_aligned<T>(columns);
        group.template tiles_of_rows<T>(count, columns - 2 * pairs, has_tiles, [=](std::int64_t head) {
          const T* of_head = rest + head * from_stride;
          T* place = copied + head * to_stride;
          return [=](auto range) { copy(of_head, place, range); };
        });
      }
    });
  }

 private:
  template <int Count>
  static Pairs<Compute<T>, Count> load_both(const T* row, TileRange<Count> range, std::int64_t second) {
    if constexpr (Interleaved) {
      return load_pairs(row, range);
    } else {
      return {load(row, range), load(row + second, range)};
    }
  }

  template <int Count>
  static void store_both(const Pairs<Compute<T>, Count>& values, T* row, TileRange<Count> range, std::int64_t second) {
    if constexpr (Interleaved) {
      store_pairs(values, row, range);
    } else {
      store(values.left, row, range);
      store(values.right, row + second, range);
    }
  }
};

}  // namespace anyaccel
