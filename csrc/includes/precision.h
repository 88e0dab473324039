// bfloat16 and float16 as bits, and conversions to and from float.
//
// No torch, CPU-vendor or device header: the same code serves the CPU, CUDA and SYCL. CPU compilers vectorise
// these loops. float16 uses the compiler's own type where its conversions are vectorised, and integers elsewhere.
// NVRTC has no such type without CUDA's headers, so the instructions are written here.

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
// An instruction on gfx950. Elsewhere clang makes the integers below of it, but after its optimizer, which then takes
// less time.
#elif defined(__AMDGCN__)
inline void store(float value, BFloat16& target) { target.bits = bit_cast<std::uint16_t>(static_cast<__bf16>(value)); }
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

// Compilers whose type for float16 is vectorised. GCC's is with AVX512-FP16 only, and without F16C an x86 CPU has no
// conversions, only a function call per element. Device code for AMD and Intel GPUs also sees the host's macros.
#elif defined(__ARM_FP16_FORMAT_IEEE) || defined(__AVX512FP16__) || defined(__AMDGCN__) || \
    (defined(__clang__) && defined(__FLT16_MANT_DIG__) &&                                  \
     (defined(__F16C__) || defined(__SYCL_DEVICE_ONLY__) || !defined(__x86_64__)))

#if defined(__ARM_FP16_FORMAT_IEEE)
using NativeHalf = __fp16;  // g++ for Arm has no _Float16 before version 13
#else
using NativeHalf = _Float16;
#endif

inline float to_float(Half value) { return static_cast<float>(bit_cast<NativeHalf>(value.bits)); }

inline void store(float value, Half& target) { target.bits = bit_cast<std::uint16_t>(static_cast<NativeHalf>(value)); }

#else

// A choice without a branch: GCC turns several `?:` into jumps, and then vectorises no loop around them.
inline std::uint32_t choose(bool condition, std::uint32_t yes, std::uint32_t no) {
  return no ^ ((yes ^ no) & (0u - static_cast<std::uint32_t>(condition)));
}

// Every half is a float. Nothing here is a subnormal float, which the processor may be set to flush to zero.
inline float to_float(Half value) {
  const std::uint32_t sign = (value.bits & 0x8000u) << 16;
  const std::uint32_t magnitude = (value.bits & 0x7fffu) << 13;
  const std::uint32_t subnormal = bit_cast<std::uint32_t>(bit_cast<float>(magnitude + (113u << 23)) - 0x1p-14f);
  const std::uint32_t bias = choose(magnitude < (31u << 23), 112u << 23, 224u << 23);
  return bit_cast<float>(choose(magnitude < (1u << 23), subnormal, magnitude + bias) | sign);
}

// Rounds to nearest, ties to even; subnormal halves by the float unit, as 0.5 has its last place at 2^-24.
inline void store(float value, Half& target) {
  const std::uint32_t bits = bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  const std::uint32_t normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const std::uint32_t subnormal = bit_cast<std::uint32_t>(bit_cast<float>(magnitude) + 0.5f) - (126u << 23);
  const std::uint32_t not_finite = choose(magnitude > 0x7f800000u, 0x7e00u, 0x7c00u);
  const std::uint32_t finite = choose(magnitude < (113u << 23), subnormal, normal);
  target.bits = static_cast<std::uint16_t>(choose(magnitude < 0x477ff000u, finite, not_finite) | sign);
}

#endif

// Two adjacent 16-bit numbers, by their 32 bits, which one instruction converts on CUDA where single ones take three.
struct FloatPair {
  float first;
  float second;
};

inline FloatPair to_floats(std::uint32_t bits, BFloat16) {
  return {bit_cast<float>(bits << 16), bit_cast<float>(bits & 0xffff0000u)};
}

inline FloatPair to_floats(std::uint32_t bits, Half) {
  return {to_float(Half{static_cast<std::uint16_t>(bits)}), to_float(Half{static_cast<std::uint16_t>(bits >> 16)})};
}

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
inline std::uint32_t bits_of(FloatPair pair, BFloat16) {
  std::uint32_t bits;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(pair.second), "f"(pair.first));
  return bits;
}

inline std::uint32_t bits_of(FloatPair pair, Half) {
  std::uint32_t bits;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(pair.second), "f"(pair.first));
  return bits;
}
#else
template <typename T>
inline std::uint32_t bits_of(FloatPair pair, T) {
  T first;
  T second;
  store(pair.first, first);
  store(pair.second, second);
  return first.bits | static_cast<std::uint32_t>(second.bits) << 16;
}
#endif

}  // namespace anyaccel
