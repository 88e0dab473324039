#include "collectives.h"

#include <algorithm>
#include <cstring>

#include "agreement.h"

namespace anyaccel::comm {
namespace {

void copy(void* to, const void* from, std::size_t bytes) {
  if (bytes > 0 && to != from) std::memmove(to, from, bytes);
}

auto next_round(Group& group) {
  group.post();
  return until([&group] { return group.everyone_posted(); });
}

std::size_t rounded_up(std::size_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

std::size_t pieces(std::size_t bytes, std::size_t piece) { return (bytes + piece - 1) / piece; }

// What is left of `bytes` at the t-th piece, at most a piece.
std::size_t piece_at(std::size_t t, std::size_t piece, std::size_t bytes) {
  return t * piece >= bytes ? 0 : std::min(piece, bytes - t * piece);
}

unsigned char* slot(Group& group, int rank, int index) {
  return group.segment().at<unsigned char>(group.segment().layout.slot(rank, index));
}

unsigned char* small_slot(Group& group, int rank, int parity) {
  return group.segment().at<unsigned char>(group.segment().layout.small_slot(rank, parity));
}

// A slot divided among the ranks: the part for one of them.
std::size_t share_of_slot(const Group& group) {
  return kSlotBytes / static_cast<std::size_t>(group.world()) / kLine * kLine;
}

void announce(Group& group, const Announcement& what) {
  announcement_of(group, group.rank(), next_parity(group)) = what;
  if (!what.is_small) group.allocate_slots();
}

void fill_table(Group& group, const Blocks& sends, const Blocks& receives) {
  const Table table = table_of(group, group.rank(), next_parity(group));
  for (int rank = 0; rank < group.world(); ++rank) {
    table.sends[rank] = sends.empty() ? 0 : sends[rank].count;
    table.receives[rank] = receives.empty() ? 0 : receives[rank].count;
  }
}

std::vector<double> scales_of(Group& group) {
  std::vector<double> scales;
  for (int rank = 0; rank < group.world(); ++rank) {
    scales.push_back(announcement_of(group, rank, this_parity(group)).scale);
  }
  return scales;
}

// A part of a chunk in the care of one rank.
struct Part {
  std::size_t start, bytes;
};

Part part_of(std::size_t start, std::size_t bytes, int world, int rank) {
  const std::size_t step = rounded_up((bytes + world - 1) / world);
  const std::size_t first = std::min(step * rank, bytes);
  return {start + first, std::min(step, bytes - first)};
}

}  // namespace

// In each round a rank puts in its values of one chunk for the others, reduces its own part of the chunk before, and
// after the round takes the others' parts of that.
Task all_reduce(Group& group, Announcement what, Block data) {
  const int world = group.world(), me = group.rank();
  const std::size_t bytes = static_cast<std::size_t>(data.count) * element_bytes(what.dtype);
  const bool keeps = what.root < 0 || what.root == me;
  what.is_small = bytes <= kSmallBytes;
  announce(group, what);
  const std::size_t piece = share_of_slot(group), chunk = piece * world;
  const std::size_t rounds = what.is_small ? 0 : pieces(bytes, chunk);
  std::vector<const void*> inputs(world);
  std::vector<double> scales;

  if (what.is_small) copy(small_slot(group, me, next_parity(group)), data.data, bytes);
  for (std::size_t t = 0; t <= rounds; ++t) {
    const int parity = next_parity(group);
    const std::size_t filling = piece_at(t, chunk, bytes), reducing = t > 0 ? piece_at(t - 1, chunk, bytes) : 0;
    for (int rank = 0; rank < world && !what.is_small; ++rank) {
      const Part part = part_of(t * chunk, filling, world, rank);
      if (rank != me) copy(slot(group, me, parity) + rank * piece, data.data + part.start, part.bytes);
    }
    if (reducing > 0) {
      const Part part = part_of((t - 1) * chunk, reducing, world, me);
      for (int rank = 0; rank < world; ++rank) inputs[rank] = slot(group, rank, 1 - parity) + me * piece;
      inputs[me] = data.data + part.start;
      unsigned char* result = slot(group, me, 2 + parity);
      reduce(what.dtype, what.reduction, result, inputs.data(), world, part.bytes / element_bytes(what.dtype),
             scales.data());
      if (keeps) copy(data.data + part.start, result, part.bytes);
    }
    co_await next_round(group);
    if (t == 0) {
      require_agreement(group);
      scales = scales_of(group);
    }
    for (int rank = 0; rank < world && reducing > 0 && keeps; ++rank) {
      const Part part = part_of((t - 1) * chunk, reducing, world, rank);
      if (rank != me) copy(data.data + part.start, slot(group, rank, 2 + parity), part.bytes);
    }
  }
  if (what.is_small && keeps) {
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
  what.is_small = bytes <= kSmallBytes;
  what.count = input.count;
  const Block to_others = what.collective == Collective::kGather ? Block{} : input;
  Blocks sends(world, to_others);
  if (what.root >= 0) sends[what.root] = input;
  fill_table(group, sends, outputs);
  announce(group, what);

  std::vector<std::size_t> offered(world, 0);
  std::vector<bool> small(world, false);
  for (std::size_t t = 0, rounds = 1; t < rounds; ++t) {
    const int parity = next_parity(group);
    unsigned char* own = what.is_small ? small_slot(group, me, parity) : slot(group, me, parity);
    copy(own, input.data + t * kSlotBytes, piece_at(t, kSlotBytes, bytes));
    co_await next_round(group);
    if (t == 0) {
      require_agreement(group);
      for (int rank = 0; rank < world; ++rank) {
        const Announcement& one = announcement_of(group, rank, parity);
        const bool takes_part = one.collective != Collective::kBroadcast || one.root == rank;
        offered[rank] = takes_part ? static_cast<std::size_t>(one.count) * width : 0;
        small[rank] = one.is_small;
        rounds = std::max(rounds, pieces(offered[rank], kSlotBytes));
      }
      if (!outputs.empty() && offers) copy(outputs[me].data, input.data, bytes);
    }
    for (int step = 1; step < world && !outputs.empty(); ++step) {
      const int rank = (me + step) % world;
      const unsigned char* theirs = small[rank] ? small_slot(group, rank, parity) : slot(group, rank, parity);
      copy(outputs[rank].data + t * kSlotBytes, theirs, piece_at(t, kSlotBytes, offered[rank]));
    }
  }
}

namespace {

// Where the t-th piece of a rank's block for another is, and how long it is.
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

// What is left of the opening round when its memory is used again: everyone's sizes.
struct Plan {
  std::vector<std::vector<std::int64_t>> sends;
  std::vector<bool> small;
  std::size_t rounds = 1;
};

Plan plan_of(Group& group, std::size_t width) {
  Plan plan;
  const int world = group.world(), parity = this_parity(group);
  for (int from = 0; from < world; ++from) {
    const std::int64_t* sends = table_of(group, from, parity).sends;
    plan.sends.emplace_back(sends, sends + world);
    plan.small.push_back(announcement_of(group, from, parity).is_small);
    for (int to = 0; to < world && !plan.small[from]; ++to) {
      if (to == from) continue;
      plan.rounds = std::max(plan.rounds, pieces(static_cast<std::size_t>(sends[to]) * width, share_of_slot(group)));
    }
  }
  return plan;
}

// Whether all blocks together fit the small slot; `excepted` is the rank whose block stays here, or -1.
bool is_small(const Blocks& inputs, int excepted, std::size_t width) {
  std::size_t bytes = 0;
  for (int rank = 0; rank < static_cast<int>(inputs.size()); ++rank) {
    if (rank != excepted) bytes += static_cast<std::size_t>(inputs[rank].count) * width;
  }
  return bytes <= kSmallBytes;
}

void put_in(Group& group, const Blocks& inputs, bool is_small, std::size_t t, std::size_t width) {
  if (inputs.empty()) return;
  std::vector<std::int64_t> sends;
  for (const Block& input : inputs) sends.push_back(input.count);
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
  what.is_small = is_small(inputs, me, width);
  fill_table(group, inputs, outputs);
  announce(group, what);
  Plan plan;
  for (std::size_t t = 0; t < plan.rounds; ++t) {
    put_in(group, inputs, what.is_small, t, width);
    co_await next_round(group);
    if (t == 0) {
      require_agreement(group);
      plan = plan_of(group, width);
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
  what.is_small = is_small(inputs, -1, width);  // of all blocks, so that every rank says the same
  fill_table(group, inputs, Blocks(world, output));
  announce(group, what);
  Plan plan;
  std::vector<const void*> parts(world);
  std::vector<double> scales;
  for (std::size_t t = 0; t < plan.rounds; ++t) {
    put_in(group, inputs, what.is_small, t, width);
    co_await next_round(group);
    if (t == 0) {
      require_agreement(group);
      plan = plan_of(group, width);
      if (!what.is_small) plan.rounds = std::max(plan.rounds, pieces(whole, share_of_slot(group)));
      scales = scales_of(group);
    }
    const std::size_t piece = share_of_slot(group), offset = t * piece;
    const std::size_t bytes = what.is_small ? whole : piece_at(t, piece, whole);
    for (int rank = 0; rank < world; ++rank) {
      parts[rank] =
          place_of(group, plan.sends[rank].data(), plan.small[rank], rank, me, this_parity(group), t, width).data;
    }
    parts[me] = inputs[me].data + offset;
    reduce(what.dtype, what.reduction, output.data + offset, parts.data(), world, bytes / width, scales.data());
  }
}

Task in_turn(std::vector<Task> tasks) {
  for (Task& task : tasks) co_await task;
}

}  // namespace anyaccel::comm
