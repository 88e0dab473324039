#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace emulator {

// Returns where a library's thread-local variables hold whether others have been initialised: offset and size. A
// compiler adds such a guard to an array in shared memory whose type has a constructor, and the code that reads it.
const std::vector<std::pair<std::size_t, std::size_t>>& guards_of(const std::string& library);

}  // namespace emulator
