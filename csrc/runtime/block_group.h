// A kernel's view of a GPU whose threads run in lockstep, `kLanes` at a time in a warp: a block of threads.
// cpu_group.h describes each member. CUDA's group (cuda_group.h) and HIP's (hip_group.h) are instances of it; functions
// such as __syncthreads exist in both languages.

#pragma once

#include <cstdint>

#include "elementary.h"
#include "row.h"
#include "tensor_table.h"
#include "tile.h"

namespace anyaccel {

template <typename Of>
inline constexpr bool is_as_it_is = false;

template <>
inline constexpr bool is_as_it_is<AsTheyAre> = true;

template <int kLanes>
struct BlockGroup {
  template <typename... T>
  static constexpr std::int64_t kTile = kTileOf<T...>;

  // Elements of a row that a thread keeps, in 16 registers: a block of 512 keeps an unchanged row of 32 KiB, or one of
  // 8192 computed values. With twice as many registers, an SM of an H200 held too few threads to be kept busy.
  template <typename Of, typename T>
  static constexpr int kKept = is_as_it_is<Of> ? 64 / static_cast<int>(sizeof(T)) : 16;

  template <typename Of, typename T, typename... Beside>
  class RowInRegisters;

  // Elements of totals that a thread keeps in registers: a block of 1024 keeps one kind for 16384 columns.
  static constexpr int kKeptTotals = 16;

  template <int Kinds, typename T, typename... Beside>
  class TotalsInRegisters;

  // Numbers that a thread keeps in registers: a warp keeps 128, a block of 512 2048.
  static constexpr int kKeptValues = 4;

  template <typename C>
  class ValuesInRegisters;

  std::int64_t index = first_group();
  std::int64_t count = groups();

  template <typename Body>
  void rows(std::int64_t rows, const Body& body) const {
    for (std::int64_t row = index; row < rows; row += count) {
      body(row);
    }
  }

