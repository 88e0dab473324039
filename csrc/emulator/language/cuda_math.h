// CUDA's mathematical functions that C++ lacks. Here, the fast ones are as exact as the others.

#pragma once

#include <type_traits>

template <typename Left, typename Right>
constexpr std::enable_if_t<std::is_arithmetic_v<Left> && std::is_arithmetic_v<Right>, std::common_type_t<Left, Right>>
min(Left left, Right right) {
  using Both = std::common_type_t<Left, Right>;
  const bool is_right =
      static_cast<Both>(right) < static_cast<Both>(left) || left != left;  // of a NaN and a number, the number
  return is_right ? static_cast<Both>(right) : static_cast<Both>(left);
}

template <typename Left, typename Right>
constexpr std::enable_if_t<std::is_arithmetic_v<Left> && std::is_arithmetic_v<Right>, std::common_type_t<Left, Right>>
max(Left left, Right right) {
  using Both = std::common_type_t<Left, Right>;
  const bool is_right = static_cast<Both>(left) < static_cast<Both>(right) || left != left;
  return is_right ? static_cast<Both>(right) : static_cast<Both>(left);
}

inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline double rsqrt(double x) { return 1.0 / sqrt(x); }
inline float __expf(float x) { return expf(x); }
inline float __exp10f(float x) { return powf(10.0f, x); }
inline float __logf(float x) { return logf(x); }
inline float __log2f(float x) { return log2f(x); }
inline float __log10f(float x) { return log10f(x); }
inline float __sinf(float x) { return sinf(x); }
inline float __cosf(float x) { return cosf(x); }
inline float __tanf(float x) { return tanf(x); }
inline float __powf(float x, float y) { return powf(x, y); }
inline float __fdividef(float x, float y) { return x / y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fsqrt_rn(float x) { return sqrtf(x); }
inline float __frsqrt_rn(float x) { return 1.0f / sqrtf(x); }
inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
inline float __fadd_rn(float x, float y) { return x + y; }
inline float __fsub_rn(float x, float y) { return x - y; }
inline float __fmul_rn(float x, float y) { return x * y; }
inline double __dadd_rn(double x, double y) { return x + y; }
inline double __dmul_rn(double x, double y) { return x * y; }
inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }
inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }

inline int __popc(unsigned x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll(static_cast<unsigned long long>(x)); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned __brev(unsigned x) {
  unsigned result = 0;
  for (int bit = 0; bit < 32; ++bit) {
    result |= (x >> bit & 1u) << (31 - bit);
  }
  return result;
}
inline int __mulhi(int x, int y) { return static_cast<int>(static_cast<long long>(x) * y >> 32); }
inline unsigned __umulhi(unsigned x, unsigned y) {
  return static_cast<unsigned>(static_cast<unsigned long long>(x) * y >> 32);
}
inline unsigned __umul24(unsigned x, unsigned y) { return (x & 0xffffffu) * (y & 0xffffffu); }
inline int __mul24(int x, int y) {
  const auto low = [](int value) {
    return static_cast<unsigned>(static_cast<int>(static_cast<unsigned>(value) << 8) >> 8);
  };
  return static_cast<int>(low(x) * low(y));
}

namespace emulator {

template <typename To, typename From>
To same_bits(From value) {
  static_assert(sizeof(To) == sizeof(From), "the types must have the same size");
  To result;
  __builtin_memcpy(&result, &value, sizeof(To));
  return result;
}

// A whole number as an integer; NaN gives 0, and what is too large or too small the largest or the smallest integer.
template <typename To>
To saturated(float whole) {
  constexpr bool is_signed = static_cast<To>(-1) < To(0);
  constexpr float end = is_signed ? 0x1p31f : 0x1p32f;
  if (whole != whole) {
    return 0;
  }
  if (whole >= end) {
    return static_cast<To>(is_signed ? 0x7fffffffu : 0xffffffffu);
  }
  const float least = is_signed ? -end : 0.0f;
  return static_cast<To>(whole < least ? least : whole);
}

}  // namespace emulator

inline int __float_as_int(float x) { return ::emulator::same_bits<int>(x); }
inline unsigned __float_as_uint(float x) { return ::emulator::same_bits<unsigned>(x); }
inline float __int_as_float(int x) { return ::emulator::same_bits<float>(x); }
inline float __uint_as_float(unsigned x) { return ::emulator::same_bits<float>(x); }
inline long long __double_as_longlong(double x) { return ::emulator::same_bits<long long>(x); }
inline double __longlong_as_double(long long x) { return ::emulator::same_bits<double>(x); }

inline int __float2int_rn(float x) { return ::emulator::saturated<int>(nearbyintf(x)); }
inline int __float2int_rz(float x) { return ::emulator::saturated<int>(truncf(x)); }
inline int __float2int_rd(float x) { return ::emulator::saturated<int>(floorf(x)); }
inline int __float2int_ru(float x) { return ::emulator::saturated<int>(ceilf(x)); }
inline unsigned __float2uint_rn(float x) { return ::emulator::saturated<unsigned>(nearbyintf(x)); }
inline float __int2float_rn(int x) { return static_cast<float>(x); }
inline float __uint2float_rn(unsigned x) { return static_cast<float>(x); }
