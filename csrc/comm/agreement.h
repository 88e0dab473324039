// Checks that all ranks called the same operation with matching arguments.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
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

// Throws MismatchError, with the same text on every rank, unless all announcements of this round match. A rank that
// refused the operation does not throw: it has its own error.
void agree(Group& group, const Announcement& own);
void agree_but_for_tables(Group& group, const Announcement& own);

constexpr std::size_t kMostOfReason = 2000;  // characters that a refusal tells

// Text that another rank wrote, with '?' in the place of what could be no part of an error.
std::string printable(std::string_view text);

// Returns whether a tensor can have this number of elements.
bool is_sane(std::int64_t count, std::size_t width);

// Returns how much a rank announced to send to each rank: a checked copy of its table in shared memory, which later
// rounds overwrite.
std::vector<std::int64_t> sends_of(Group& group, int rank, int parity, std::size_t width);

}  // namespace anyaccel::comm
