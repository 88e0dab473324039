// The locations of torch's CPU tensors: memory.cpp replaces torch's allocation function.

#pragma once

#include <cstddef>
#include <cstdint>

namespace emulator::memory {

// Whether these bytes lie in one tensor's memory, with the size that torch requested.
bool is_in_tensor(std::uintptr_t at, std::size_t bytes);

}  // namespace emulator::memory
