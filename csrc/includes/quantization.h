// Groupwise quantization: integers of 8 or 4 bits with a scale, or a scale and an offset, for each group of adjacent
// elements; and 8-bit floats with a scale.
//
// Rounding and layout match DeepSpeed's quantizer: ties to even, the even element in a byte's high nibble, an
// asymmetric group's offset the middle of its range. A group with a NaN or an infinity becomes NaN.
//
// Memory traffic with float32: quantize 4 bytes read and 1 (int4: half a byte) written per element, dequantize the
// reverse.

#pragma once

#include <cstdint>

#include "elementary.h"
#include "float8.h"
#include "precision.h"
#include "row.h"
#include "tile.h"

namespace anyaccel {

// Rounds a value of magnitude below 2^22 to the nearest integer, ties to even.
inline std::int32_t nearest_integer(float value) {
  return static_cast<std::int32_t>(bit_cast<std::uint32_t>(value + 12582912.0f) - 0x4b400000u);
}

inline float infinite_if_nan(float value) { return value == value ? value : infinity<float>(); }

// The data that scales depend on, for a row or a part of one: the largest magnitude, or the largest element and the
// largest negated element.
struct Extremes {
  float largest;
  float largest_negated;
};

enum class Ranged : std::int32_t {
  kMagnitudes,     // without NaNs
  kMagnitudesNan,  // a NaN counts as an infinity
  kBoth,           // a NaN counts as an infinity
};

template <typename Row>
inline Extremes extremes_of(Row& row, Ranged ranged) {
  switch (ranged) {
    case Ranged::kMagnitudes:
      return {row.max([](float value) { return magnitude_of(value); }), 0.0f};
    case Ranged::kMagnitudesNan:
      return {row.max([](float value) { return magnitude_of(infinite_if_nan(value)); }), 0.0f};
    case Ranged::kBoth:
      break;
  }
  return {row.max([](float value) { return infinite_if_nan(value); }), row.max([](float value) { return -value; })};
}

// How groups are split into parts, when there are fewer groups than units of a device.
struct Parts {
  std::int64_t count;        // parts per group
  std::int64_t size;         // elements per part; the last one may be shorter
  const Extremes* extremes;  // (groups); null if a group is a single part, which computes its own
};

struct Part {
  std::int64_t group;
  std::int64_t begin;
  std::int64_t elements;
};

inline Part part_of(const Parts& parts, std::int64_t columns, std::int64_t index) {
  if (parts.count == 1) {
    return {index, 0, columns};
  }
  // 32 bits are enough to count parts, and a 64-bit division calls a subroutine
  const std::int64_t group = static_cast<std::uint32_t>(index) / static_cast<std::uint32_t>(parts.count);
  const std::int64_t begin = (index - group * parts.count) * parts.size;
  return {group, begin, columns - begin < parts.size ? columns - begin : parts.size};
}

// The extremes of the parts of groups, and of groups from their parts: inputs of Quantize and QuantizeFloat8 for
// groups that are split.
template <typename T>
struct ExtremesOfParts {
  const T* x;          // (groups, columns)
  Extremes* extremes;  // (groups, parts.count)
  std::int64_t groups;
  std::int64_t columns;
  Parts parts;
  Ranged ranged;

  template <typename Group>
  void operator()(const Group& group) const {
    const bool is_aligned = are_aligned(x) && keep_aligned<T>(columns);
    group.rows(groups * parts.count, [&](std::int64_t index) {
      const Part part = part_of(parts, columns, index);
      group.template with_row<T>(part.elements, is_aligned, AsTheyAre{}, [&](auto&& row) {
        row.read(x + part.group * columns + part.begin);
        const Extremes found = extremes_of(row, ranged);
        if (group.is_first()) {
          extremes[index] = found;
        }
      });
    });
  }
};

struct ExtremesOfGroups {
  const Extremes* of_parts;  // (groups, parts)
  Extremes* extremes;        // (groups)
  std::int64_t groups;
  std::int64_t parts;

