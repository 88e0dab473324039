#pragma once

#include <string>

namespace emulator {

// Returns "src.cu:12" for an instruction of a library with debug information, found by binutils' addr2line, and
// "library.so+0x12" otherwise.
std::string line_of(const void* instruction);

}  // namespace emulator
