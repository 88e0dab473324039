// The checks of a kernel's memory accesses. The scheduler reports which thread runs.

#pragma once

#include <cstddef>
#include <cstdint>

#include "block.h"
#include "history.h"

namespace emulator::accesses {

// The memory of a launch that is not in tensors.
struct Surroundings {
  const void* stacks;  // of all threads, one after the other
  std::size_t stack_bytes;
  const void* argument;
  std::size_t argument_bytes;
  const void* shared_memory;  // where dynamic shared memory begins
  std::size_t dynamic_bytes;  // of dynamic shared memory in this launch
};

void begin_launch(const Surroundings& surroundings);
void begin_block();
void set_thread(unsigned thread);
void pass_barrier();
void sync_warp(unsigned first_thread, Lanes mask);
void end_launch();

// A fence of the current thread. Accesses of its block before the fence happen before accesses of a later block that
// follow an atomic operation on a byte which this block has changed atomically.
void fence();

// Checks and records an access by an instruction of the kernel, and ends the launch if it is a fault. `alignment` is 0
// for the copy of a struct or a range.
void access(void* address, std::size_t bytes, std::size_t alignment, Access kind, const void* instruction);

// Ends the launch at its next access. Called from another thread.
void interrupt();
bool is_interrupted();

}  // namespace emulator::accesses

namespace emulator {

// Checks an atomic operation of a kernel before it happens.
EMULATOR_EXPORT void check_atomic(const Site& site, const volatile void* at, std::size_t bytes);

// Records whether an atomic operation changed its value. A loop of operations that change nothing lets other threads
// run.
EMULATOR_EXPORT void note_atomic(const Site& site, bool has_changed);

EMULATOR_EXPORT void fence();

}  // namespace emulator
