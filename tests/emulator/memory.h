// Where torch's CPU tensors are: memory.cpp takes the place of what torch allocates them with.

#pragma once

#include <cstddef>
#include <cstdint>

namespace emulator::memory {

// Whether these bytes lie in one tensor's memory, as large as torch asked for it.
bool is_in_tensor(std::uintptr_t at, std::size_t bytes);

}  // namespace emulator::memory
