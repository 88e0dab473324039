// The part of CUDA's language that the sources use, for g++; included before them.

#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "block.h"

#define __global__
#define __grid_constant__
#define __launch_bounds__(...)
#define __shared__ static  // blocks run one after another

#define threadIdx (::emulator::thread_index)
#define blockIdx (::emulator::block_index)
#define blockDim (::emulator::block_size)
#define gridDim (::emulator::grid_size)

#define __syncthreads() ::emulator::barrier(EMULATOR_SITE("__syncthreads"))
#define __syncwarp(mask) \
  static_cast<void>(::emulator::exchange(EMULATOR_SITE("__syncwarp"), mask, 0, ::emulator::lane()))
#define __shfl_sync(mask, value, source) ::emulator::shuffled(EMULATOR_SITE("__shfl_sync"), mask, value, (source) % 32)
#define __shfl_xor_sync(mask, value, other) \
  ::emulator::shuffled(EMULATOR_SITE("__shfl_xor_sync"), mask, value, ::emulator::lane() ^ (other))
#define __shfl_down_sync(mask, value, distance)                        \
  ::emulator::shuffled(EMULATOR_SITE("__shfl_down_sync"), mask, value, \
                       ::emulator::lane() + (distance) < 32 ? ::emulator::lane() + (distance) : ::emulator::lane())
#define __shfl_up_sync(mask, value, distance)                        \
  ::emulator::shuffled(EMULATOR_SITE("__shfl_up_sync"), mask, value, \
                       ::emulator::lane() >= (distance) ? ::emulator::lane() - (distance) : ::emulator::lane())

template <typename Value>
inline Value __ldg(const Value* address) {
  return *address;
}

inline int atomicOr(int* address, int bits) { return __atomic_fetch_or(address, bits, __ATOMIC_RELAXED); }

struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
