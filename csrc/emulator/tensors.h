#pragma once

#include <cstddef>
#include <cstdint>

namespace emulator {

// The memory of a tensor that a launch was given.
struct Tensor {
  std::uintptr_t begin;
  std::size_t bytes;
};

// Says what kernels may access from now on; the array must stay.
void set_tensors(const Tensor* all, std::size_t how_many);

}  // namespace emulator