  template <typename Group>
  void operator()(const Group& group) const {
    group.rows(groups, [&](std::int64_t row) {
      const Extremes* found = of_parts + row * parts;
      const float largest = group.template max<float>(parts, [=](std::int64_t i) { return found[i].largest; });
      const float negated = group.template max<float>(parts, [=](std::int64_t i) { return found[i].largest_negated; });
      if (group.is_first()) {
        extremes[row] = {largest, negated};
      }
    });
  }
};

// The smallest normal float. The inverse of a smaller scale may be larger than any float, and 0 times infinity is NaN.
constexpr float kSmallestScale = 0x1p-126f;

// Two adjacent elements, whose codes of 4 bits share a byte.
template <typename T>
struct TwoOf {
  T elements[2];
};

// A thread's tile is 16 bytes of x, and as many elements of q as these: with 16 bytes of q, neighbours would read and
// write x at a distance, which took twice as long on a GPU.
template <typename T, int Bits>
struct Quantize {
  static constexpr int kBlocksOfAnSm = Bits == 4 ? 2 : 0;

  const T* x;      // (groups, columns)
  std::int8_t* q;  // (groups, columns), or half as many columns for 4 bits
  float* params;   // (groups, 1): scales; or (groups, 2): scales and offsets
  std::int64_t groups;
  std::int64_t columns;
  bool is_symmetric;
  Parts parts;

  template <typename Group>
  void operator()(const Group& group) const {
    const bool is_aligned = are_aligned(x, q) && keep_aligned<std::int8_t>(columns / (8 / Bits));
    group.rows(groups * parts.count, [&](std::int64_t index) {
      const Part part = part_of(parts, columns, index);
      const std::int64_t row = part.group;
      const T* from = x + row * columns + part.begin;
      constexpr float kSteps = Bits == 8 ? 256.0f : 16.0f;
      const Ranged ranged = is_symmetric ? Ranged::kMagnitudesNan : Ranged::kBoth;
      group.template with_row<T>(part.elements, is_aligned, AsTheyAre{}, [&](auto&& elements_of_row) {
        elements_of_row.read(from);
        const Extremes found = parts.extremes == nullptr ? extremes_of(elements_of_row, ranged) : parts.extremes[row];
        const float smallest = -found.largest_negated;
        const float offset = is_symmetric || columns == 0 ? 0.0f : 0.5f * found.largest + 0.5f * smallest;
        // half of the range: the whole one may be larger than any float
        const float half = is_symmetric ? found.largest : 0.5f * found.largest - 0.5f * smallest;
        const float damage = columns > 0 ? half - half : 0.0f;  // 0 if every element is finite, otherwise NaN
        const float used = larger(half, 0.5f * kSteps * kSmallestScale);
        const float scale = half > 0.0f ? 0.5f * kSteps / used : 1.0f;
        if (group.is_first() && part.begin == 0) {
          params[is_symmetric ? row : 2 * row] = (half > 0.0f ? used / (0.5f * kSteps) : 1.0f) + damage;
          if (!is_symmetric) {
            params[2 * row + 1] = offset;
          }
        }
        const auto code = [=](float element) {
          const float above = larger(-0.5f * kSteps, (element - offset) * scale);
          return nearest_integer(smaller(0.5f * kSteps - 1.0f, above));
        };
        if constexpr (Bits == 8) {
          std::int8_t* to = q + row * columns + part.begin;
          elements_of_row.each([=](auto elements, const auto& values) {
            store_bytes(to, elements, [&](int i) { return code(values[i]); });
          });
        } else {
          std::int8_t* to = q + (row * columns + part.begin) / 2;
          group.template tiles<TwoOf<T>>(part.elements / 2, is_aligned, [=](auto bytes) {
            const auto values = load_pairs(from, bytes);
            store_bytes(to, bytes, [&](int i) { return (code(values.left[i]) * 16) | (code(values.right[i]) & 15); });
          });
        }
      });
    });
  }
};

template <typename T, int Bits>
struct Dequantize {
  static constexpr int kBlocksOfAnSm = 3;

  const std::int8_t* q;
  const float* params;
  T* x;
  std::int64_t groups;
  std::int64_t columns;
  bool is_symmetric;

