// How ranks find out that they were asked for the same thing.

#pragma once

#include <cstdint>

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

// The announcement of one of a coalesced operation's parts.
template <typename List>
Announcement part_of(Announcement one, const List& all) {
  one.parts = static_cast<std::uint16_t>(all.size());
  return one;
}

Table table_of(Group& group, int rank, int parity);
Announcement& announcement_of(Group& group, int rank, int parity);

// Throws MismatchError, with the same text on every rank, unless all announcements of this round fit together.
void require_agreement(Group& group);

}  // namespace anyaccel::comm
