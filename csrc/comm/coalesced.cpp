// Collectives that are one operation: nothing is written before the ranks agree on all of them.

#include <algorithm>

#include "rounds.h"

namespace anyaccel::comm {
namespace {

// The number of elements if it is the same for every rank, otherwise -1.
std::int64_t even_count(const Blocks& blocks) {
  const auto differs = [&blocks](const Block& one) { return one.count != blocks[0].count; };
  return blocks.empty() || std::any_of(blocks.begin(), blocks.end(), differs) ? -1 : blocks[0].count;
}

// A digest that is equal on two ranks only if their parts match; 0 if every part must be compared.
std::uint64_t digest_of(const std::vector<Part>& parts) {
  std::uint64_t digest = 0xcbf29ce484222325;  // FNV-1a, over words
  const auto add = [&digest](std::uint64_t word) { digest = (digest ^ word) * 0x100000001b3; };
  for (const Part& part : parts) {
    const bool has_blocks = !part.sends.empty() || !part.receives.empty();
    const std::int64_t sends = has_blocks ? even_count(part.sends) : part.what.count;
    const std::int64_t receives = has_blocks ? even_count(part.receives) : part.what.count;
    if (sends < 0 || sends != receives) return 0;
    add(static_cast<std::uint64_t>(part.what.collective) << 32 | static_cast<std::uint64_t>(part.what.dtype) << 24 |
        static_cast<std::uint64_t>(part.what.reduction) << 16 | part.what.exact);
    add(static_cast<std::uint64_t>(sends));
  }
  return std::max<std::uint64_t>(digest, 1);
}

bool have_one_digest(Group& group, std::uint64_t digest) {
  bool is_one = digest != 0;
  for (int rank = 0; rank < group.world(); ++rank) {
    is_one = is_one && announcement_of(group, rank, this_parity(group)).digest == digest;
  }
  return is_one;
}

Task agree_on(Group& group, const std::vector<Part>& parts) {
  Announcement whole = parts[0].what;
  whole.sequence = group.begin_collective();
  whole.digest = digest_of(parts);
  announce(group, whole);
  co_await next_round(group);
  agree_but_for_tables(group, whole);
  if (have_one_digest(group, whole.digest)) co_return;
  for (const Part& part : parts) {
    Announcement what = part.what;
    what.sequence = whole.sequence;
    fill_table(group, part.sends, part.receives);
    announce(group, what);
    co_await next_round(group);
    agree(group, what);
  }
}

}  // namespace

Task coalesced(Group& group, std::vector<Part> parts) {
  if (parts.empty()) co_return;
  co_await agree_on(group, parts);
  for (Part& part : parts) co_await part.task;
}

}  // namespace anyaccel::comm
