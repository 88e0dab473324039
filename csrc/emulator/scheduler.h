// Runs the blocks of a launch.

#pragma once

#include <string>

#include "block.h"

namespace emulator {

struct Launch {
  Coordinates blocks;
  Coordinates threads;
  const void* argument;
  std::size_t argument_bytes;  // that threads may read; 0 where they get what they need by value
  std::size_t shared_bytes;    // of dynamic shared memory
};

// Runs a kernel's blocks, one after the other. Returns what went wrong, or an empty text. One thread may at a time.
std::string run(const Kernel& kernel, const Launch& launch);

// Lets others run, as it waits for one of them in a loop of atomic operations.
void spin(const Site& site);
void note_progress();

// Ends the launch with what is wrong.
[[noreturn]] void fail(const std::string& what);

// "src.cu:12"
std::string place_of(const Site& site);
// "thread 3 of block 1", or "thread (3,0,1) of block (1,2,0)" where there is more than one dimension
std::string name_of_thread();
std::string name_of_thread_number(unsigned number);

}  // namespace emulator
