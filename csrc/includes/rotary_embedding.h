// Rotary position embedding (Su et al., arXiv:2104.09864): each pair of a head's elements is turned by its position's
// angle. Pairs are (i, i + half), or (2 i, 2 i + 1) when interleaved.
//
// Memory traffic with float32: 4 B read and 4 B written an element, and the tables once a position.

#pragma once

#include <cstdint>

#include "precision.h"

namespace anyaccel {

template <typename T, bool Interleaved>
struct RotaryEmbedding {
  const T* x;                // (batch, positions, heads, columns), strided but for the last dimension
  T* y;                      // of the same shape; may be x
  const Compute<T>* cosine;  // (positions, pairs)
  const Compute<T>* sine;
  std::int64_t x_strides[3];
  std::int64_t y_strides[3];
  std::int64_t batch;
  std::int64_t positions;
  std::int64_t heads;
  std::int64_t columns;
  std::int64_t pairs;    // elements from 2 * pairs on are copied
  Compute<T> direction;  // 1, or -1 to turn back

  template <typename Group>
  void operator()(const Group& group) const {
    using C = Compute<T>;
    group.rows(batch * positions * heads, [&](std::int64_t row) {
      const std::int64_t head = row % heads;
      const std::int64_t position = row / heads % positions;
      const std::int64_t entry = row / heads / positions;
      const T* from = x + entry * x_strides[0] + position * x_strides[1] + head * x_strides[2];
      T* to = y + entry * y_strides[0] + position * y_strides[1] + head * y_strides[2];
      const C* c = cosine + position * pairs;
      const C* s = sine + position * pairs;
      const C sign = direction;
      const std::int64_t second = Interleaved ? 1 : pairs;
      group.each(pairs, [=](std::int64_t i) {
        const std::int64_t at = Interleaved ? 2 * i : i;
        const C left = to_float(from[at]);
        const C right = to_float(from[at + second]);
        store(left * c[i] - right * s[i] * sign, to[at]);
        store(right * c[i] + left * s[i] * sign, to[at + second]);
      });
      if (from != to) {
        const T* rest = from + 2 * pairs;
        T* copied = to + 2 * pairs;
        group.each(columns - 2 * pairs, [=](std::int64_t i) { copied[i] = rest[i]; });
      }
    });
  }
};

}  // namespace anyaccel
