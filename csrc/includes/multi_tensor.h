// Norms, scaling and sums of many tensors in a few launches.
//
// Memory traffic with float32: l2norm 4 B read an element; scale 4 B read and 4 B written; axpby 8 B read and 4 B
// written.

#pragma once

#include <cstdint>

#include "elementary.h"
#include "precision.h"
#include "tensor_table.h"

namespace anyaccel {

// A group's share of a range of elements.
template <typename Group>
inline std::int64_t share_begin(const Group& group, std::int64_t elements) {
  return elements / group.count * group.index + (elements % group.count) * group.index / group.count;
}

template <typename Group>
inline std::int64_t share_end(const Group& group, std::int64_t elements) {
  const std::int64_t next = group.index + 1;
  return elements / group.count * next + (elements % group.count) * next / group.count;
}

// Each group's part of each tensor's sum of squares.
template <typename T>
struct SquaredSums {
  TensorTable<1> tensors;
  float* partials;  // (tensors of the call, groups)

  template <typename Group>
  void operator()(const Group& group) const {
    for (std::int32_t number = 0; number < tensors.count; ++number) {
      const std::int64_t elements = tensors.ends[number] - tensors.begin_of(number);
      const std::int64_t begin = share_begin(group, elements);
      const T* x = tensors.template at<const T>(number, 0) + begin;
      const float part = group.template sum<float>(share_end(group, elements) - begin, [=](std::int64_t i) {
        const float value = to_float(x[i]);
        return value * value;
      });
      if (group.is_first()) {
        partials[(tensors.first + number) * group.count + group.index] = part;
      }
    }
  }
};

// The roots of the sums of rows of partial results. The sums themselves are the partial results of the norm of
// everything, one for each row.
struct RootOfSums {
  const float* partials;  // (rows, columns)
  float* roots;           // (rows)
  float* sums;            // (rows); null when nobody asks
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

// out = in * factor; `overflow` becomes 1 when anything that was read is not finite.
template <typename In, typename Out>
struct ScaleTensors {
  TensorTable<2> tensors;  // in, out; may be the same
  float factor;
  const float* device_factor;  // multiplies factor; null when there is none
  std::int32_t* overflow;      // null when nobody asks

  template <typename Group>
  void operator()(const Group& group) const {
    const float by = device_factor == nullptr ? factor : factor * *device_factor;
    for (std::int32_t number = 0; number < tensors.count; ++number) {
      const std::int64_t elements = tensors.ends[number] - tensors.begin_of(number);
      const std::int64_t begin = share_begin(group, elements);
      const In* in = tensors.template at<const In>(number, 0) + begin;
      Out* out = tensors.template at<Out>(number, 1) + begin;
      // 0 where every element is finite, else NaN
      const float damage = group.template sum<float>(share_end(group, elements) - begin, [=](std::int64_t i) {
        const float value = to_float(in[i]);
        store(value * by, out[i]);
        return value * 0.0f;
      });
      if (damage != 0.0f && overflow != nullptr && group.is_first()) {
        group.raise(overflow);
      }
    }
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
    for (std::int32_t number = 0; number < tensors.count; ++number) {
      const std::int64_t elements = tensors.ends[number] - tensors.begin_of(number);
      const std::int64_t begin = share_begin(group, elements);
      const T* x = tensors.template at<const T>(number, 0) + begin;
      const T* y = tensors.template at<const T>(number, 1) + begin;
      T* out = tensors.template at<T>(number, 2) + begin;
      const float damage =
          group.template sum<float>(share_end(group, elements) - begin, [=, first = a, second = b](std::int64_t i) {
            const float left = to_float(x[i]);
            const float right = to_float(y[i]);
            store(first * left + second * right, out[i]);
            return left * 0.0f + right * 0.0f;
          });
      if (damage != 0.0f && overflow != nullptr && group.is_first()) {
        group.raise(overflow);
      }
    }
  }
};

}  // namespace anyaccel
