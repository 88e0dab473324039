#include "collectives.h"

#include <algorithm>
#include <cstring>

#include "progress.h"
#include "rounds.h"

namespace anyaccel::comm {
namespace {

void copy(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

std::size_t rounded_up(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

std::size_t pieces(std::size_t bytes, std::size_t piece) { return (bytes + piece - 1) / piece; }

// The size of the t-th piece of `bytes`.
std::size_t piece_at(std::size_t t, std::size_t piece, std::size_t bytes) {
  return t * piece >= bytes ? 0 : std::min(piece, bytes - t * piece);
}

unsigned char* slot(Group& group, int rank, int index) {
  return group.segment().at<unsigned char>(group.segment().layout.slot(rank, index));
}

unsigned char* small_slot(Group& group, int rank, int parity) {
  return group.segment().at<unsigned char>(group.segment().layout.small_slot(rank, parity));
}

// The size of the part of a slot that belongs to one rank.
std::size_t share_of_slot(const Group& group) {
  return kSlotBytes / static_cast<std::size_t>(group.world()) / kLine * kLine;
}

std::vector<double> scales_of(Group& group) {
  std::vector<double> scales;
  for (int rank = 0; rank < group.world(); ++rank) {
    scales.push_back(announcement_of(group, rank, this_parity(group)).scale);
  }
  return scales;
}

std::int64_t count_of(Group& group, int rank, int parity, std::size_t width) {
  const std::int64_t count = announcement_of(group, rank, parity).count;
  if (!is_sane(count, width)) throw_corrupt("a size of rank " + std::to_string(rank));
  return count;
}

// The ranks have agreed on the sizes, so they differ only if something else wrote to the memory.
void require_equal(std::size_t offered, const Block& output, std::size_t width) {
  if (offered != static_cast<std::size_t>(output.count) * width) throw_corrupt("a size that does not fit its table");
}

// The part of a chunk that one rank reduces.
struct Stretch {
  std::size_t start, bytes;
};

Stretch stretch_of(std::size_t start, std::size_t bytes, int world, int rank) {
  const std::size_t step = rounded_up((bytes + world - 1) / world);
  const std::size_t first = std::min(step * rank, bytes);
  return {start + first, std::min(step, bytes - first)};
}

}  // namespace

// In each round a rank writes its values of one chunk for the others, reduces its own part of the previous chunk, and
// after the round reads the others' parts of that previous chunk.
Task all_reduce(Group& group, Announcement what, Block data) {
  const int world = group.world(), me = group.rank();
  const std::size_t bytes = static_cast<std::size_t>(data.count) * element_bytes(what.dtype);
  const bool keeps = what.root < 0 || what.root == me, is_small = bytes <= kSmallBytes;
  number(group, what);
  if (!is_small) group.allocate_slots();
  const std::size_t piece = share_of_slot(group), chunk = piece * world;
  const std::size_t rounds = is_small ? 0 : pieces(bytes, chunk);
  std::vector<const void*> inputs(world);
  std::vector<double> scales;

  for (std::size_t t = 0; t <= rounds; ++t) {
    const int parity = next_parity(group);
    if (t == 0) announce(group, what);
    if (is_small) copy(small_slot(group, me, parity), data.data, bytes);
    const std::size_t filling = piece_at(t, chunk, bytes), reducing = t > 0 ? piece_at(t - 1, chunk, bytes) : 0;
    for (int rank = 0; rank < world && !is_small; ++rank) {
      const Stretch part = stretch_of(t * chunk, filling, world, rank);
      if (rank != me) copy(slot(group, me, parity) + rank * piece, data.data + part.start, part.bytes);
    }
    if (reducing > 0) {
      const Stretch part = stretch_of((t - 1) * chunk, reducing, world, me);
      for (int rank = 0; rank < world; ++rank) inputs[rank] = slot(group, rank, 1 - parity) + me * piece;
      inputs[me] = data.data + part.start;
      unsigned char* result = slot(group, me, 2 + parity);
      reduce(what.dtype, what.reduction, result, inputs.data(), world, part.bytes / element_bytes(what.dtype),
             scales.data());
      if (keeps) copy(data.data + part.start, result, part.bytes);
    }
    co_await next_round(group);
    if (t == 0) {
      agree(group, what);
      if (what.reduction == Reduction::kScaledSum) scales = scales_of(group);
    }
    for (int rank = 0; rank < world && reducing > 0 && keeps; ++rank) {
      const Stretch part = stretch_of((t - 1) * chunk, reducing, world, rank);
      if (rank != me) copy(data.data + part.start, slot(group, rank, 2 + parity), part.bytes);
    }
  }
  if (is_small && keeps) {
    for (int rank = 0; rank < world; ++rank) inputs[rank] = small_slot(group, rank, this_parity(group));
    reduce(what.dtype, what.reduction, data.data, inputs.data(), world, static_cast<std::size_t>(data.count),
           scales.data());
  }
}

Task share(Group& group, Announcement what, Block input, Blocks outputs) {
  const int world = group.world(), me = group.rank();
  const std::size_t width = element_bytes(what.dtype);
  const bool offers = what.collective != Collective::kBroadcast || what.root == me;
  const std::size_t bytes = offers ? static_cast<std::size_t>(input.count) * width : 0;
  const bool is_small = bytes <= kSmallBytes;
  what.count = input.count;
  const Block to_others = what.collective == Collective::kGather ? Block{} : input;
  Blocks sends(world, to_others);
  if (what.root >= 0) sends[what.root] = input;
  number(group, what);
  if (!is_small) group.allocate_slots();

  std::vector<std::size_t> offered(world, 0);
  for (std::size_t t = 0, rounds = 1; t < rounds; ++t) {
    const int parity = next_parity(group);
    if (t == 0) {
      fill_table(group, sends, outputs);
      announce(group, what);
    }
    unsigned char* own = is_small ? small_slot(group, me, parity) : slot(group, me, parity);
    copy(own, input.data + t * kSlotBytes, piece_at(t, kSlotBytes, bytes));
    co_await next_round(group);
    if (t == 0) {
      agree(group, what);
      for (int rank = 0; rank < world; ++rank) {
        const bool takes_part = what.collective != Collective::kBroadcast || what.root == rank;
        offered[rank] = takes_part ? static_cast<std::size_t>(count_of(group, rank, parity, width)) * width : 0;
        rounds = std::max(rounds, pieces(offered[rank], kSlotBytes));
      }
      for (int rank = 0; rank < world && !outputs.empty(); ++rank) {
        if (offered[rank] > 0) require_equal(offered[rank], outputs[rank], width);
      }
      if (!outputs.empty() && offers) copy(outputs[me].data, input.data, bytes);
    }
    for (int step = 1; step < world && !outputs.empty(); ++step) {
      const int rank = (me + step) % world;
      const bool small = offered[rank] <= kSmallBytes;
      const unsigned char* theirs = small ? small_slot(group, rank, parity) : slot(group, rank, parity);
      copy(outputs[rank].data + t * kSlotBytes, theirs, piece_at(t, kSlotBytes, offered[rank]));
    }
  }
}

namespace {

// The position and the size of the t-th piece of the block that one rank has for another.
struct Place {
  unsigned char* data;
  std::size_t bytes;
};

Place place_of(Group& group, const std::int64_t* sends, bool is_small, int from, int to, int parity, std::size_t t,
               std::size_t width) {
  const std::size_t bytes = static_cast<std::size_t>(sends[to]) * width;
  if (!is_small) {
    const std::size_t piece = share_of_slot(group);
    return {slot(group, from, parity) + to * piece, piece_at(t, piece, bytes)};
  }
  std::size_t before = 0;
  for (int rank = 0; rank < to; ++rank) before += rank == from ? 0 : static_cast<std::size_t>(sends[rank]) * width;
  return {small_slot(group, from, parity) + before, t == 0 ? bytes : 0};
}

// A copy of what the first round announced, whose memory later rounds reuse: the sizes of every rank.
struct Plan {
  std::vector<std::vector<std::int64_t>> sends;
  std::vector<bool> small;
  std::size_t rounds = 1;
};

// Whether all blocks together fit the small slot; `excepted` is the rank whose block stays here, or -1.
bool fit_small_slot(const std::vector<std::int64_t>& counts, int excepted, std::size_t width) {
  std::size_t bytes = 0;
  for (int rank = 0; rank < static_cast<int>(counts.size()); ++rank) {
    if (rank != excepted) bytes += static_cast<std::size_t>(counts[rank]) * width;
  }
  return bytes <= kSmallBytes;
}

std::vector<std::int64_t> counts_of(const Blocks& blocks) {
  std::vector<std::int64_t> counts;
  for (const Block& block : blocks) counts.push_back(block.count);
  return counts;
}

// `outputs` have the sizes that this rank receives; there are none if it receives nothing.
Plan plan_of(Group& group, const Blocks& outputs, bool keeps_own, std::size_t width) {
  Plan plan;
  const int world = group.world(), parity = this_parity(group);
  for (int from = 0; from < world; ++from) {
    plan.sends.push_back(sends_of(group, from, parity, width));
    plan.small.push_back(fit_small_slot(plan.sends[from], keeps_own ? from : -1, width));
    if (!outputs.empty()) {
      require_equal(static_cast<std::size_t>(plan.sends[from][group.rank()]) * width, outputs[from], width);
    }
    for (int to = 0; to < world && !plan.small[from]; ++to) {
      if (to == from) continue;
      plan.rounds =
          std::max(plan.rounds, pieces(static_cast<std::size_t>(plan.sends[from][to]) * width, share_of_slot(group)));
    }
  }
  return plan;
}

void put_in(Group& group, const Blocks& inputs, const std::vector<std::int64_t>& sends, bool is_small, std::size_t t,
            std::size_t width) {
  if (inputs.empty()) return;
  for (int rank = 0; rank < group.world(); ++rank) {
    if (rank == group.rank()) continue;
    const Place place = place_of(group, sends.data(), is_small, group.rank(), rank, next_parity(group), t, width);
    copy(place.data, inputs[rank].data + t * share_of_slot(group), place.bytes);
  }
}

}  // namespace

Task exchange(Group& group, Announcement what, Blocks inputs, Blocks outputs) {
  const int world = group.world(), me = group.rank();
  const std::size_t width = element_bytes(what.dtype);
  const std::vector<std::int64_t> sends = counts_of(inputs);
  const bool is_small = fit_small_slot(sends, me, width);
  number(group, what);
  if (!is_small) group.allocate_slots();
  Plan plan;
  for (std::size_t t = 0; t < plan.rounds; ++t) {
    if (t == 0) {
      fill_table(group, inputs, outputs);
      announce(group, what);
    }
    put_in(group, inputs, sends, is_small, t, width);
    co_await next_round(group);
    if (t == 0) {
      agree(group, what);
      plan = plan_of(group, outputs, true, width);
      if (!inputs.empty() && !outputs.empty())
        copy(outputs[me].data, inputs[me].data, static_cast<std::size_t>(inputs[me].count) * width);
    }
    for (int step = 1; step < world && !outputs.empty(); ++step) {
      const int rank = (me + step) % world;
      const Place place =
          place_of(group, plan.sends[rank].data(), plan.small[rank], rank, me, this_parity(group), t, width);
      copy(outputs[rank].data + t * share_of_slot(group), place.data, place.bytes);
    }
  }
}

Task reduce_scatter_blocks(Group& group, Announcement what, Blocks inputs, Block output) {
  const int world = group.world(), me = group.rank();
  const std::size_t width = element_bytes(what.dtype);
  const std::size_t whole = static_cast<std::size_t>(output.count) * width;
  const std::vector<std::int64_t> sends = counts_of(inputs);
  const bool is_small = fit_small_slot(sends, -1, width);  // all blocks, so that every rank decides the same
  const Blocks outputs(world, output);
  number(group, what);
  if (!is_small) group.allocate_slots();
  Plan plan;
  std::vector<const void*> parts(world);
  std::vector<double> scales;
  for (std::size_t t = 0; t < plan.rounds; ++t) {
    if (t == 0) {
      fill_table(group, inputs, outputs);
      announce(group, what);
    }
    put_in(group, inputs, sends, is_small, t, width);
    co_await next_round(group);
    if (t == 0) {
      agree(group, what);
      plan = plan_of(group, outputs, false, width);
      if (!is_small) plan.rounds = std::max(plan.rounds, pieces(whole, share_of_slot(group)));
      scales = scales_of(group);
    }
    const std::size_t piece = share_of_slot(group), offset = t * piece;
    const std::size_t bytes = is_small ? whole : piece_at(t, piece, whole);
    for (int rank = 0; rank < world; ++rank) {
      parts[rank] =
          place_of(group, plan.sends[rank].data(), plan.small[rank], rank, me, this_parity(group), t, width).data;
    }
    parts[me] = inputs[me].data + offset;
    reduce(what.dtype, what.reduction, output.data + offset, parts.data(), world, bytes / width, scales.data());
  }
}

namespace {

Task tell_of_refusal(Group& group, std::string reason) {
  const std::size_t length = std::min(reason.size(), kMostOfReason);
  Announcement what{Collective::kRefused, Dtype::kUInt8, Reduction::kNone, -1, 0, static_cast<std::int64_t>(length), 1};
  number(group, what);
  announce(group, what);
  copy(small_slot(group, group.rank(), next_parity(group)), reason.data(), length);
  co_await next_round(group);
}

}  // namespace

void refuse(Group& group, const std::string& reason) {
  auto operation = std::make_shared<Operation>();
  operation->name = "refused operation";
  operation->is_refusal = true;
  operation->timeout = milliseconds::max();
  operation->task = tell_of_refusal(group, reason);
  try {
    group.submit(operation);
  } catch (const CommError&) {  // the group has ended, and so have the other ranks' operations
    return;
  }
  try {
    if (!operation->is_finished) Progress::instance().attend(group.shared_from_this());
  } catch (const CommError&) {  // no thread: whoever waits for this group next tells it
  }
}

}  // namespace anyaccel::comm
