// Where the tensors are that kernels may access.

#pragma once

#include <cstddef>
#include <cstdint>

namespace emulator::memory {

// Whether these bytes lie in one tensor's memory.
bool is_in_tensor(std::uintptr_t at, std::size_t bytes);

}  // namespace emulator::memory
