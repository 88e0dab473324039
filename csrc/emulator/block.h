// A CUDA block on the host. Its threads are fibers: each runs until it waits or ends, then the next one runs.
//
// Errors that a GPU would not report end the launch with a fault: a barrier that some threads do not reach, a shuffle
// that some lanes of its mask do not reach, and a barrier or shuffle that threads reach at two places at once. In
// kernels compiled with -fsanitize=thread, so do the memory errors that accesses.cpp or ThreadSanitizer finds.

#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#define EMULATOR_EXPORT __attribute__((visibility("default")))
// For the emulator's own functions, whose accesses are not the kernel's.
#define EMULATOR_UNCHECKED __attribute__((no_sanitize("thread")))

namespace emulator {

#ifndef EMULATOR_LANES
#define EMULATOR_LANES 32  // CUDA's; tests of HIP's group use 64 as well
#endif

constexpr unsigned kWarp = EMULATOR_LANES;
using Lanes = std::conditional_t<kWarp == 64, std::uint64_t, std::uint32_t>;  // a bit for each lane of a warp
constexpr unsigned kMostThreads = 1024;
constexpr std::size_t kMostSharedBytes = 227 * 1024;  // per block, on the GPUs that have most

struct Coordinates {
  unsigned x;
  unsigned y;
  unsigned z;
};

// The coordinates of the running thread.
EMULATOR_EXPORT extern Coordinates thread_index;
EMULATOR_EXPORT extern Coordinates block_index;
EMULATOR_EXPORT extern Coordinates block_size;
EMULATOR_EXPORT extern Coordinates grid_size;

// The place of a barrier or a shuffle in the source. Each template instance has its own.
struct Site {
  const char* file;
  int line;
  const char* what;
};

#define EMULATOR_SITE(what)                                           \
  ([]() -> const ::emulator::Site& {                                  \
    static constexpr ::emulator::Site site{__FILE__, __LINE__, what}; \
    return site;                                                      \
  }())

// An instance of a kernel.
struct Kernel {
  const char* name;
  void (*run)(const void* argument);
  bool is_grid_meant;        // the grid's size is part of the result; otherwise any number of blocks can share the work
  void* (*shared_memory)();  // the start of dynamic shared memory, for the calling thread
};

// The functions below are called by the running thread.

// Waits for all threads of the block. Returns the number of threads whose `is_counted` is true.
EMULATOR_EXPORT unsigned barrier(const Site& site, bool is_counted = false);

// Waits for the warp's lanes in `mask`, and returns the values that its lanes passed as `given`. They are valid until
// the warp's next wait. The caller reads the value of lane `source`.
EMULATOR_EXPORT const std::uint64_t* gather(const Site& site, Lanes mask, std::uint64_t given, unsigned source);

// Waits for the warp's lanes in `mask`. Their accesses before this call happen before those after it.
EMULATOR_EXPORT void sync_warp(const Site& site, Lanes mask);

// Ends the launch because the kernel asked for it.
[[noreturn]] EMULATOR_EXPORT void trap(const Site& site);

inline unsigned thread_number() {
  return thread_index.x + block_size.x * (thread_index.y + block_size.y * thread_index.z);
}

}  // namespace emulator
