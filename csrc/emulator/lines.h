#pragma once

#include <string>

namespace emulator {

// "src.cu:12" for an instruction of a library with debug information, by binutils' addr2line; "library.so+0x12"
// without.
std::string line_of(const void* instruction);

}  // namespace emulator
