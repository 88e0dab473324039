// A CUDA block on the host: its threads are fibers, which run one after the other until each waits or is done.
//
// What a block may get wrong and a GPU would not tell is a fault here, which ends the launch: a barrier that some
// threads do not reach, a shuffle that some lanes of its mask do not reach, either reached from two places at once,
// and, in a kernel compiled with -fsanitize=thread, what accesses.cpp or ThreadSanitizer finds in its accesses.

#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#define EMULATOR_EXPORT __attribute__((visibility("default")))
// Of what the emulator's own functions do, nothing is a kernel's access.
#define EMULATOR_UNCHECKED __attribute__((no_sanitize("thread")))

namespace emulator {

#ifndef EMULATOR_LANES
#define EMULATOR_LANES 32  // CUDA's; tests of HIP's group use 64 as well
#endif

constexpr unsigned kWarp = EMULATOR_LANES;
using Lanes = std::conditional_t<kWarp == 64, std::uint64_t, std::uint32_t>;  // a bit for each lane of a warp
constexpr unsigned kMostThreads = 1024;
constexpr std::size_t kMostSharedBytes = 227 * 1024;  // of a block, on the largest GPUs

struct Coordinates {
  unsigned x;
  unsigned y;
  unsigned z;
};

// Those of the thread that runs.
EMULATOR_EXPORT extern Coordinates thread_index;
EMULATOR_EXPORT extern Coordinates block_index;
EMULATOR_EXPORT extern Coordinates block_size;
EMULATOR_EXPORT extern Coordinates grid_size;

// Where a barrier or a shuffle stands: one for each place and template instance.
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
  bool is_grid_meant;        // as each block has its place in the result; otherwise blocks share what there is
  void* (*shared_memory)();  // the calling thread's: where dynamic shared memory begins
};

// For the thread that runs:

// Waits for the block's threads; returns for how many of them `is_counted` is true.
EMULATOR_EXPORT unsigned barrier(const Site& site, bool is_counted = false);

// Waits for the warp's lanes in `mask`, and returns what each of its lanes has given, until the warp's next wait.
// The caller reads what lane `source` has given.
EMULATOR_EXPORT const std::uint64_t* gather(const Site& site, Lanes mask, std::uint64_t given, unsigned source);

// Waits for the warp's lanes in `mask`, whose accesses before it come before those after it.
EMULATOR_EXPORT void sync_warp(const Site& site, Lanes mask);

// Ends the launch, as the kernel asks for it.
[[noreturn]] EMULATOR_EXPORT void trap(const Site& site);

inline unsigned thread_number() {
  return thread_index.x + block_size.x * (thread_index.y + block_size.y * thread_index.z);
}

}  // namespace emulator
