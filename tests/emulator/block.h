// A CUDA block on the host: its threads are fibers, which run one after another until each waits or is done.
//
// Mistakes that a GPU would not report are errors here: a barrier that some threads do not reach, a
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

// The coordinates of the running thread.
extern Coordinates thread_index;
extern Coordinates block_index;
extern Coordinates block_size;
extern Coordinates grid_size;

// The location of a barrier or a shuffle: one for each place and template instance.
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
  bool is_grid_meant;  // each block has its own part of the result; otherwise blocks share the work
};

// Waits for the block's threads.
void barrier(const Site& site);

// Waits for the warp's lanes in `mask`; returns the value of lane `source`.
std::uint64_t exchange(const Site& site, std::uint32_t mask, std::uint64_t given, unsigned source);

inline unsigned lane() { return thread_index.x % 32; }

template <typename Value>
Value shuffled(const Site& site, std::uint32_t mask, Value value, unsigned source) {
  static_assert(sizeof(Value) == 4 || sizeof(Value) == 8, "CUDA shuffles 4 or 8 bytes");
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(Value));
  bits = exchange(site, mask, bits, source);
  std::memcpy(&value, &bits, sizeof(Value));
  return value;
}

}  // namespace emulator