  template <typename... T>
  void fetch_next(std::int64_t row, std::int64_t rows, std::int64_t columns, const T*... matrices) const {
    if (row + count < rows) {
      (fetch(matrices, (row + count) * columns, columns), ...);
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

  // Processes a strip of columns at a time; the threads share its rows and combine their sums in shared memory.
  template <typename Value, typename Body>
  void column_sums(const Value* values, std::int64_t count, std::int64_t columns, std::int64_t stride,
                   const Body& body) const {
    constexpr int kWidth = kTileOf<Value>;
    __shared__ Value sums[kMostThreads * kWidth / kStrip][kStrip];
    const bool is_aligned = are_aligned(values) && keep_aligned<Value>(columns, stride);
    rows((columns + kStrip - 1) / kStrip, [&](std::int64_t strip) {
      const std::int64_t first = strip * kStrip;
      const int slices = is_aligned ? add_rows<kWidth>(values + first, count, columns - first, stride, sums)
                                    : add_rows<1>(values + first, count, columns - first, stride, sums);
      __syncthreads();
      if (threadIdx.x < kStrip && first + threadIdx.x < columns) {
        Value total = 0;
        for (int slice = 0; slice < slices; ++slice) {
          total += sums[slice][threadIdx.x];
        }
        body(first + threadIdx.x, total);
      }
      __syncthreads();
    });
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

  // The aligned part in tiles, the rest one element at a time.
  template <typename... T, typename Body>
  void tiles(std::int64_t count, bool is_aligned, const Body& body) const {
    constexpr std::int64_t kElements = kTileOf<T...>;
    const std::int64_t in_tiles = is_aligned ? count / kElements * kElements : 0;
    for (std::int64_t i = threadIdx.x * kElements; i < in_tiles; i += blockDim.x * kElements) {
      body(TileRange<kTileOf<T...>>{i});
    }
    each(count - in_tiles, [&](std::int64_t i) { body(TileRange<1>{in_tiles + i}); });
  }

  template <typename... T, typename Body>
  void strips(std::int64_t count, bool is_aligned, const Body& body) const {
    tiles<T...>(count, is_aligned, body);
  }

  // In tiles if the rows are aligned; a row then has a whole number of them.
  template <typename... T, typename BodyOf>
  void tiles_of_rows(std::int64_t rows, std::int64_t columns, bool is_aligned, const BodyOf& body_of) const {
    if (is_aligned) {
      share_rows<kTileOf<T...>>(rows, columns / kTile<T...>, body_of);
    } else {
      share_rows<1>(rows, columns, body_of);
    }
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

  template <typename... T, typename Value, typename Body>
  void sums(std::int64_t count, bool is_aligned, Value& first, Value& second, const Body& body) const {
    Value one = 0;
    Value two = 0;
    tiles<T...>(count, is_aligned, [&](auto range) { body(range, one, two); });
    const auto add = [](Value left, Value right) { return left + right; };
    first = combined(one, Value(0), add);
    second = combined(two, Value(0), add);
  }

  template <typename Value, typename Body>
  Value max(std::int64_t count, const Body& body) const {
    Value largest = -infinity<Value>();
#pragma unroll 4
    for (std::int64_t i = threadIdx.x; i < count; i += blockDim.x) {
      largest = larger(largest, body(i));
    }
    return largest_of_all(largest);
  }

  template <typename Value, typename... T, typename Body>
  Value max_tiles(std::int64_t count, bool is_aligned, const Body& body) const {
    Value largest = -infinity<Value>();
    tiles<T...>(count, is_aligned, [&](auto range) { largest = larger(largest, body(range)); });
    return largest_of_all(largest);
  }

  template <typename T, typename... Beside, typename Of, typename Body>
  void with_row(std::int64_t count, bool is_aligned, const Of& of, const Body& body) const {
    if (is_aligned && count % kTile<T, Beside...> == 0 && count <= std::int64_t{blockDim.x} * kKept<Of, T>) {
      RowInRegisters<Of, T, Beside...> row(*this, static_cast<int>(count), of);
      body(row);
    } else {
      RowInMemory<BlockGroup, Of, T, Beside...> row(*this, count, is_aligned, of);
      body(row);
    }
  }

  template <typename T, typename Body>
  void with_two_rows(std::int64_t count, bool is_aligned, const Body& body) const {
    if (is_aligned && count % kTile<T> == 0 && count <= std::int64_t{blockDim.x} * kKept<AsTheyAre, T>) {
      const AsTheyAre of;
      RowInRegisters<AsTheyAre, T> left(*this, static_cast<int>(count), of);
      RowInRegisters<AsTheyAre, T> right(*this, static_cast<int>(count), of);
      body(left, right);
    } else {
      const AsTheyAre of;
      RowInMemory<BlockGroup, AsTheyAre, T> left(*this, count, is_aligned, of);
      RowInMemory<BlockGroup, AsTheyAre, T> right(*this, count, is_aligned, of);
      body(left, right);
    }
  }

  template <typename C, typename Body>
  void with_values(std::int64_t count, C* place, const Body& body) const {
    if (count <= std::int64_t{blockDim.x} * kKeptValues) {
      body(ValuesInRegisters<C>(*this, static_cast<int>(count), place));
    } else {
      body(ValuesInMemory<BlockGroup, C>(*this, count, place));
    }
  }

  template <int Kinds, typename T, typename... Beside, typename Body>
  void with_totals(std::int64_t count, bool is_aligned, Compute<T>* place, const Body& body) const {
    if (is_aligned && count % kTile<T, Beside...> == 0 && count <= std::int64_t{blockDim.x} * (kKeptTotals / Kinds)) {
      TotalsInRegisters<Kinds, T, Beside...> totals(static_cast<int>(count));
      body(totals);
      totals.write(place);
    } else {
      body(TotalsInMemory<BlockGroup, Kinds, T, Beside...>(*this, count, is_aligned, place));
    }
  }

  bool is_first() const { return threadIdx.x == 0; }

  void wait() const {
#if !defined(__HIP__)
    if (blockDim.x == kLanes) {
      __syncwarp();
      return;
    }
#endif
    __syncthreads();
  }

  void raise(std::int32_t* flag) const { atomicOr(flag, 1); }

 private:
  static constexpr int kMostThreads = 512;
  static constexpr int kStrip = 32;  // columns
  static constexpr int kMostWarps = 32;
  static constexpr std::uint64_t kAllLanes = ~std::uint64_t{0} >> (64 - kLanes);

  // A group is a block, or, if its threads are a warp, a row of threads of a block (Shape::groups_of_a_block). There
  // are fewer than 2^32.
#if defined(__HIP__)
  static std::int64_t first_group() { return blockIdx.x; }
  static std::int64_t groups() { return gridDim.x; }
#else
  static std::int64_t first_group() {
    // The same for all lanes; the shuffle tells the compiler, which then keeps a row's addresses once a warp.
    return blockIdx.x * blockDim.y + __shfl_sync(kAllLanes, threadIdx.y, 0);
  }
  static std::int64_t groups() { return gridDim.x * blockDim.y; }
#endif

  // One request for each line of the cache.
  template <typename T>
  static void fetch(const T* matrix, std::int64_t first, std::int64_t count) {
#if defined(__CUDA_ARCH__)
    constexpr std::int64_t kLine = 128 / sizeof(T);
    for (std::int64_t i = threadIdx.x * kLine; matrix != nullptr && i < count; i += blockDim.x * kLine) {
      asm volatile("prefetch.global.L2 [%0];" : : "l"(matrix + first + i));
    }
#endif
  }

  // Each slice of the block's threads adds up every n-th row of a strip; returns the number n of slices.
  template <int Width, typename Value>
  static int add_rows(const Value* values, std::int64_t count, std::int64_t columns, std::int64_t stride,
                      Value (*sums)[kStrip]) {
    constexpr int kThreads = kStrip / Width;  // of a row
    const int slices = static_cast<int>(blockDim.x) / kThreads;
    const int slice = static_cast<int>(threadIdx.x) / kThreads;
    const int column = static_cast<int>(threadIdx.x) % kThreads * Width;
    Tile<Value, Width> total{};
    if (column < columns) {
#pragma unroll 4
      for (std::int64_t row = slice; row < count; row += slices) {
        const auto tile = load(values + row * stride, TileRange<Width>{column});
        for (int i = 0; i < Width; ++i) {
          total[i] += tile[i];
        }
      }
    }
    for (int i = 0; i < Width; ++i) {
      sums[slice][column + i] = total[i];
    }
    return slices;
  }

  // Distributes the tiles of rows, `tiles` per row, over the block's threads.
  template <int Count, typename BodyOf>
  void share_rows(std::int64_t rows, std::int64_t tiles, const BodyOf& body_of) const {
    for (std::int64_t i = threadIdx.x; i < rows * tiles; i += blockDim.x) {
      // in 32 bits: a 64-bit division calls a subroutine
      const std::int64_t row = rows == 1 ? 0 : static_cast<std::uint32_t>(i) / static_cast<std::uint32_t>(tiles);
      body_of(row)(TileRange<Count>{(i - row * tiles) * Count});
    }
  }

  template <typename Value>
  Value largest_of_all(Value value) const {  // without NaN: lanes that met it in another order would disagree
    return combined(value, -infinity<Value>(), [](Value left, Value right) { return larger(left, right); });
  }

  // Combines one value per thread, and returns the result to all: by shuffles in a warp, by shared memory among warps.
  template <typename Value, typename Combine>
  Value combined(Value value, Value neutral, const Combine& combine) const {
    __shared__ Value of_warps[kMostWarps];
    for (int offset = kLanes / 2; offset > 0; offset /= 2) {
      value = combine(value, __shfl_xor_sync(kAllLanes, value, offset));
    }
    const int warps = (blockDim.x + kLanes - 1) / kLanes;
    if (warps == 1) {
      return value;
    }
    __syncthreads();  // an earlier result may still be read
    if (threadIdx.x % kLanes == 0) {
      of_warps[threadIdx.x / kLanes] = value;
    }
    __syncthreads();
    value = threadIdx.x % kLanes < warps ? of_warps[threadIdx.x % kLanes] : neutral;
    for (int offset = kLanes / 2; offset > 0; offset /= 2) {
      value = combine(value, __shfl_xor_sync(kAllLanes, value, offset));
    }
    return value;
  }
};

}  // namespace anyaccel

#include "block_row.h"  // block_row.h needs the group
