// The rules for every access of a kernel; the engine sets which thread accesses.

#pragma once

#include <cstddef>
#include <string>

namespace emulator::accesses {

// The threads' memory apart from tensors: stacks, one after another, and the kernel's argument.
struct Surroundings {
  const void* stacks;
  std::size_t stack_bytes;
  const void* argument;
  std::size_t argument_bytes;
};

void begin_launch(const Surroundings& surroundings);
void begin_block(unsigned block);
void set_thread(unsigned thread);
void pass_barrier();

// Returns the first fault of the launch, or an empty text.
std::string end_launch();

}  // namespace emulator::accesses
