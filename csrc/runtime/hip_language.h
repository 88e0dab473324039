// The part of HIP's language that the sources use, for clang without ROCm's headers; included before the sources.
// hipRTC has headers of its own, which lack only the shuffle.

#pragma once

#ifndef __HIPCC_RTC__

#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __host__ __attribute__((host))
#define __shared__ __attribute__((shared))
// One argument: with a comma in it, hipRTC would see two.
#define __launch_bounds__(threads) __attribute__((amdgpu_flat_work_group_size(1, threads)))

using size_t = decltype(sizeof(0));

// Functions without an attribute are for host and device, like NVRTC's -default-device: the sources have no attributes.
#pragma clang force_cuda_host_device begin

#include "hip_math.h"

inline void* memcpy(void* to, const void* from, size_t bytes) { return __builtin_memcpy(to, from, bytes); }

inline float sqrt(float x) { return __builtin_sqrtf(x); }
inline double sqrt(double x) { return __builtin_sqrt(x); }
inline double exp(double x) { return anyaccel::own::exp(x); }
inline double erf(double x) { return anyaccel::own::erf(x); }
inline float expm1(float x) { return anyaccel::own::expm1(x); }
inline double fmax(double x, double y) { return __builtin_fmax(x, y); }

#pragma clang force_cuda_host_device end

__host__ double pow(double, double);  // for constants that the host computes

// `threadIdx.x` and similar members: each reads a register or a hidden argument of the kernel.
namespace anyaccel::index {

struct Thread {
  __device__ unsigned get() const { return __builtin_amdgcn_workitem_id_x(); }
  __declspec(property(get = get)) unsigned x;
};
struct Block {
  __device__ unsigned get() const { return __builtin_amdgcn_workgroup_id_x(); }
  __declspec(property(get = get)) unsigned x;
};
struct BlockSize {
  __device__ unsigned get() const { return __builtin_amdgcn_workgroup_size_x(); }
  __declspec(property(get = get)) unsigned x;
};
struct GridSize {  // in blocks: the first of the hidden arguments since code object version 5
  __device__ unsigned get() const {
    using Constant = const __attribute__((address_space(4))) unsigned;
    return *(Constant*)__builtin_amdgcn_implicitarg_ptr();  // no other cast makes it const
  }
  __declspec(property(get = get)) unsigned x;
};

}  // namespace anyaccel::index

extern const __device__ __attribute__((weak)) anyaccel::index::Thread threadIdx;
extern const __device__ __attribute__((weak)) anyaccel::index::Block blockIdx;
extern const __device__ __attribute__((weak)) anyaccel::index::BlockSize blockDim;
extern const __device__ __attribute__((weak)) anyaccel::index::GridSize gridDim;

__device__ inline void __syncthreads() {
  __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
  __builtin_amdgcn_s_barrier();
  __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}

__device__ inline int atomicOr(int* address, int bits) {
  return __hip_atomic_fetch_or(address, bits, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
}

#endif

// All lanes of the wave take part, whatever the mask says.
template <typename Value>
__device__ inline Value anyaccel_shfl_xor_sync(unsigned long long, Value value, int offset) {
  static_assert(sizeof(Value) % sizeof(int) == 0);
  const int lane = __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0u));
  int words[sizeof(Value) / sizeof(int)];
  __builtin_memcpy(words, &value, sizeof(value));
  for (int& word : words) {
    word = __builtin_amdgcn_ds_bpermute((lane ^ offset) * static_cast<int>(sizeof(int)), word);
  }
  __builtin_memcpy(&value, words, sizeof(value));
  return value;
}

// A macro, as hipRTC's function of this name depends on its release.
#define __shfl_xor_sync anyaccel_shfl_xor_sync
