// A CUDA block on the host: its threads are fibers, which run one after the other until each waits or is done.
//
// What a block may get wrong and a GPU would not tell is an error here: a barrier that some threads do not reach, a
// shuffle that some lanes of its mask do not reach, either reached from two places at once, and, in a kernel compiled
// with -fsanitize=thread, what accesses.cpp or ThreadSanitizer finds in its accesses.

#pragma once

#include <cstdint>
#include <cstring>

namespace emulator {

struct Coordinates {
  unsigned x;
  unsigned y;
  unsigned z;
};

// Those of the thread that runs.
extern Coordinates thread_index;
extern Coordinates block_index;
extern Coordinates block_size;
extern Coordinates grid_size;

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

// An instance of a kernel: calls it with a copy of the argument.
struct Kernel {
  const char* name;
  void (*run)(const void* argument);
  bool is_grid_meant;  // as each block has its place in the result; otherwise blocks share what there is
};

// Waits for the block's threads.
void barrier(const Site& site);

// Waits for the warp's lanes in `mask`; returns what lane `source` has given.
std::uint64_t exchange(const Site& site, std::uint64_t mask, std::uint64_t given, unsigned source);

#ifdef ANYACCEL_LANES  // in kernels: 32, or 64
inline constexpr unsigned kLanes = ANYACCEL_LANES;

inline unsigned lane() { return thread_index.x % kLanes; }
#endif

template <typename Value>
Value shuffled(const Site& site, std::uint64_t mask, Value value, unsigned source) {
  static_assert(sizeof(Value) == 4 || sizeof(Value) == 8, "CUDA shuffles 4 or 8 bytes");
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(Value));
  bits = exchange(site, mask, bits, source);
  std::memcpy(&value, &bits, sizeof(Value));
  return value;
}

}  // namespace emulator
