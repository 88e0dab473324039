// The collectives of a group, each a task that every rank runs at the same place in its order of operations.
//
// Every collective opens with a round in which ranks compare what they were asked to do; until that is known to fit, no
// result is written. Reductions take the ranks' values in the order of ranks, so results do not depend on timing, and
// are the same bits everywhere.

#pragma once

#include <cstdint>
#include <vector>

#include "group.h"

namespace anyaccel::comm {

// A part of a tensor: `count` elements of the operation's dtype.
struct Block {
  unsigned char* data = nullptr;
  std::int64_t count = 0;
};
using Blocks = std::vector<Block>;

// all_reduce, and reduce where the announcement has a root: only the root's data is written then.
// Traffic a rank, of n bytes in w ranks: reads 2n·(w-1)/w + n/w·w, writes as much; up to 16 KiB n·w read in one round.
Task all_reduce(Group& group, Announcement what, Block data);

// Every rank offers its input to all: broadcast (the root's counts only), all_gather, gather and barrier. A rank takes
// what it has an output for; `outputs` is empty where it wants nothing.
Task share(Group& group, Announcement what, Block input, Blocks outputs);

// Every rank has a block for each other: all_to_all, scatter. Input and output must not overlap.
Task exchange(Group& group, Announcement what, Blocks inputs, Blocks outputs);

// Every rank has a block for each other, and gets the reduction of those for it.
Task reduce_scatter_blocks(Group& group, Announcement what, Blocks inputs, Block output);

// One of the collectives that are one operation: what it announces, and what is sent to and received from each rank.
struct Part {
  Announcement what;
  Blocks sends, receives;
  Task task;
};

// One after the other, once the ranks agree on all of them.
Task coalesced(Group& group, std::vector<Part> parts);

}  // namespace anyaccel::comm
