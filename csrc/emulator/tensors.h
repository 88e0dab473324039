#pragma once

#include <cstddef>
#include <cstdint>

namespace emulator {

// The memory of a tensor that was passed to the launch.
struct Tensor {
  std::uintptr_t begin;
  std::size_t bytes;
};

// Sets the tensors that kernels may access from now on. The array must outlive the launch.
void set_tensors(const Tensor* all, std::size_t how_many);

}  // namespace emulator
