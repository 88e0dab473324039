// The dynamic shared memory of a library of kernels. Included once per library.

#pragma once

#include "../block.h"

namespace emulator {

// An array `extern __shared__ T name[]` is an alias of it, defined in assembly. The compiler expects an initialiser for
// such a variable, so there is one, which does nothing.
alignas(1024) thread_local char dynamic_shared_memory[kMostSharedBytes] asm("emulator_dynamic_shared_memory");

extern "C" EMULATOR_UNCHECKED __attribute__((used)) void emulator_nothing_to_initialise() {}

EMULATOR_UNCHECKED static void* shared_memory() { return dynamic_shared_memory; }

}  // namespace emulator
