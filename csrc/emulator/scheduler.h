// Runs the blocks of a launch.

#pragma once

#include <string>

#include "block.h"

namespace emulator {

struct Launch {
  Coordinates blocks;
  Coordinates threads;
  const void* argument;
  std::size_t argument_bytes;  // the part that threads may read; 0 if the argument is passed by value
  std::size_t shared_bytes;    // size of dynamic shared memory
};

// Runs a kernel's blocks one after the other. Returns the error, or an empty string. Not safe to call from several
// threads at a time.
std::string run(const Kernel& kernel, const Launch& launch);

// Lets other threads run, because the current one waits for them in a loop of atomic operations.
void spin(const Site& site);
void note_progress();

// Ends the launch with this error.
[[noreturn]] void fail(const std::string& what);

// "src.cu:12"
std::string place_of(const Site& site);
// "thread 3 of block 1", or "thread (3,0,1) of block (1,2,0)" if there is more than one dimension
std::string name_of(const Coordinates& at, const Coordinates& size);
Coordinates coordinates_of(std::uint64_t number, const Coordinates& size);
std::string name_of_thread();
std::string name_of_thread_number(unsigned number);

}  // namespace emulator
