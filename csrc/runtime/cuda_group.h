// A kernel's view of a CUDA device: a block of threads; see cpu_group.h for what each member means.

#pragma once

#include <cstdint>

#include "elementary.h"
#include "tensor_table.h"
#include "tile.h"

namespace anyaccel {

struct CudaGroup {
  std::int64_t index = blockIdx.x;
  std::int64_t count = gridDim.x;

  template <typename Body>
  void rows(std::int64_t count, const Body& body) const {
    for (std::int64_t row = blockIdx.x; row < count; row += gridDim.x) {
      body(row);
    }
  }

  template <typename Body>
  void elements(std::int64_t count, const Body& body) const {
    const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
#pragma unroll 4
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
      body(i);
    }
  }

  template <typename Table, typename Body>
  void chunks(const Table& table, const Body& body) const {
    for (std::int64_t chunk = blockIdx.x; chunk < table.chunks(); chunk += gridDim.x) {
      body(table.chunk(chunk));
    }
  }

  template <typename... T, typename Table, typename BodyOf>
  void tensors(const Table& table, const BodyOf& body_of) const {
    chunks(table, [&](const Chunk& chunk) {
      const auto body = body_of(chunk.number);
      tiles<T...>(chunk.elements, table.is_aligned(chunk.number),
                  [&](auto range) { body(decltype(range){chunk.begin + range.first}); });
    });
  }

  template <typename Body>
  void each(std::int64_t count, const Body& body) const {
#pragma unroll 4
    for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) {
      body(i);
    }
  }

  // In tiles where they are aligned, and one by one what is left.
  template <typename... T, typename Body>
  void tiles(std::int64_t count, bool is_aligned, const Body& body) const {
    constexpr std::int64_t kElements = kTileOf<T...>;
    const std::int64_t in_tiles = is_aligned ? count / kElements * kElements : 0;
    for (std::int64_t i = threadIdx.x * kElements; i < in_tiles; i += blockDim.x * kElements) {
      body(TileRange<kTileOf<T...>>{i});
    }
    each(count - in_tiles, [&](std::int64_t i) { body(TileRange<1>{in_tiles + i}); });
  }

  template <typename Value, typename Body>
  Value sum(std::int64_t count, const Body& body) const {
    Value total = 0;
#pragma unroll 4
    for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) {
      total += body(i);
    }
    return combined(total, Value(0), [](Value left, Value right) { return left + right; });
  }

  template <typename Value, typename... T, typename Body>
  Value sum_tiles(std::int64_t count, bool is_aligned, const Body& body) const {
    Value total = 0;
    tiles<T...>(count, is_aligned, [&](auto range) { total += body(range); });
    return combined(total, Value(0), [](Value left, Value right) { return left + right; });
  }

  template <typename Value, typename Body>
  void sums(std::int64_t count, Value& first, Value& second, const Body& body) const {
    Value one = 0;
    Value two = 0;
#pragma unroll 4
    for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) {
      body(i, one, two);
    }
    const auto add = [](Value left, Value right) { return left + right; };
    first = combined(one, Value(0), add);
    second = combined(two, Value(0), add);
  }

  template <typename Value, typename Body>
  Value max(std::int64_t count, const Body& body) const {
    const Value lowest = -infinity<Value>();
    // Keeps `left` where `right` is NaN, so that none gets in: lanes that met one in another order would disagree.
    const auto larger = [](Value left, Value right) { return right > left ? right : left; };
    Value largest = lowest;
#pragma unroll 4
    for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) {
      largest = larger(largest, body(i));
    }
    return combined(largest, lowest, larger);
  }

  bool is_first() const { return threadIdx.x == 0; }

  void wait() const { __syncthreads(); }

  void raise(std::int32_t* flag) const { atomicOr(flag, 1); }

 private:
  // One value of all threads' in every thread: by shuffles in a warp, by shared memory among warps.
  template <typename Value, typename Combine>
  Value combined(Value value, Value neutral, const Combine& combine) const {
    __shared__ Value of_warps[32];
    for (int offset = 16; offset > 0; offset /= 2) {
      value = combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
    }
    const int warps = (blockDim.x + 31) / 32;
    if (warps == 1) {
      return value;
    }
    __syncthreads();  // an earlier result may still be read
    if (threadIdx.x % 32 == 0) {
      of_warps[threadIdx.x / 32] = value;
    }
    __syncthreads();
    value = threadIdx.x % 32 < warps ? of_warps[threadIdx.x % 32] : neutral;
    for (int offset = 16; offset > 0; offset /= 2) {
      value = combine(value, __shfl_xor_sync(0xffffffffu, value, offset));
    }
    return value;
  }
};

// Every kernel is an instance of this one, named by its type. A kernel is its own argument: a struct of pointers and
// sizes with a call operator. Its registers are kept to what blocks of 512 threads, the largest that are launched,
// allow.
template <typename Kernel>
__global__ __launch_bounds__(512) void run(const __grid_constant__ Kernel kernel) {
  kernel(CudaGroup{});
}

}  // namespace anyaccel
