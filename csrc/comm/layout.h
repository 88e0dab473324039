// The layout of the memory that the ranks of a group share.
//
//   Header | RankState × world | Link × world² | tables | small slots | big slots × world | letters × world² | streams
//   × world²
//
// Everything up to the small slots is allocated when the group is created. The rest is reserved address space, and a
// rank allocates its part on first use, so a hundred groups that move little data need little memory.

#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "doorbell.h"
#include "elements.h"

namespace anyaccel::comm {

constexpr std::uint64_t kMagic = 0x316d6873'6c656363;  // "ccelshm1"
constexpr std::uint32_t kVersion = 5;                  // of this layout, and of what hosts tell each other
constexpr std::size_t kLine = 128;                     // two cache lines, because CPUs fetch them in pairs
constexpr std::size_t kPage = 4096;
constexpr std::size_t kSmallBytes = 16 << 10;  // a message up to this size needs no big slot
constexpr std::size_t kSlotBytes = 256 << 10;  // half the slots of two ranks fit a core's L2 cache
constexpr std::size_t kStreamBytes = 128 << 10;
constexpr int kLetters = 256;             // how many unread messages a link can hold
constexpr std::size_t kInlineBytes = 96;  // a message up to this size is stored in its letter
constexpr int kMaxWorld = 256;

enum class Collective : std::uint8_t {
  kAllReduce,
  kBroadcast,
  kReduce,
  kAllGather,
  kGather,
  kScatter,
  kReduceScatter,
  kAllToAll,
  kBarrier,
  kRefused,  // whatever the other ranks call: this one had an error, whose text is in its small slot
};

// A rank's description of its next operation. Ranks compare these before any of them writes a result.
struct Announcement {
  Collective collective;
  Dtype dtype;
  Reduction reduction;
  std::int32_t root;       // -1 if there is none
  std::uint64_t sequence;  // the number of the collective in the group
  std::int64_t count;      // elements; of a refusal, characters
  double scale;
  std::uint8_t exact = 0;    // torch's number of the dtype, because kOpaque… only tell the size
  std::uint16_t parts = 0;   // the number of parts of the coalesced operation that it belongs to
  std::uint64_t digest = 0;  // of all these parts; if 0, they must be compared one by one
};

struct alignas(kLine) RankState {
  alignas(kLine) std::atomic<std::uint64_t> posted;  // the number of rounds that this rank has posted
  alignas(kLine) std::atomic<std::uint64_t> read;    // the number of rounds whose data it no longer needs
  alignas(kLine) Doorbell bell;
  alignas(kLine) Announcement announcements[2];  // indexed by the parity of the round
  std::atomic<std::uint32_t> has_left;
  std::int32_t pid;
  std::int32_t global_rank;
  std::atomic<std::uint64_t> process;  // 0 until it has joined; a random number that identifies its process
                                       // across pid namespaces
};

// A message in flight from one rank to another.
struct Letter {
  std::uint64_t bytes;
  std::int32_t tag;
  Dtype dtype;
  unsigned char content[kInlineBytes];
};

enum class Verdict : std::uint32_t { kAccepted, kRefused };

// The receiver's reply to a letter, identified by its number.
struct Answer {
  std::uint64_t letter;
  std::uint64_t bytes;
  Verdict verdict;
  Dtype dtype;
};

// The counters of the messages from one rank to another. They only grow; the index into a ring is the counter modulo
// the ring's length.
struct alignas(kLine) Link {
  alignas(kLine) std::atomic<std::uint64_t> letters_sent;
  std::atomic<std::uint64_t> pieces_sent;
  std::atomic<std::uint64_t> answers_read;
  alignas(kLine) std::atomic<std::uint64_t> letters_read;
  std::atomic<std::uint64_t> pieces_read;
  std::atomic<std::uint64_t> answers_sent;
};

struct Letters {
  Letter letters[kLetters];
  Answer answers[kLetters];
};

// Written by the rank that creates the memory, and checked by every rank that maps it.
struct Identity {
  std::uint64_t magic;
  std::uint64_t bytes;
  std::uint32_t version;
  std::int32_t world;

  friend bool operator==(const Identity&, const Identity&) = default;
};

struct alignas(kPage) Header {
  Identity identity;
  std::atomic<std::uint32_t> failure;  // 0: none, 1: being written, 2: complete
  char failure_text[2048];
};

// Offsets into the mapping. They depend on the number of ranks only.
struct Layout {
  explicit Layout(int ranks);

  std::size_t table(int rank, int parity) const { return tables + (2u * rank + parity) * table_bytes; }
  std::size_t small_slot(int rank, int parity) const { return small_slots + (2u * rank + parity) * kSmallBytes; }
  // slots 0 and 1 hold inputs, slots 2 and 3 hold results of a reduction
  std::size_t slot(int rank, int index) const { return slots + (4u * rank + index) * kSlotBytes; }
  std::size_t link(int from, int to) const { return links + pair(from, to) * sizeof(Link); }
  std::size_t letters_of(int from, int to) const { return letters + pair(from, to) * letters_bytes; }
  std::size_t stream(int from, int to) const { return streams + pair(from, to) * 2 * kStreamBytes; }
  Identity identity() const { return {kMagic, total, kVersion, world}; }
  std::size_t pair(int from, int to) const { return static_cast<std::size_t>(from) * world + to; }

  int world;
  std::size_t table_bytes, states, links, tables, small_slots, slots, letters, letters_bytes, streams, total;
  std::size_t allocated_at_once;
};

}  // namespace anyaccel::comm
