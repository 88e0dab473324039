// The tensors that kernels may access.

#pragma once

#include <cstddef>
#include <cstdint>

namespace emulator::memory {

// Returns whether all these bytes are in one tensor's memory.
bool is_in_tensor(std::uintptr_t at, std::size_t bytes);

}  // namespace emulator::memory
