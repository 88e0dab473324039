// The building blocks of collectives: rounds, announcements and tables.

#pragma once

#include "agreement.h"
#include "collectives.h"

namespace anyaccel::comm {

inline auto next_round(Group& group) {
  group.post();
  return until([&group] { return group.everyone_posted(); });
}

// Sets the number of a collective. The parts of a coalesced operation all have the number of the whole.
inline void number(Group& group, Announcement& what) {
  what.sequence = what.parts > 0 ? group.collectives_begun() : group.begin_collective();
}

inline void announce(Group& group, const Announcement& what) {
  announcement_of(group, group.rank(), next_parity(group)) = what;
}

inline void fill_table(Group& group, const Blocks& sends, const Blocks& receives) {
  const Table table = table_of(group, group.rank(), next_parity(group));
  for (int rank = 0; rank < group.world(); ++rank) {
    table.sends[rank] = sends.empty() ? 0 : sends[rank].count;
    table.receives[rank] = receives.empty() ? 0 : receives[rank].count;
  }
}

}  // namespace anyaccel::comm
