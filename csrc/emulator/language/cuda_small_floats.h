// __half and __nv_bfloat16: stored in 2 bytes, computed in float.

#pragma once

#include "../../includes/precision.h"
#include "cuda_math.h"

namespace emulator {

// A number that is not exact, given as the nearest one and on which side of it the exact one is: rounded to odd, so
// that rounding it once more, to at least two digits fewer, rounds the exact number.
template <typename Bits, typename Number>
Number rounded_to_odd(Number nearest, bool is_exact, bool is_beyond_exact) {
  if (is_exact) {
    return nearest;
  }
  return same_bits<Number>(static_cast<Bits>((same_bits<Bits>(nearest) - (is_beyond_exact ? 1 : 0)) | 1));
}

inline float to_odd_float(double value) {
  const float nearest = static_cast<float>(value);
  return rounded_to_odd<unsigned>(nearest, nearest == value || value != value, fabs(double(nearest)) > fabs(value));
}

// x * y + z, whose product is exact, rounded to odd.
inline float fused(float x, float y, float z) {
  const double product = double(x) * y;
  const double sum = product + z;
  const double part = sum - product;
  const double lost = (product - (sum - part)) + (z - part);
  const bool is_exact = lost == 0 || lost != lost;  // NaN: the sum is an infinity or a NaN
  return to_odd_float(rounded_to_odd<unsigned long long>(sum, is_exact, (lost < 0) == (sum > 0)));
}

}  // namespace emulator

#define EMULATOR_SMALL_FLOAT(name, stored)                                                \
  struct name {                                                                           \
    ::anyaccel::stored kept;                                                              \
    name() = default;                                                                     \
    name(float value) { ::anyaccel::store(value, kept); }                                 \
    name(double value) : name(::emulator::to_odd_float(value)) {}                         \
    name(int value) : name(static_cast<double>(value)) {}                                 \
    operator float() const { return ::anyaccel::to_float(kept); }                         \
    name& operator+=(name other) { return *this = name(float(*this) + float(other)); }    \
    name& operator-=(name other) { return *this = name(float(*this) - float(other)); }    \
    name& operator*=(name other) { return *this = name(float(*this) * float(other)); }    \
    name& operator/=(name other) { return *this = name(float(*this) / float(other)); }    \
  };                                                                                      \
  struct alignas(4) name##2 { name x, y; };                                               \
  inline name operator+(name a, name b) { return name(float(a) + float(b)); }             \
  inline name operator-(name a, name b) { return name(float(a) - float(b)); }             \
  inline name operator*(name a, name b) { return name(float(a) * float(b)); }             \
  inline name operator/(name a, name b) { return name(float(a) / float(b)); }             \
  inline name operator-(name a) { return name(-float(a)); }                               \
  inline name __hadd(name a, name b) { return a + b; }                                    \
  inline name __hsub(name a, name b) { return a - b; }                                    \
  inline name __hmul(name a, name b) { return a * b; }                                    \
  inline name __hdiv(name a, name b) { return a / b; }                                    \
  inline name __hneg(name a) { return -a; }                                               \
  inline name __habs(name a) { return name(fabsf(float(a))); }                            \
  inline name __hfma(name a, name b, name c) { return name(::emulator::fused(a, b, c)); } \
  inline name __hmax(name a, name b) { return name(fmaxf(float(a), float(b))); }          \
  inline name __hmin(name a, name b) { return name(fminf(float(a), float(b))); }          \
  inline bool __heq(name a, name b) { return float(a) == float(b); }                      \
  inline bool __hlt(name a, name b) { return float(a) < float(b); }                       \
  inline bool __hgt(name a, name b) { return float(a) > float(b); }                       \
  inline bool __hisnan(name a) { return float(a) != float(a); }                           \
  inline name hexp(name a) { return name(expf(float(a))); }                               \
  inline name hlog(name a) { return name(logf(float(a))); }                               \
  inline name hsqrt(name a) { return name(sqrtf(float(a))); }                             \
  inline name##2 __hadd2(name##2 a, name##2 b) { return {a.x + b.x, a.y + b.y}; }         \
  inline name##2 __hsub2(name##2 a, name##2 b) { return {a.x - b.x, a.y - b.y}; }         \
  inline name##2 __hmul2(name##2 a, name##2 b) { return {a.x * b.x, a.y * b.y}; }         \
  inline name##2 __hfma2(name##2 a, name##2 b, name##2 c) { return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)}; }
