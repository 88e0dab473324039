// What every access of a kernel must keep to; the scheduler tells who accesses.

#pragma once

#include <cstddef>
#include <cstdint>

#include "block.h"

namespace emulator::accesses {

// What the threads of a launch have besides tensors.
struct Surroundings {
  const void* stacks;  // one after the other
  std::size_t stack_bytes;
  const void* argument;
  std::size_t argument_bytes;
  const void* shared_memory;  // where dynamic shared memory begins
  std::size_t dynamic_bytes;  // of that, which this launch has
};

void begin_launch(const Surroundings& surroundings);
void begin_block();
void set_thread(unsigned thread);
void pass_barrier();
void sync_warp(unsigned first_thread, Lanes mask);
void end_launch();

// A fence of the current thread: what its block did before it is ordered before what a later block does after an atomic
// operation on what that block has operated on atomically.
void fence();

// Ends the launch at its next access; another thread calls it.
void interrupt();

}  // namespace emulator::accesses

namespace emulator {

// Checks an atomic operation of a kernel before it happens.
EMULATOR_EXPORT void check_atomic(const Site& site, const volatile void* at, std::size_t bytes);

// A loop of atomic operations that change nothing lets other threads run.
EMULATOR_EXPORT void note_atomic(const Site& site, bool has_changed);

EMULATOR_EXPORT void fence();

}  // namespace emulator
