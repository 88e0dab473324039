#include "agreement.h"

#include <algorithm>
#include <string>

namespace anyaccel::comm {
namespace {

constexpr const char* kNames[] = {"all_reduce", "broadcast",      "reduce",     "all_gather", "gather",
                                  "scatter",    "reduce_scatter", "all_to_all", "barrier",    "refused operation"};

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

constexpr std::int64_t kMostBytes = std::int64_t{1} << 48;

// A copy: the rank that wrote it could still change it.
Announcement read(Group& group, int rank, int parity, std::uint64_t sequence) {
  const Announcement one = announcement_of(group, rank, parity);
  if (one.collective > Collective::kRefused || one.sequence != sequence || one.dtype > Dtype::kOpaque16 ||
      one.reduction > Reduction::kNone || !is_sane(one.count, element_bytes(one.dtype)) || one.root < -1 ||
      one.root >= group.world()) {
    throw_corrupt("an announcement of rank " + std::to_string(rank));
  }
  return one;
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

constexpr const char* kGoesOn = " Nothing was written, and the group can continue.";

[[noreturn]] void throw_mismatch(const Announcement& own, const std::string& got) {
  throw MismatchError("shm " + std::string(name_of(own.collective)) + " #" + std::to_string(own.sequence) +
                      " failed: got " + got +
                      "; expected the same operation, dtype, sizes and root on every rank. Fix: make that "
                      "rank call what this one calls." +
                      kGoesOn);
}

[[noreturn]] void throw_refused(Group& group, const Announcement& own, int rank, std::int64_t length) {
  const auto* start = group.segment().at<char>(group.segment().layout.small_slot(rank, this_parity(group)));
  throw MismatchError("shm " + std::string(name_of(own.collective)) + " #" + std::to_string(own.sequence) +
                      " failed: got a refusal by " + group.name_of_rank(rank) +
                      "; expected every rank to take part. Fix: correct what that rank's error names. It is: " +
                      printable({start, std::min(static_cast<std::size_t>(length), kMostOfReason)}) + kGoesOn);
}

void require_fitting_tables(Group& group, const Announcement& own, int parity) {
  for (int from = 0; from < group.world(); ++from) {
    const std::vector<std::int64_t> sends = sends_of(group, from, parity, element_bytes(own.dtype));
    for (int to = 0; to < group.world(); ++to) {
      const std::int64_t expected = table_of(group, to, parity).receives[from];
      if (sends[to] == expected) continue;
      throw_mismatch(own, group.name_of_rank(from) + " with " + std::to_string(sends[to]) + " " + name_of(own.dtype) +
                              " for " + group.name_of_rank(to) + ", which expects " + std::to_string(expected));
    }
  }
}

}  // namespace

static_assert(std::size(kNames) == static_cast<std::size_t>(Collective::kRefused) + 1);

const char* name_of(Collective collective) { return kNames[static_cast<std::size_t>(collective)]; }

std::string printable(std::string_view text) {
  std::string copied(text);
  std::replace_if(copied.begin(), copied.end(), [](char one) { return one != '\n' && (one < ' ' || one > '~'); }, '?');
  return copied;
}

Table table_of(Group& group, int rank, int parity) {
  const Segment& segment = group.segment();
  auto* start = segment.at<std::int64_t>(segment.layout.table(rank, parity));
  return {start, start + group.world()};
}

Announcement& announcement_of(Group& group, int rank, int parity) {
  return group.segment().state(rank).announcements[parity];
}

bool is_sane(std::int64_t count, std::size_t width) {
  return count >= 0 && count <= kMostBytes / static_cast<std::int64_t>(width);
}

std::vector<std::int64_t> sends_of(Group& group, int rank, int parity, std::size_t width) {
  const std::int64_t* sends = table_of(group, rank, parity).sends;
  std::vector<std::int64_t> copied(sends, sends + group.world());
  for (const std::int64_t count : copied) {
    if (!is_sane(count, width)) throw_corrupt("sizes of rank " + std::to_string(rank));
  }
  return copied;
}

void agree_but_for_tables(Group& group, const Announcement& own) {
  const int parity = this_parity(group), world = group.world();
  bool fit = true;
  for (int rank = 0; rank < world; ++rank) {
    const Announcement one = read(group, rank, parity, own.sequence);
    if (one.collective == Collective::kRefused) throw_refused(group, own, rank, one.count);
    fit = fit && fits(one, own);
  }
  if (fit) return;
  std::string all;
  for (int rank = 0; rank < world; ++rank) {
    all += (all.empty() ? "" : "; ") + group.name_of_rank(rank) + ": " +
           described(read(group, rank, parity, own.sequence));
  }
  throw_mismatch(own, all);
}

void agree(Group& group, const Announcement& own) {
  agree_but_for_tables(group, own);
  if (uses_table(own.collective)) require_fitting_tables(group, own, this_parity(group));
}

}  // namespace anyaccel::comm
