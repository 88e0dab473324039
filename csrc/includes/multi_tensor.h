// Norms, scaling and sums of many tensors in a few launches.
//
// Memory traffic with float32: l2norm 4 bytes read per element; scale 4 read and 4 written; axpby 8 read and 4
// written.

#pragma once

#include <cstdint>

#include "elementary.h"
#include "precision.h"
#include "tensor_table.h"

namespace anyaccel {

// Each chunk's share of its tensor's sum of squares.
template <typename T>
struct SquaredSums {
  TensorTable<1> tensors;
  float* partials;       // (tensors of the call, columns)
  std::int64_t columns;  // at least the largest number of chunks of any tensor

  template <typename Group>
  void operator()(const Group& group) const {
    group.chunks(tensors, [&](const Chunk& chunk) {
      const T* x = tensors.template at<const T>(chunk.number, 0) + chunk.begin;
      const float part =
          group.template sum_tiles<float, T>(chunk.elements, tensors.is_aligned(chunk.number), [=](auto range) {
            const auto values = load(x, range);
            return sum_over(range, [&](int i) { return values[i] * values[i]; });
          });
      float* row = partials + (tensors.first + chunk.number) * columns;
      if (group.is_first()) {
        row[chunk.index] = part;
      }
      if (chunk.index + 1 == chunk.count) {
        float* rest = row + chunk.count;
        group.each(columns - chunk.count, [=](std::int64_t i) { rest[i] = 0.0f; });
      }
    });
  }
};

// The roots of the row sums of partial results. The sums themselves, one per row, are the partial results of the norm
// of all tensors.
struct RootOfSums {
  const float* partials;  // (rows, columns)
  float* roots;           // (rows)
  float* sums;            // (rows); null when not needed
  std::int64_t rows;
  std::int64_t columns;

  template <typename Group>
  void operator()(const Group& group) const {
    group.rows(rows, [&](std::int64_t row) {
      const float* from = partials + row * columns;
      const float total = group.template sum<float>(columns, [=](std::int64_t i) { return from[i]; });
      if (group.is_first()) {
        roots[row] = square_root(total);
        if (sums != nullptr) {
          sums[row] = total;
        }
      }
    });
  }
};

// out = in * factor; sets `overflow` to 1 when any input is not finite.
template <typename In, typename Out>
struct ScaleTensors {
  TensorTable<2> tensors;  // in, out; may be the same
  float factor;
  const float* device_factor;  // multiplies factor; null when there is none
  std::int32_t* overflow;      // null when not needed

  template <typename Group>
  void operator()(const Group& group) const {
    const float by = device_factor == nullptr ? factor : factor * *device_factor;
    group.chunks(tensors, [&](const Chunk& chunk) {
      const In* in = tensors.template at<const In>(chunk.number, 0) + chunk.begin;
      Out* out = tensors.template at<Out>(chunk.number, 1) + chunk.begin;
      // 0 where every element is finite, else NaN
      const float damage =
          group.template sum_tiles<float, In, Out>(chunk.elements, tensors.is_aligned(chunk.number), [=](auto range) {
            auto values = load(in, range);
            const float found = sum_over(range, [&](int i) { return values[i] * 0.0f; });
            for (int i = 0; i < range.kCount; ++i) {
              values[i] *= by;
            }
            store(values, out, range);
            return found;
          });
      if (damage != 0.0f && overflow != nullptr && group.is_first()) {
        group.raise(overflow);
      }
    });
  }
};

// out = a * x + b * y; `overflow` as above.
template <typename T>
struct AddTensors {
  TensorTable<3> tensors;  // x, y, out; may be the same
  float a;
  float b;
  std::int32_t* overflow;

  template <typename Group>
  void operator()(const Group& group) const {
    group.chunks(tensors, [&](const Chunk& chunk) {
      const T* x = tensors.template at<const T>(chunk.number, 0) + chunk.begin;
      const T* y = tensors.template at<const T>(chunk.number, 1) + chunk.begin;
      T* out = tensors.template at<T>(chunk.number, 2) + chunk.begin;
      const float damage = group.template sum_tiles<float, T>(
          chunk.elements, tensors.is_aligned(chunk.number), [=, first = a, second = b](auto range) {
            auto left = load(x, range);
            const auto right = load(y, range);
            const float found = sum_over(range, [&](int i) { return left[i] * 0.0f + right[i] * 0.0f; });
            for (int i = 0; i < range.kCount; ++i) {
              left[i] = first * left[i] + second * right[i];
            }
            store(left, out, range);
            return found;
          });
      if (damage != 0.0f && overflow != nullptr && group.is_first()) {
        group.raise(overflow);
      }
    });
  }
};

}  // namespace anyaccel
