// The collectives of a group. Each is a task that every rank runs at the same position in its sequence of operations.
//
// In the first round of a collective, ranks compare their arguments. No result is written before they are known to
// match. Reductions add the ranks' values in rank order, so results do not depend on timing and are bitwise equal on
// every rank.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "group.h"

namespace anyaccel::comm {

// A part of a tensor: `count` elements of the operation's dtype.
struct Block {
  unsigned char* data = nullptr;
  std::int64_t count = 0;
};
using Blocks = std::vector<Block>;

// all_reduce; or reduce, if the announcement has a root: then only the root's data is written.
// Traffic per rank for n bytes on w ranks: reads 2n·(w-1)/w + n/w·w, writes as much; up to 16 KiB, reads n·w in one
// round.
Task all_reduce(Group& group, Announcement what, Block data);

// Every rank offers its input to all: broadcast (where only the root's input matters), all_gather, gather and barrier.
// A rank reads the inputs for which it has an output; `outputs` may be empty.
Task share(Group& group, Announcement what, Block input, Blocks outputs);

// Every rank has a block for every other: all_to_all and scatter. Input and output must not overlap.
Task exchange(Group& group, Announcement what, Blocks inputs, Blocks outputs);

// Every rank has a block for every other, and receives the reduction of the blocks for it.
Task reduce_scatter_blocks(Group& group, Announcement what, Blocks inputs, Block output);

// Takes part in a collective that this rank has refused with an error: every other rank throws MismatchError, which
// shows the reason. Returns at once; whoever drives the group tells the others.
void refuse(Group& group, const std::string& reason);

// A collective inside a coalesced operation: its announcement, and the blocks sent to and received from each rank.
struct Part {
  Announcement what;
  Blocks sends, receives;
  Task task;
};

// Runs collectives one after the other, after the ranks have agreed on all of them.
Task coalesced(Group& group, std::vector<Part> parts);

}  // namespace anyaccel::comm
