// csrc/runtime/cuda_group.h on the host: the threads of a block run one after another, which is valid for
// kernels without barriers. Runs the activations and the dense layer in tiles, and compares them with the CPU's
// group.

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

struct Dim {
  unsigned x = 0;
  unsigned y = 0;
};
static Dim threadIdx, blockIdx, blockDim{1, 1}, gridDim{1, 1};
#define __global__
#define __shared__ static
#define __grid_constant__
#define __launch_bounds__(...)
static void __syncthreads() { std::abort(); }  // threads that run one after another cannot meet
static void __syncwarp() { std::abort(); }
static unsigned __shfl_sync(unsigned long long, unsigned value, int) { return value; }  // of a number that all share
template <typename Value>
static Value __shfl_xor_sync(unsigned long long, Value, int) {
  std::abort();
}
static void atomicOr(int* flag, int bits) { *flag |= bits; }

#include "activations.h"
#include "cpu_group.h"
#include "cuda_group.h"
#include "dense.h"

using namespace anyaccel;

namespace {

template <typename Kernel>
void on_blocks(const Kernel& kernel, unsigned blocks, unsigned threads) {
  gridDim.x = blocks;
  blockDim.x = threads;
  for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x) {
    for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) {
      kernel(CudaGroup{});
    }
  }
}

// Elements at a 16-byte aligned address, or a number of elements past one, with a guard on both sides.
template <typename T>
class Row {
 public:
  Row(std::int64_t count, int shift, int seed) : memory_(count + 48), begin_(memory_.data() + 16) {
    while (reinterpret_cast<std::uintptr_t>(begin_) % kTileBytes != 0) {
      ++begin_;
    }
    begin_ += shift;
    std::srand(seed);
    for (T& one : memory_) {
      store(static_cast<float>(std::rand() % 4000 - 2000) / 500.0f, one);
    }
    before_ = memory_;
    count_ = count;
  }
  T* data() { return begin_; }
  bool is_intact_outside() const {
    for (std::size_t i = 0; i < memory_.size(); ++i) {
      const bool is_inside = &memory_[i] >= begin_ && &memory_[i] < begin_ + count_;
      if (!is_inside && to_float(memory_[i]) != to_float(before_[i])) {
        return false;
      }
    }
    return true;
  }

 private:
  std::vector<T> memory_;
  std::vector<T> before_;
  T* begin_;
  std::int64_t count_ = 0;
};

template <typename T>
int differing(Row<T>& one, Row<T>& other, std::int64_t count) {
  int different = one.is_intact_outside() && other.is_intact_outside() ? 0 : 1;
  for (std::int64_t i = 0; i < count; ++i) {
    different += std::fabs(to_float(one.data()[i]) - to_float(other.data()[i])) > 0;
  }
  return different;
}

// The number of results that differ from the CPU group's.
template <typename T, typename Activation>
int compared(std::int64_t columns, std::int64_t stride, int shift, unsigned threads) {
  constexpr std::int64_t kRows = 3;
  constexpr unsigned kBlocks = 2;
  const std::int64_t count = kRows * columns;
  Row<T> gate(kRows * stride, shift, 1), up(kRows * stride, shift, 2), grad(count, shift, 3), bias(columns, shift, 4);
  Row<T> y(count, shift, 5), z(count, shift, 6), expected_y(count, shift, 5), expected_z(count, shift, 6);
  Row<float> parts(kBlocks * columns, shift, 7), expected_parts(kBlocks * columns, shift, 7);
  int different = 0;
  const GatedForward<T, Activation> forward{gate.data(), up.data(), y.data(), stride, stride, kRows, columns};
  on_blocks(forward, kBlocks, threads);
  auto on_cpu = forward;
  on_cpu.y = expected_y.data();
  on_cpu(CpuGroup{0, kRows, 0, 1});
  different += differing(y, expected_y, count);

  const GatedBackward<T, Activation> backward{grad.data(), gate.data(), up.data(), y.data(), z.data(),
                                              stride,      stride,      kRows,     columns};
  on_blocks(backward, kBlocks, threads);
  auto backward_on_cpu = backward;
  backward_on_cpu.grad_gate = expected_y.data();
  backward_on_cpu.grad_up = expected_z.data();
  backward_on_cpu(CpuGroup{0, kRows, 0, 1});
  different += differing(y, expected_y, count) + differing(z, expected_z, count);

  const BiasedForward<T, Activation> biased{grad.data(), bias.data(), y.data(), kRows, columns};
  on_blocks(biased, kBlocks, threads);
  auto biased_on_cpu = biased;
  biased_on_cpu.y = expected_y.data();
  biased_on_cpu(CpuGroup{0, kRows, 0, 1});
  different += differing(y, expected_y, count);

  const BiasedBackward<T, Activation> sums{grad.data(), z.data(), bias.data(), y.data(), parts.data(), kRows, columns};
  on_blocks(sums, kBlocks, threads);
  auto sums_on_cpu = sums;
  sums_on_cpu.grad_x = expected_y.data();
  sums_on_cpu.partials = expected_parts.data();
  sums_on_cpu(CpuGroup{0, kRows, 0, 1});  // rows 0, 1 and 2; the blocks have 0 and 2, and 1
  different += differing(y, expected_y, count) + (parts.is_intact_outside() ? 0 : 1);
  for (std::int64_t i = 0; i < columns; ++i) {
    const float both = parts.data()[i] + parts.data()[columns + i];
    different += std::fabs(both - expected_parts.data()[i]) > 1e-4f;
  }
  return different;
}

