#include "history.h"

#include <algorithm>

namespace emulator {

void History::begin_launch() {
  now_ = fenced_ = acquired_ = 0;
  std::fill(known_.begin(), known_.end(), 0u);
}

void History::begin_block() {
  pass_barrier();
  block_ = barrier_;
  released_ = fenced_;
  acquired_ = 0;
}

void History::sync_warp(unsigned first_thread, Lanes mask) {
  std::uint32_t joined[kWarp] = {};
  ++now_;
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    for (unsigned other = 0; (mask >> lane & 1u) != 0 && other < kWarp; ++other) {
      joined[other] = std::max(joined[other], known_[(first_thread + lane) * kWarp + other]);
    }
  }
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    joined[lane] = (mask >> lane & 1u) != 0 ? now_ : joined[lane];
  }
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    if ((mask >> lane & 1u) != 0) {
      std::copy(joined, joined + kWarp, &known_[(first_thread + lane) * kWarp]);
    }
  }
}

// Returns whether these accesses of the current block happen before what the current thread does next.
bool History::are_before(const Accessors& some) const {
  if (some.moment < barrier_) {
    return true;
  }
  if (some.are_of_warps || some.warp != thread_ / kWarp) {
    return false;
  }
  for (unsigned lane = 0; lane < kWarp; ++lane) {
    const bool is_other = (some.lanes >> lane & 1u) != 0 && lane != thread_ % kWarp;
    const std::uint32_t moment = some.moments == 0 ? some.moment : moments_[some.moments][lane];
    if (is_other && moment >= known_[thread_ * kWarp + lane]) {
      return false;
    }
  }
  return true;
}

bool History::conflict(const Accessors& some, bool is_shared) const {
  if (!some.exist) {
    return false;
  }
  if (!are_here(some)) {  // each block has its own shared memory
    return !is_shared && some.moment > acquired_;
  }
  return (!is_shared && some.are_of_blocks && acquired_ == 0) || !are_before(some);
}

void History::add(Accessors& some, bool is_shared, const void* instruction) {
  const Lanes lane = Lanes{1} << thread_ % kWarp;
  const auto warp = static_cast<std::uint8_t>(thread_ / kWarp);
  const bool is_new = !are_here(some);
  const bool are_of_blocks = !is_shared && some.exist && (is_new || some.are_of_blocks);
  if (is_new || are_before(some)) {
    some = {now_, 0, lane, warp, true, false, are_of_blocks, instruction};
    return;
  }
  some.are_of_warps = some.are_of_warps || some.warp != warp;
  if (!some.are_of_warps && some.moments == 0 && some.moment != now_) {
    some.moments = static_cast<std::uint32_t>(moments_.size());
    moments_.emplace_back().fill(some.moment);
  }
  if (some.moments != 0) {
    moments_[some.moments][thread_ % kWarp] = now_;
  }
  some.moment = now_;
  some.lanes |= lane;
  some.instruction = instruction;
}

Cell History::part_of(Cell cell) {
  for (Accessors* some : {&cell.writes, &cell.reads, &cell.atomics}) {
    if (some->moments != 0 && some->moment >= barrier_) {
      moments_.push_back(moments_[some->moments]);
      some->moments = static_cast<std::uint32_t>(moments_.size() - 1);
    }
  }
  return cell;
}

Fault History::note(Cell& cell, Access access, bool is_shared, const void* instruction, bool may_be_padding) {
  if (!may_be_padding && is_unwritten(cell, access, is_shared)) {
    return {"uninitialised shared memory"};
  }
  if (access == Access::Atomic && cell.atomics.exist && (!are_here(cell.atomics) || cell.atomics.are_of_blocks)) {
    acquired_ = released_;
  }
  if (conflict(cell.writes, is_shared)) {
    return {"race", "written", cell.writes};
  }
  if (access != Access::Read && conflict(cell.reads, is_shared)) {
    return {"race", "read", cell.reads};
  }
  if (access != Access::Atomic && conflict(cell.atomics, is_shared)) {
    return {"race", "changed by an atomic operation", cell.atomics};
  }
  if (access == Access::Write) {
    cell = {};
  }
  Accessors& own = access == Access::Read ? cell.reads : access == Access::Write ? cell.writes : cell.atomics;
  add(own, is_shared, instruction);
  return {};
}

}  // namespace emulator
