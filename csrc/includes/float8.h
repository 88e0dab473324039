// 8-bit floats (Micikevicius et al., arXiv:2209.05433): e4m3 without infinities, as torch.float8_e4m3fn, and e5m2.

#pragma once

#include <cstdint>

#include "precision.h"

namespace anyaccel {

struct E4M3 {
  static constexpr int kMantissa = 3;
  static constexpr int kBias = 7;
  static constexpr float kLargest = 448.0f;
  static constexpr std::uint32_t kLargestCode = 0x7e;
  static constexpr std::uint32_t kFirstSpecial = 0x7f;
};

struct E5M2 {
  static constexpr int kMantissa = 2;
  static constexpr int kBias = 15;
  static constexpr float kLargest = 57344.0f;
  static constexpr std::uint32_t kLargestCode = 0x7b;
  static constexpr std::uint32_t kFirstSpecial = 0x7c;
};

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890

// Like the version below, but a NaN loses its sign.
template <typename Format>
inline std::uint8_t to_float8(float value) {
  std::uint16_t pair;
  if constexpr (Format::kMantissa == 3) {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value));
  } else {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(value));
  }
  return static_cast<std::uint8_t>(pair);
}

// Through float16, which has every value of both formats.
template <typename Format>
inline float from_float8(std::uint8_t code) {
  std::uint32_t halves;
  if constexpr (Format::kMantissa == 3) {
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<std::uint16_t>(code)));
  } else {
    asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(halves) : "h"(static_cast<std::uint16_t>(code)));
  }
  return to_float(Half{static_cast<std::uint16_t>(halves)});
}

#else

// Rounds to nearest, ties to even; values that are too large become the largest, and NaN stays NaN.
template <typename Format>
inline std::uint8_t to_float8(float value) {
  constexpr int kShift = 23 - Format::kMantissa;
  constexpr std::uint32_t kSmallestNormal = static_cast<std::uint32_t>(128 - Format::kBias) << 23;
  // adding 2^(23 + the exponent of the last place of a subnormal) rounds to that place
  constexpr std::uint32_t kMagic = static_cast<std::uint32_t>(127 + 24 - Format::kBias - Format::kMantissa) << 23;
  const std::uint32_t bits = bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t subnormal =
      bit_cast<std::uint32_t>(bit_cast<float>(magnitude) + bit_cast<float>(kMagic)) - kMagic;
  const std::uint32_t rounded = magnitude + (1u << (kShift - 1)) - 1 + ((magnitude >> kShift) & 1u);
  const std::uint32_t normal =
      (rounded >> kShift) - (static_cast<std::uint32_t>(127 - Format::kBias) << Format::kMantissa);
  std::uint32_t code = magnitude < kSmallestNormal ? subnormal : normal;
  code = code > Format::kLargestCode ? Format::kLargestCode : code;
  code = magnitude > 0x7f800000u ? 0x7fu : code;
  return static_cast<std::uint8_t>(code | ((bits >> 24) & 0x80u));
}

template <typename Format>
inline float from_float8(std::uint8_t code) {
  const std::uint32_t magnitude = code & 0x7fu;
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80u) << 24;
  constexpr std::uint32_t kSmallestNormal = static_cast<std::uint32_t>(128 - Format::kBias) << 23;
  const std::uint32_t shifted = magnitude << (23 - Format::kMantissa);
  // no subnormal float, which the processor may be set to flush to zero
  const float subnormal = bit_cast<float>(shifted + kSmallestNormal) - bit_cast<float>(kSmallestNormal);
  const float normal = bit_cast<float>(shifted + kSmallestNormal - (1u << 23));
  const float finite = magnitude < (1u << Format::kMantissa) ? subnormal : normal;
  const std::uint32_t special =
      magnitude == Format::kFirstSpecial && Format::kMantissa == 2 ? 0x7f800000u : 0x7fc00000u;
  return bit_cast<float>((magnitude >= Format::kFirstSpecial ? special : bit_cast<std::uint32_t>(finite)) | sign);
}

#endif

}  // namespace anyaccel