// The same for the dense layer's kernels, forward in place.
template <typename T>
int compared_dense(std::int64_t columns, int shift, unsigned threads) {
  constexpr std::int64_t kRows = 3;
  const std::int64_t count = kRows * columns;
  int different = 0;
  Row<T> bias(columns, shift, 2);
  for (const T* const given : {static_cast<const T*>(bias.data()), static_cast<const T*>(nullptr)}) {
    Row<T> z(count, shift, 1), expected(count, shift, 1);
    on_blocks(BiasSigmoidForward<T>{z.data(), given, kRows, columns}, 2, threads);
    BiasSigmoidForward<T>{expected.data(), given, kRows, columns}(CpuGroup{0, kRows, 0, 1});
    different += differing(z, expected, count);
  }
  Row<T> grad(count, shift, 3), y(count, shift, 4), out(count, shift, 5), expected(count, shift, 5);
  Row<float> parts(columns, shift, 6), expected_parts(columns, shift, 6);
  on_blocks(BiasSigmoidBackward<T>{grad.data(), y.data(), out.data(), parts.data(), kRows, columns}, 1, threads);
  BiasSigmoidBackward<T>{
      grad.data(), y.data(), expected.data(), expected_parts.data(), kRows, columns}(CpuGroup{0, kRows, 0, 1});
  return different + differing(out, expected, count) + differing(parts, expected_parts, columns);
}

template <typename T>
int all(std::int64_t columns, std::int64_t stride, int shift, unsigned threads) {
  return compared<T, Silu>(columns, stride, shift, threads) + compared<T, Gelu>(columns, stride, shift, threads) +
         compared<T, GeluTanh>(columns, stride, shift, threads) + compared_dense<T>(columns, shift, threads);
}

}  // namespace

extern "C" int differing_results(int type, std::int64_t columns, std::int64_t stride, int shift, int threads) {
  return type == 0   ? all<float>(columns, stride, shift, threads)
         : type == 1 ? all<BFloat16>(columns, stride, shift, threads)
                     : all<Half>(columns, stride, shift, threads);
}

// Whether a tile's elements are unchanged after a store and a load, and nothing around it changed.
template <typename T, int Count>
static bool is_kept() {
  Row<T> from(64, 0, 1), to(64, 0, 2);
  const TileRange<Count> range{2 * kTileOf<T>};
  store<T>(load(from.data(), range), to.data(), range);
  Row<T> expected(64, 0, 2);
  for (int i = 0; i < Count; ++i) {
    expected.data()[range.first + i] = from.data()[range.first + i];
  }
  return differing(to, expected, 64) == 0;
}

extern "C" bool tiles_are_kept() {
  return is_kept<float, 1>() && is_kept<float, 4>() && is_kept<float, 8>() && is_kept<BFloat16, 1>() &&
         is_kept<BFloat16, 8>() && is_kept<Half, 8>() && is_kept<Half, 4>();
}

// Whether tiles are used: for rows of T with a length and a distance, from an address past an aligned one.
extern "C" bool takes_tiles(int bytes, std::int64_t columns, std::int64_t stride) {
  alignas(kTileBytes) static char memory[2 * kTileBytes];
  return are_aligned(memory, memory + bytes) && keep_aligned<Half>(columns, stride);
}
