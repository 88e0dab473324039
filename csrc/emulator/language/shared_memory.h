// Dynamic shared memory of a library of kernels; included once in each.

#pragma once

#include "../block.h"

namespace emulator {

// An array `extern __shared__ T name[]` is another name for it, which the assembler is told, and has an initialiser
// that does nothing, as the compiler cannot know that it needs none.
alignas(1024) thread_local char dynamic_shared_memory[kMostSharedBytes] asm("emulator_dynamic_shared_memory");

extern "C" EMULATOR_UNCHECKED __attribute__((used)) void emulator_nothing_to_initialise() {}

EMULATOR_UNCHECKED static void* shared_memory() { return dynamic_shared_memory; }

}  // namespace emulator
