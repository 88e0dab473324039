// bfloat16 and float16 as bits, and conversions to and from float.
//
// No torch, CPU-vendor or device header: the same code serves the CPU, CUDA and SYCL. CPU compilers vectorise
// these loops; float16 uses the compiler's own type if it has one, which compiles to the hardware's conversion
// instructions. NVRTC has no such type without CUDA's headers, so the instructions are written here.

#pragma once

#include <cstdint>
#include <cstring>

namespace anyaccel {

struct BFloat16 {
  std::uint16_t bits;
};

struct Half {
  std::uint16_t bits;
};

// The type in which a kernel computes for elements of type T.
template <typename T>
struct ComputeType {
  using type = float;
};

template <>
struct ComputeType<double> {
  using type = double;
};

template <typename T>
using Compute = typename ComputeType<T>::type;

template <typename To, typename From>
inline To bit_cast(From value) {
  static_assert(sizeof(To) == sizeof(From));
  To result;
  std::memcpy(&result, &value, sizeof(To));
  return result;
}

inline float to_float(float value) { return value; }

// float64 is for checking gradients; everything else computes in float.
inline double to_float(double value) { return value; }

inline float to_float(BFloat16 value) { return bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16); }

inline void store(float value, float& target) { target = value; }

inline void store(double value, double& target) { target = value; }

// Rounds to nearest, ties to even; NaN stays NaN (a quiet one), whatever its payload.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
inline void store(float value, BFloat16& target) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(target.bits) : "f"(value)); }
#else
inline void store(float value, BFloat16& target) {
  const std::uint32_t bits = bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
  const std::uint32_t quiet_nan = bits | 0x00400000u;
  target.bits = static_cast<std::uint16_t>((value != value ? quiet_nan : rounded) >> 16);
}
#endif

#if defined(__CUDA_ARCH__)

inline float to_float(Half value) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
}

inline void store(float value, Half& target) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(target.bits) : "f"(value)); }

#elif defined(__ARM_FP16_FORMAT_IEEE) || defined(__FLT16_MANT_DIG__)

#if defined(__ARM_FP16_FORMAT_IEEE)
using NativeHalf = __fp16;  // g++ for Arm has no _Float16 before version 13
#else
using NativeHalf = _Float16;
#endif

inline float to_float(Half value) { return static_cast<float>(bit_cast<NativeHalf>(value.bits)); }

inline void store(float value, Half& target) { target.bits = bit_cast<std::uint16_t>(static_cast<NativeHalf>(value)); }

#else

// Moving the exponent to float's position makes every finite half exact; a multiplication by 2^112 handles subnormals.
inline float to_float(Half value) {
  const std::uint32_t sign = (value.bits & 0x8000u) << 16;
  const std::uint32_t magnitude = (value.bits & 0x7fffu) << 13;
  const bool is_finite = (value.bits & 0x7c00u) != 0x7c00u;
  const float scaled = bit_cast<float>(magnitude) * 0x1p112f;
  return bit_cast<float>((is_finite ? bit_cast<std::uint32_t>(scaled) : magnitude | 0x7f800000u) | sign);
}

// Rounds to nearest, ties to even. Adding 2^(e+13) makes the float unit round at half's last place.
inline void store(float value, Half& target) {
  const std::uint32_t bits = bit_cast<std::uint32_t>(value);
  const std::uint16_t sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  std::uint32_t half = 0;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u;
  } else if (magnitude >= 0x477ff000u) {  // rounds to 65536 or more
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // subnormal: 0.5 has its last place at 2^-24
    half = bit_cast<std::uint32_t>(bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  } else {
    half = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  }
  target.bits = static_cast<std::uint16_t>(half | sign);
}

#endif

}  // namespace anyaccel
