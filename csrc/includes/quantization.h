// Groupwise quantization: integers of 8 or 4 bits with a scale, or a scale and an offset, for each group of adjacent
// elements; and 8-bit floats with a scale.
//
// Rounding and layout are those of DeepSpeed's quantizer: ties to even, the even element in a byte's high nibble, an
// asymmetric group's offset the middle of its range. A group with a NaN or an infinity becomes NaN.
//
// Memory traffic with float32: quantize 4 B read and 1 B (int4: half a byte) written an element, dequantize the
// reverse.

#pragma once

#include <cstdint>

#include "elementary.h"
#include "float8.h"
#include "precision.h"
#include "tile.h"

namespace anyaccel {

// Rounds a value of magnitude below 2^22 to the nearest integer, ties to even.
inline std::int32_t nearest_integer(float value) {
  return static_cast<std::int32_t>(bit_cast<std::uint32_t>(value + 12582912.0f) - 0x4b400000u);
}

inline float infinite_if_nan(float value) { return value == value ? value : infinity<float>(); }

template <typename T, int Bits>
struct Quantize {
  const T* x;      // (groups, columns)
  std::int8_t* q;  // (groups, columns), or half as many columns for 4 bits
  float* params;   // (groups, 1): scales; or (groups, 2): scales and offsets
  std::int64_t groups;
  std::int64_t columns;
  bool is_symmetric;

  template <typename Group>
  void operator()(const Group& group) const {
    const bool is_aligned = are_aligned(x, q) && keep_aligned<std::int8_t>(columns / (8 / Bits));
    group.rows(groups, [&](std::int64_t row) {
      const T* from = x + row * columns;
      constexpr float kSteps = Bits == 8 ? 256.0f : 16.0f;
      float offset = 0.0f;
      float range = 0.0f;
      if (is_symmetric) {
        range = 2.0f * group.template max_tiles<float, T, std::int8_t>(columns, is_aligned, [=](auto elements) {
          const auto values = load(from, elements);
          return max_over(elements, [&](int i) {
            const float value = infinite_if_nan(values[i]);
            return value < 0.0f ? -value : value;
          });
        });
      } else {
        const float largest = group.template max_tiles<float, T, std::int8_t>(columns, is_aligned, [=](auto elements) {
          const auto values = load(from, elements);
          return max_over(elements, [&](int i) { return infinite_if_nan(values[i]); });
        });
        const float smallest =
            -group.template max_tiles<float, T, std::int8_t>(columns, is_aligned, [=](auto elements) {
              const auto values = load(from, elements);
              return max_over(elements, [&](int i) { return -values[i]; });
            });
        offset = 0.5f * largest + 0.5f * smallest;
        range = largest - smallest;
      }
      const float damage = range - range;  // 0 where every element is finite, else NaN
      const float scale = range > 0.0f ? kSteps / range : 1.0f;
      if (group.is_first()) {
        params[is_symmetric ? row : 2 * row] = (range > 0.0f ? range / kSteps : 1.0f) + damage;
        if (!is_symmetric) {
          params[2 * row + 1] = offset;
        }
      }
      const auto code = [=](float element) {
        const float value = (element - offset) * scale;
        const float above = value > -0.5f * kSteps ? value : -0.5f * kSteps;
        return nearest_integer(above < 0.5f * kSteps - 1.0f ? above : 0.5f * kSteps - 1.0f);
      };
      if constexpr (Bits == 8) {
        std::int8_t* to = q + row * columns;
        group.template tiles<T, std::int8_t>(columns, is_aligned, [=](auto elements) {
          const auto values = load(from, elements);
          store_bytes(to, elements, [&](int i) { return code(values[i]); });
        });
      } else {
        std::int8_t* to = q + row * (columns / 2);
        group.template tiles<std::int8_t>(columns / 2, is_aligned, [=](auto bytes) {
          const auto values = load_pairs(from, bytes);
          store_bytes(to, bytes, [&](int i) { return (code(values.left[i]) * 16) | (code(values.right[i]) & 15); });
        });
      }
    });
  }
};

template <typename T, int Bits>
struct Dequantize {
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
        group.template tiles<T, std::int8_t>(columns, is_aligned, [=](auto elements) {
          const auto codes = load_bytes(from, elements);
          Tile<float, decltype(elements)::kCount> values;
          for (int i = 0; i < elements.kCount; ++i) {
            values[i] = static_cast<float>(codes.values[i]) * scale + offset;
          }
          store(values, to, elements);
        });
      } else {
        const std::int8_t* from = q + row * (columns / 2);
        group.template tiles<std::int8_t>(columns / 2, is_aligned, [=](auto bytes) {
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

  template <typename Group>
  void operator()(const Group& group) const {
    const bool is_aligned = are_aligned(x, q) && keep_aligned<std::uint8_t>(columns);
    group.rows(groups, [&](std::int64_t row) {
      const T* from = x + row * columns;
      std::uint8_t* to = q + row * columns;
      const float largest = group.template max_tiles<float, T, std::uint8_t>(columns, is_aligned, [=](auto elements) {
        const auto values = load(from, elements);
        return max_over(elements, [&](int i) { return values[i] < 0.0f ? -values[i] : values[i]; });
      });
      const float scale = largest > 0.0f ? largest / Format::kLargest : 1.0f;
      if (group.is_first()) {
        scales[row] = scale;
      }
      const float inverse = largest > 0.0f ? Format::kLargest / largest : 1.0f;
      group.template tiles<T, std::uint8_t>(columns, is_aligned, [=](auto elements) {
        const auto values = load(from, elements);
        store_bytes(to, elements, [&](int i) { return to_float8<Format>(values[i] * inverse); });
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
      group.template tiles<T, std::uint8_t>(columns, is_aligned, [=](auto elements) {
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