  template <typename Group>
  void operator()(const Group& group) const {
    const bool is_aligned = are_aligned(q, x) && keep_aligned<std::int8_t>(columns / (8 / Bits));
    group.rows(groups, [&](std::int64_t row) {
      const float scale = params[is_symmetric ? row : 2 * row];
      const float offset = is_symmetric ? 0.0f : params[2 * row + 1];
      T* to = x + row * columns;
      if constexpr (Bits == 8) {
        const std::int8_t* from = q + row * columns;
        group.template tiles<T>(columns, is_aligned, [=](auto elements) {
          const auto codes = load_bytes(from, elements);
          Tile<float, decltype(elements)::kCount> values;
          for (int i = 0; i < elements.kCount; ++i) {
            values[i] = static_cast<float>(codes.values[i]) * scale + offset;
          }
          store(values, to, elements);
        });
      } else {
        const std::int8_t* from = q + row * (columns / 2);
        group.template tiles<TwoOf<T>>(columns / 2, is_aligned, [=](auto bytes) {
          const auto codes = load_bytes(from, bytes);
          Pairs<float, decltype(bytes)::kCount> values;
          for (int i = 0; i < bytes.kCount; ++i) {
            const std::int32_t byte = codes.values[i];
            const std::int32_t low = ((byte & 15) ^ 8) - 8;
            values.left[i] = static_cast<float>(byte >> 4) * scale + offset;
            values.right[i] = static_cast<float>(low) * scale + offset;
          }
          store_pairs(values, to, bytes);
        });
      }
    });
  }
};

template <typename T, typename Format>
struct QuantizeFloat8 {
  const T* x;       // (groups, columns)
  std::uint8_t* q;  // (groups, columns)
  float* scales;    // (groups): x is q * scale
  std::int64_t groups;
  std::int64_t columns;
  Parts parts;

  template <typename Group>
  void operator()(const Group& group) const {
    const bool is_aligned = are_aligned(x, q) && keep_aligned<std::uint8_t>(columns);
    group.rows(groups * parts.count, [&](std::int64_t index) {
      const Part part = part_of(parts, columns, index);
      const std::int64_t row = part.group;
      const T* from = x + row * columns + part.begin;
      std::uint8_t* to = q + row * columns + part.begin;
      group.template with_row<T>(part.elements, is_aligned, AsTheyAre{}, [&](auto&& elements_of_row) {
        elements_of_row.read(from);
        const Extremes found =
            parts.extremes == nullptr ? extremes_of(elements_of_row, Ranged::kMagnitudes) : parts.extremes[row];
        const float largest = found.largest;
        const float used = larger(largest, Format::kLargest * kSmallestScale);
        const float scale = largest > 0.0f ? used / Format::kLargest : 1.0f;
        if (group.is_first() && part.begin == 0) {
          scales[row] = scale;
        }
        const float inverse = largest > 0.0f ? Format::kLargest / used : 1.0f;
        elements_of_row.each([=](auto elements, const auto& values) {
          store_bytes(to, elements, [&](int i) { return to_float8<Format>(values[i] * inverse); });
        });
      });
    });
  }
};

template <typename T, typename Format>
struct DequantizeFloat8 {
  const std::uint8_t* q;
  const float* scales;
  T* x;
  std::int64_t groups;
  std::int64_t columns;

  template <typename Group>
  void operator()(const Group& group) const {
    const bool is_aligned = are_aligned(q, x) && keep_aligned<std::uint8_t>(columns);
    group.rows(groups, [&](std::int64_t row) {
      const std::uint8_t* from = q + row * columns;
      T* to = x + row * columns;
      const float scale = scales[row];
      group.template tiles<T>(columns, is_aligned, [=](auto elements) {
        const auto codes = load_bytes(from, elements);
        Tile<float, decltype(elements)::kCount> values;
        for (int i = 0; i < elements.kCount; ++i) {
          values[i] = from_float8<Format>(codes.values[i]) * scale;
        }
        store(values, to, elements);
      });
    });
  }
};

}  // namespace anyaccel
