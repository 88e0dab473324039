// Records which threads accessed a byte in this launch, and decides whether the next access is ordered after them.
//
// A barrier orders all threads of a block, and a warp's barrier orders the lanes of its mask, together with everything
// that was ordered before them. Only fences and atomic operations order blocks.

#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "block.h"

namespace emulator {

enum class Access { Read, Write, Atomic };

// Threads whose accesses are not ordered relative to each other.
struct Accessors {
  std::uint32_t moment;   // of the latest access
  std::uint32_t moments;  // where History has the moment of each lane; 0 if all have this one
  Lanes lanes;
  std::uint8_t warp;
  bool exist;
  bool are_of_warps;        // of several warps
  bool are_of_blocks;       // also of earlier blocks
  const void* instruction;  // of the latest access; null for an atomic operation
};

// The accesses of a byte, or of several bytes that are only accessed together.
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
  void pass_barrier() {
    barrier_ = ++now_;
    moments_.resize(1);
  }
  void sync_warp(unsigned first_thread, Lanes mask);
  void fence() { fenced_ = now_++; }  // what follows is not released by it

  // Records an access of the current thread. Returns the fault, whose `what` is null if there is none.
  Fault note(Cell& cell, Access access, bool is_shared, const void* instruction, bool may_be_padding = false);

  // Returns a cell for a part of the bytes, whose accesses are then recorded apart.
  Cell part_of(Cell cell);

  // Returns whether an access reads shared memory that the block has not written.
  bool is_unwritten(const Cell& cell, Access access, bool is_shared) const {
    return access != Access::Write && is_shared && !are_here(cell.writes) && !are_here(cell.atomics);
  }

  // Returns whether the latest of these accesses is one of the current block.
  bool are_here(const Accessors& some) const { return some.exist && some.moment >= block_; }

 private:
  using Moments = std::array<std::uint32_t, kWarp>;

  bool are_before(const Accessors& some) const;
  bool conflict(const Accessors& some, bool is_shared) const;
  void add(Accessors& some, bool is_shared, const void* instruction);

  std::uint32_t now_ = 0;
  std::uint32_t block_ = 0;     // when the current block began
  std::uint32_t barrier_ = 0;   // when the block passed its last barrier, or began
  std::uint32_t fenced_ = 0;    // the time of the latest fence
  std::uint32_t released_ = 0;  // the time of the latest fence before this block
  std::uint32_t acquired_ = 0;  // accesses of earlier blocks up to this time happen before this block's
  unsigned thread_ = 0;
  std::vector<Moments> moments_ = std::vector<Moments>(1);  // of accesses since the last barrier; the first is unused
  std::vector<std::uint32_t> known_ = std::vector<std::uint32_t>(
      kMostThreads *
      kWarp);  // per thread and lane: accesses of the lane before this time are ordered before the thread's
};

}  // namespace emulator
