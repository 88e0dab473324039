// Elementary functions that CPU compilers can vectorise, and that need no library on any device.

#pragma once

#include <cmath>
#include <cstdint>

#include "precision.h"

namespace anyaccel {

template <typename C>
inline C infinity() {
  return static_cast<C>(bit_cast<float>(std::uint32_t{0x7f800000u}));
}

template <typename C>
inline C not_a_number() {
  return static_cast<C>(bit_cast<float>(std::uint32_t{0x7fc00000u}));
}

#if defined(__SYCL_DEVICE_ONLY__)
inline float square_root(float x) { return __spirv_ocl_sqrt(x); }
inline double square_root(double x) { return __spirv_ocl_sqrt(x); }
inline double exponential(double x) { return __spirv_ocl_exp(x); }
inline double error_function(double x) { return __spirv_ocl_erf(x); }
inline float exponential_minus_one(float x) { return __spirv_ocl_expm1(x); }
#else
#if defined(__CUDA_ARCH__)
// Within 1 unit in the last place (PTX ISA, sqrt); the exact version calls a subroutine, which costs a loop registers.
inline float square_root(float x) {
  float result;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
#else
inline float square_root(float x) { return std::sqrt(x); }
#endif
inline double square_root(double x) { return std::sqrt(x); }
inline double exponential(double x) { return std::exp(x); }
inline double error_function(double x) { return std::erf(x); }
inline float exponential_minus_one(float x) { return std::expm1(x); }
#endif

#if defined(__CUDA_ARCH__)
// e^x within 3 units in the last place, and 0 where it is subnormal: the hardware's 2^p for p = x log2(e), times 1 + r
// for what p lost in rounding. A third of the instructions of the polynomial below, which made kernels for 16-bit
// numbers slower than memory.
inline float exponential(float x) {
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  const float p = x * 1.44269504f;
  const float lost = fmaf(x, 1.92596299e-8f, fmaf(x, 1.44269504f, -p));
  float power;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(p));
  return power * fmaf(lost, 0.693147181f, 1.0f);
}
#else
// e^x to 1 unit in the last place: x = n ln 2 + r, a polynomial of r, and two factors for 2^n so that neither
// overflows. Infinite where float would be, 0 below -104, and NaN for NaN. Always inlined: a loop with a call is not
// vectorised, and large kernels exceed the compiler's inlining limits.
[[gnu::always_inline]] inline float exponential(float x) {
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  const float shifted = x * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: rounds to an integer, held in the low bits
  const float n = shifted - 12582912.0f;
  const std::int32_t exponent = bit_cast<std::int32_t>(shifted) - 0x4b400000;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.98756912e-4f;  // Cephes, expf.c
  p = p * r + 1.39819994e-3f;
  p = p * r + 8.33345191e-3f;
  p = p * r + 4.16657962e-2f;
  p = p * r + 1.66666657e-1f;
  p = p * r + 5.00000000e-1f;
  p = p * r * r + r + 1.0f;
  const std::int32_t half = exponent >> 1;
  return p * bit_cast<float>((half + 127) << 23) * bit_cast<float>((exponent - half + 127) << 23);
}
#endif

// x / y, on CUDA within 2 units in the last place (PTX ISA, div.full) and without a subroutine.
#if defined(__CUDA_ARCH__)
inline float quotient(float x, float y) {
  float result;
  asm("div.full.f32 %0, %1, %2;" : "=f"(result) : "f"(x), "f"(y));
  return result;
}
#else
inline float quotient(float x, float y) { return x / y; }
#endif

// 1 / x for x of 1 or more. CUDA's division calls a subroutine for huge x, which costs a loop registers; its
// approximation is within 1 unit in the last place (PTX ISA, rcp), and only gives 0 where the result is subnormal.
#if defined(__CUDA_ARCH__)
inline float reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}
#else
inline float reciprocal(float x) { return 1.0f / x; }
#endif
inline double reciprocal(double x) { return 1.0 / x; }

// The larger of two numbers; `left` where `right` is NaN.
template <typename C>
inline C larger(C left, C right) {
  return right > left ? right : left;
}

// The smaller of two numbers; `left` where `right` is NaN.
template <typename C>
inline C smaller(C left, C right) {
  return right < left ? right : left;
}

template <typename C>
inline C magnitude_of(C value) {
  return value < 0 ? -value : value;
}

#if defined(__CUDA_ARCH__)  // each is one instruction, or none
inline float larger(float left, float right) { return fmaxf(left, right); }
inline float smaller(float left, float right) { return fminf(left, right); }
inline float magnitude_of(float value) { return fabsf(value); }
#endif

template <typename C>
inline C logistic(C x) {
  return reciprocal(C(1) + exponential(-x));
}

template <typename C>
inline C hyperbolic_tangent(C x) {
  return C(2) * logistic(C(2) * x) - C(1);
}

}  // namespace anyaccel
