// Kernels that the emulator must reject, and one that it must accept. `x` has `count` floats.

#pragma once

#include <cstdint>

struct Arguments {
  float* x;
  std::int64_t count;
};

struct Correct : Arguments {
  template <typename Group>
  void operator()(const Group& group) const {
    __shared__ float of_warps[32];
    float value = x[threadIdx.x];
    for (int distance = 16; distance > 0; distance /= 2) {
      value += __shfl_down_sync(0xffffffffu, value, distance);
    }
    if (threadIdx.x % 32 == 0) {
      of_warps[threadIdx.x / 32] = value;
    }
    __syncthreads();
    if (group.is_first()) {
      x[blockDim.x + blockIdx.x] = of_warps[0] + of_warps[1];
    }
  }
};

struct BarrierInABranch : Arguments {
  template <typename Group>
  void operator()(const Group&) const {
    if (threadIdx.x < 32) {
      __syncthreads();
    }
  }
};

struct TwoBarriers : Arguments {
  template <typename Group>
  void operator()(const Group&) const {
    if (threadIdx.x < 7) {
      __syncthreads();
    } else {
      __syncthreads();
    }
  }
};

struct ShuffleInABranch : Arguments {
  template <typename Group>
  void operator()(const Group&) const {
    if (threadIdx.x % 2 == 1) {
      x[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
    }
  }
};

struct ShuffleAgainstABarrier : Arguments {
  template <typename Group>
  void operator()(const Group&) const {
    if (threadIdx.x == 3) {
      __syncthreads();
    } else {
      x[threadIdx.x] = __shfl_sync(0xffffffffu, 1.0f, 0);
    }
  }
};

struct RaceInABlock : Arguments {
  template <typename Group>
  void operator()(const Group&) const {
    x[threadIdx.x] = x[(threadIdx.x + 1) % blockDim.x];
  }
};

struct RaceOfBlocks : Arguments {
  template <typename Group>
  void operator()(const Group& group) const {
    if (group.is_first()) {
      x[0] = 1.0f;
    }
  }
};

struct RaceOfSizes : Arguments {
  template <typename Group>
  void operator()(const Group&) const {
    if (threadIdx.x == 0) {
      *reinterpret_cast<double*>(x) = 1.0;
    } else {
      x[threadIdx.x] = 1.0f;
    }
  }
};

struct BehindTheEnd : Arguments {
  template <typename Group>
  void operator()(const Group& group) const {
    if (group.is_first()) {
      x[count] = 1.0f;
    }
  }
};

struct BeforeTheBeginning : Arguments {
  template <typename Group>
  void operator()(const Group& group) const {
    if (group.is_first()) {
      x[0] = x[-1];
    }
  }
};

struct Misaligned : Arguments {
  template <typename Group>
  void operator()(const Group& group) const {
    if (group.is_first()) {
      *reinterpret_cast<double*>(x + 1) = 1.0;
    }
  }
};

struct Uninitialised : Arguments {
  template <typename Group>
  void operator()(const Group&) const {
    __shared__ float values[64];
    if (threadIdx.x != 11) {
      values[threadIdx.x] = 1.0f;
    }
    __syncthreads();
    x[blockIdx.x * blockDim.x + threadIdx.x] = values[threadIdx.x];
  }
};
