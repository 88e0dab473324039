// What ranks of several hosts send each other before they agree, and what leaders tell each other.

#include <algorithm>
#include <barrier>
#include <deque>
#include <memory>
#include <random>
#include <thread>

#include "spanning_heads.h"
#include "spanning_notices.h"
#include "stand_in_wire.h"
#include "support.h"

namespace {

using namespace fuzz;
using comm::Heads;
using Bytes = std::vector<unsigned char>;

// What a rank exchanges in a turn, or no exchange: its `width` is 0.
struct Wish {
  std::int64_t width = 0;
  std::vector<std::int64_t> sends, receives;  // elements, by rank

  friend bool operator==(const Wish&, const Wish&) = default;
};

// The lengths are those that make a difference: none, few, and around the most that is sent ahead.
std::int64_t length_from(std::mt19937_64& random) {
  constexpr std::int64_t kEdges[] = {0, 1, 8, Heads::kMost - 8, Heads::kMost, Heads::kMost + 8};
  return random() % 24 == 0 ? kEdges[random() % std::size(kEdges)] : static_cast<std::int64_t>(random() % 40) * 8;
}

std::vector<Wish> wishes_from(std::mt19937_64& random, int world) {
  constexpr std::int64_t kWidths[] = {1, 2, 4, 8};
  std::vector<Wish> wishes(world);
  const std::int64_t width = kWidths[random() % std::size(kWidths)];
  for (Wish& one : wishes) one = {width, std::vector<std::int64_t>(world), std::vector<std::int64_t>(world)};
  for (int from = 0; from < world; ++from) {
    for (int to = 0; to < world; ++to) {
      wishes[from].sends[to] = wishes[to].receives[from] = length_from(random) / width;
    }
  }
  while (random() % 2 == 0) {  // someone wants something else
    Wish& other = wishes[random() % world];
    const auto kind = random() % 4;
    if (kind == 0) other.width = 0;
    if (kind == 1) other.width = kWidths[random() % std::size(kWidths)];
    if (kind >= 2) (kind == 2 ? other.sends : other.receives)[random() % world] = length_from(random) / width;
  }
  return wishes;
}

bool fit(const std::vector<Wish>& wishes) {
  for (std::size_t from = 0; from < wishes.size(); ++from) {
    if (wishes[from].width == 0 || wishes[from].width != wishes[0].width) return false;
    for (std::size_t to = 0; to < wishes.size(); ++to) {
      if (wishes[from].sends[to] != wishes[to].receives[from]) return false;
    }
  }
  return true;
}

Bytes content(std::uint64_t turn, int from, int to, std::int64_t bytes) {
  Bytes made(bytes);
  for (std::int64_t i = 0; i < bytes; ++i) made[i] = static_cast<unsigned char>(turn * 31 + from * 7 + to * 3 + i);
  return made;
}

Blocks blocks_of(std::vector<Bytes>& all) {
  Blocks blocks;
  for (Bytes& one : all) blocks.push_back(block_of(one));
  return blocks;
}

// One rank's part of a turn. The others' wishes are known, like after an agreement.
void take_turn(std::uint64_t turn, int me, const std::vector<Wish>& wishes, const std::vector<bool>& is_here,
               comm::Wire& wire, std::barrier<>& agreement) {
  const Wish& own = wishes[me];
  const int world = static_cast<int>(wishes.size());
  std::vector<Bytes> sends, receives, untouched;
  for (int rank = 0; rank < world; ++rank) {
    sends.push_back(content(turn, me, rank, own.sends[rank] * own.width));
    receives.emplace_back(own.receives[rank] * own.width, 0xee);
  }
  untouched = receives;
  Heads heads(me, is_here, wire, std::chrono::seconds(60));
  if (own.width > 0) heads.begin(blocks_of(sends), blocks_of(receives));
  agreement.arrive_and_wait();
  if (fit(wishes)) {
    heads.finish(blocks_of(receives));
    for (int rank = 0; rank < world; ++rank) {
      const std::int64_t come = heads.begun(rank).received;
      require(come == (is_here[rank] ? 0 : Heads::length(own.receives[rank], own.width)), "another length of a head");
      const Bytes expected = content(turn, rank, me, come);
      require(std::equal(expected.begin(), expected.end(), receives[rank].begin()), "another head");
      require(std::equal(receives[rank].begin() + come, receives[rank].end(), untouched[rank].begin() + come),
              "more than a head was written");
    }
    return;
  }
  std::vector<Heads::Lengths> others;
  for (const Wish& other : wishes) {
    others.push_back({Heads::length(other.sends[me], other.width), Heads::length(other.receives[me], other.width)});
  }
  heads.settle(others);
  require(receives == untouched, "ranks disagreed, and something was written");
}

// Nothing separates the turns: what one left would meet the next.
void exchange_heads(std::uint64_t seed, int turns) {
  std::mt19937_64 random(seed);
  const int world = 2 + static_cast<int>(random() % 4);
  std::vector<std::uint64_t> hosts;
  for (int rank = 0; rank < world; ++rank) hosts.push_back(random() % 3);
  std::vector<std::vector<Wish>> wishes;
  for (int turn = 0; turn < turns; ++turn) wishes.push_back(wishes_from(random, world));
  Cable cable;
  std::barrier agreement(world);
  std::vector<std::thread> ranks;
  for (int me = 0; me < world; ++me) {
    ranks.emplace_back([&, me] {
      std::vector<bool> is_here;
      for (const std::uint64_t host : hosts) is_here.push_back(host == hosts[me]);
      Cable::Plug plug(cable, me);
      for (int turn = 0; turn < turns; ++turn) take_turn(turn, me, wishes[turn], is_here, plug, agreement);
    });
  }
  for (std::thread& one : ranks) one.join();
  require(cable.left() == 0, "messages that nobody takes are left");
}

// Lengths that another rank may say, whatever they are.
void clamp_lengths() {
  constexpr auto kLargest = std::numeric_limits<std::int64_t>::max(), kLeast = std::numeric_limits<std::int64_t>::min();
  require(Heads::length(kLargest, 16) == Heads::kMost, "the largest length");
  require(Heads::length(kLeast, 16) == 0 && Heads::length(-1, 8) == 0, "a length below 0");
  require(Heads::length(kLargest, 0) == 0, "a length of nothing");
  require(Heads::length(3, 8) == 24, "a length");
  require(Heads::kFirstTag + Heads::kMost < std::numeric_limits<int>::max() - 1, "tags of heads meet other tags");
}

void tell_notices(int hosts, int count) {
  constexpr std::int64_t kBytes = 100;
  Cable cable;
  std::vector<std::thread> leaders;
  for (int me = 0; me < hosts; ++me) {
    leaders.emplace_back([&, me] {
      Cable::Plug plug(cable, me);
      comm::Notices notices(plug, me, hosts);
      for (int number = 0; number < count; ++number) {
        notices.send(content(number, me, 0, kBytes).data(), kBytes);
        Bytes rows(hosts * kBytes);
        notices.receive(rows.data(), kBytes, kPatience);
        for (int host = 0; host < hosts; ++host) {
          const Bytes expected = host == me ? Bytes(kBytes) : content(number, host, 0, kBytes);
          require(std::equal(expected.begin(), expected.end(), rows.begin() + host * kBytes), "another notice");
        }
      }
    });
  }
  for (std::thread& one : leaders) one.join();
}

// A leader that has all notices may end at once. The others then have all of theirs too, and learn of it afterwards.
void leave_after_the_last_notice(int hosts) {
  constexpr std::int64_t kBytes = 100;
  Cable cable;
  std::vector<std::unique_ptr<Cable::Plug>> plugs;
  std::deque<comm::Notices> leaders;
  for (int me = 0; me < hosts; ++me) {
    plugs.push_back(std::make_unique<Cable::Plug>(cable, me));
    leaders.emplace_back(*plugs[me], me, hosts);
  }
  for (int me = 0; me < hosts; ++me) leaders[me].send(content(1, me, 0, kBytes).data(), kBytes);
  for (int me = 0; me < hosts; ++me) {
    Bytes rows(hosts * kBytes);
    leaders[me].receive(rows.data(), kBytes, kPatience);
    for (int host = 0; host < hosts; ++host) {
      const Bytes expected = host == me ? Bytes(kBytes) : content(1, host, 0, kBytes);
      require(std::equal(expected.begin(), expected.end(), rows.begin() + host * kBytes), "another notice");
    }
    plugs[me]->leave();
  }
  bool is_over = false;
  try {
    leaders[0].send(content(2, 0, 0, kBytes).data(), kBytes);
  } catch (const comm::CommError&) {
    is_over = true;
  }
  require(is_over, "a notice to a leader that has left");
}

// A leader that gives up leaves its memory to nobody.
void give_up_on_a_late_leader() {
  constexpr std::int64_t kBytes = 100;
  Cable cable;
  Cable::Plug early_plug(cable, 0), late_plug(cable, 1);
  comm::Notices late(late_plug, 1, 2);
  {
    comm::Notices early(early_plug, 0, 2);
    early.send(content(1, 0, 0, kBytes).data(), kBytes);
    Bytes rows(2 * kBytes);
    bool is_over = false;
    try {
      early.receive(rows.data(), kBytes, comm::milliseconds(10));
    } catch (const comm::CommError&) {
      is_over = true;
    }
    require(is_over, "a notice that nobody has sent");
  }
  late.send(content(1, 1, 0, kBytes).data(), kBytes);
}

// What a rank sends in place of what it has not begun can be read when it has given up.
void give_up_on_a_late_rank() {
  constexpr std::int64_t kBytes = 1000;
  Cable cable(comm::milliseconds(10));
  Cable::Plug early_plug(cable, 0), late_plug(cable, 1);
  Heads early(0, {true, false}, early_plug, comm::milliseconds(10));
  bool is_over = false;
  try {
    early.settle({{}, {0, kBytes}});
  } catch (const comm::CommError&) {
    is_over = true;
  }
  require(is_over, "a rank that does not come");
  Bytes come(kBytes, 1);
  late_plug.receive(come.data(), kBytes, 0, Heads::kFirstTag + kBytes)->wait(comm::milliseconds::zero());
  require(come == Bytes(kBytes), "what a rank did not begin");
}

}  // namespace

void fuzz::check_between_hosts() {
  clamp_lengths();
  give_up_on_a_late_leader();
  give_up_on_a_late_rank();
  leave_after_the_last_notice(2);
  leave_after_the_last_notice(5);
  tell_notices(2, 200);
  tell_notices(4, 200);
  for (std::uint64_t seed = 0; seed < 12; ++seed) exchange_heads(seed, 25);
}
