// Who has accessed a byte in this launch, and whether what comes next is ordered after it.
//
// A barrier orders all threads of a block, a warp's barrier the lanes of its mask, each with what they were ordered
// after. Blocks are not ordered, but by fences and atomic operations.

#pragma once

#include <cstdint>
#include <vector>

#include "block.h"

namespace emulator {

enum class Access { Read, Write, Atomic };

// Threads with accesses that are not ordered among each other.
struct Accessors {
  std::uint32_t moment;  // of the latest
  Lanes lanes;
  std::uint8_t warp;
  bool exist;
  bool are_of_warps;        // of several
  bool are_of_blocks;       // of earlier blocks too
  const void* instruction;  // of the latest; null where it was an atomic operation
};

// A byte's accesses in this launch.
struct Cell {
  Accessors writes;
  Accessors reads;
  Accessors atomics;
};

struct Fault {
  const char* what = nullptr;
  const char* verb = nullptr;  // of the other access in a race
  Accessors others{};
};

class History {
 public:
  void begin_launch();
  void begin_block();
  void set_thread(unsigned thread) { thread_ = thread; }
  void pass_barrier() { barrier_ = ++now_; }
  void sync_warp(unsigned first_thread, Lanes mask);
  void fence() { fenced_ = now_; }

  // Notes an access of the current thread, and returns what is wrong with it, if something is.
  Fault note(Cell& cell, Access access, bool is_shared, const void* instruction);

  // Whether the current block has done the latest of these.
  bool are_here(const Accessors& some) const { return some.exist && some.moment >= block_; }

 private:
  bool are_before(const Accessors& some) const;
  bool conflict(const Accessors& some, bool is_shared) const;
  void add(Accessors& some, bool is_shared, const void* instruction) const;

  std::uint32_t now_ = 0;
  std::uint32_t block_ = 0;     // when it began
  std::uint32_t barrier_ = 0;   // when the block passed the last one, or began
  std::uint32_t fenced_ = 0;    // what an earlier block has fenced
  std::uint32_t released_ = 0;  // the same, when this block began
  std::uint32_t acquired_ = 0;  // up to when earlier blocks' accesses are ordered before this block's
  unsigned thread_ = 0;
  std::vector<std::uint32_t> known_ = std::vector<std::uint32_t>(kMostThreads * kWarp);  // of a lane, by a thread
};

}  // namespace emulator
