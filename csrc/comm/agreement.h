// How ranks find out that they were asked for the same thing.

#pragma once

#include <cstdint>
#include <vector>

#include "group.h"

namespace anyaccel::comm {

const char* name_of(Collective collective);

// Elements that a rank sends to, and receives from, each rank. Kept in shared memory beside the announcement.
struct Table {
  std::int64_t* sends;
  std::int64_t* receives;
};

// The places of the round that comes next, or of the one that was just posted, by its parity.
inline int next_parity(const Group& group) { return static_cast<int>((group.round() + 1) & 1); }
inline int this_parity(const Group& group) { return static_cast<int>(group.round() & 1); }

Table table_of(Group& group, int rank, int parity);
Announcement& announcement_of(Group& group, int rank, int parity);

// Throws MismatchError, with the same text on every rank, unless all announcements of this round fit together. A rank
// that has refused an operation is at a later one than its peers: it throws on those, and is false on the ranks that
// are further, which announce theirs once more.
bool agree(Group& group, const Announcement& own);
bool agree_but_for_tables(Group& group, const Announcement& own);

// Whether a number of elements may be that of a tensor.
bool is_sane(std::int64_t count, std::size_t width);

// What a rank says that it sends to each rank. Kept in shared memory: it is checked, and copied before its place is
// used again.
std::vector<std::int64_t> sends_of(Group& group, int rank, int parity, std::size_t width);

}  // namespace anyaccel::comm
