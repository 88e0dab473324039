#include "agreement.h"

#include <string>

namespace anyaccel::comm {
namespace {

constexpr const char* kNames[] = {"all_reduce", "broadcast",      "reduce",     "all_gather", "gather",
                                  "scatter",    "reduce_scatter", "all_to_all", "barrier"};

bool uses_table(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
    case Collective::kBroadcast:
    case Collective::kReduce:
    case Collective::kBarrier:
      return false;
    default:
      return true;
  }
}

bool fits(const Announcement& a, const Announcement& b) {
  return a.collective == b.collective && a.dtype == b.dtype && a.reduction == b.reduction && a.root == b.root &&
         a.exact == b.exact && a.parts == b.parts && (uses_table(a.collective) || a.count == b.count);
}

std::string described(const Announcement& one) {
  std::string text = name_of(one.collective);
  if (one.collective == Collective::kBarrier) return text;
  if (!uses_table(one.collective)) text += " of " + std::to_string(one.count);
  text += std::string(uses_table(one.collective) ? " of " : " ") + name_of(one.dtype);
  if (one.reduction != Reduction::kNone) text += std::string(" with ") + name_of(one.reduction);
  if (one.parts > 0) text += ", one of " + std::to_string(one.parts);
  if (one.root >= 0) text += " with root " + std::to_string(one.root);
  return text;
}

[[noreturn]] void throw_mismatch(const Announcement& own, const std::string& got) {
  throw MismatchError("shm " + std::string(name_of(own.collective)) + " #" + std::to_string(own.sequence) +
                      " failed: got " + got +
                      "; expected the same operation, dtype, sizes and root on every rank. Fix: correct the rank that "
                      "differs. Nothing was written, and the group can go on.");
}

}  // namespace

static_assert(std::size(kNames) == static_cast<std::size_t>(Collective::kBarrier) + 1);

const char* name_of(Collective collective) { return kNames[static_cast<std::size_t>(collective)]; }

Table table_of(Group& group, int rank, int parity) {
  const Segment& segment = group.segment();
  auto* start = segment.at<std::int64_t>(segment.layout.table(rank, parity));
  return {start, start + group.world()};
}

Announcement& announcement_of(Group& group, int rank, int parity) {
  return group.segment().state(rank).announcements[parity];
}

void require_agreement(Group& group) {
  const int parity = this_parity(group);
  const Announcement& own = announcement_of(group, group.rank(), parity);
  const int world = group.world();
  bool agree = true;
  for (int rank = 0; rank < world; ++rank) agree = agree && fits(announcement_of(group, rank, parity), own);
  if (!agree) {
    std::string all;
    for (int rank = 0; rank < world; ++rank) {
      all +=
          (all.empty() ? "" : "; ") + group.name_of_rank(rank) + ": " + described(announcement_of(group, rank, parity));
    }
    throw_mismatch(own, all);
  }
  if (!uses_table(own.collective)) return;
  for (int from = 0; from < world; ++from) {
    const Table sender = table_of(group, from, parity);
    for (int to = 0; to < world; ++to) {
      const std::int64_t expected = table_of(group, to, parity).receives[from];
      if (sender.sends[to] == expected) continue;
      throw_mismatch(own, group.name_of_rank(from) + " with " + std::to_string(sender.sends[to]) + " " +
                              name_of(own.dtype) + " for " + group.name_of_rank(to) + ", which expects " +
                              std::to_string(expected));
    }
  }
}

}  // namespace anyaccel::comm
