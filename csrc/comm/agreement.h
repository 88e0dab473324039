// Checks that all ranks called the same operation with matching arguments.

#pragma once

#include <cstdint>
#include <vector>

#include "group.h"

namespace anyaccel::comm {

const char* name_of(Collective collective);

// The number of elements that a rank sends to and receives from each rank. In shared memory, next to the announcement.
struct Table {
  std::int64_t* sends;
  std::int64_t* receives;
};

// Which of the two slots the next round uses, and which one the round that was just posted used.
inline int next_parity(const Group& group) { return static_cast<int>((group.round() + 1) & 1); }
inline int this_parity(const Group& group) { return static_cast<int>(group.round() & 1); }

Table table_of(Group& group, int rank, int parity);
Announcement& announcement_of(Group& group, int rank, int parity);

// Returns true if all announcements of this round match. Otherwise throws MismatchError, with the same text on every
// rank. A rank that refused an operation is ahead of its peers: the peers throw, and on the rank that is
// ahead this returns false, so that it announces its operation again.
bool agree(Group& group, const Announcement& own);
bool agree_but_for_tables(Group& group, const Announcement& own);

// Returns whether a tensor can have this number of elements.
bool is_sane(std::int64_t count, std::size_t width);

// Returns how much a rank announced to send to each rank: a checked copy of its table in shared memory, which later
// rounds overwrite.
std::vector<std::int64_t> sends_of(Group& group, int rank, int parity, std::size_t width);

}  // namespace anyaccel::comm
