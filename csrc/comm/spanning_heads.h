// The first bytes of the parts that ranks of different hosts exchange, which travel while the ranks agree.
//
// They arrive in memory of their own, so that nothing is written before all agree. The tag of such a message says its
// length, so that ranks which disagree on it do not pair. Each rank then sends and receives what the others still wait
// for: whatever was begun ends, and nothing is left that a later message could pair with.

#pragma once

#include <limits>
#include <utility>
#include <vector>

#include "collectives.h"
#include "wire.h"

namespace anyaccel::comm {

class Heads {
 public:
  // Of bytes that are exchanged with a rank.
  struct Lengths {
    std::int64_t sent = 0, received = 0;
  };

  static constexpr std::int64_t kMost = 1 << 20;  // of one part: what a fast cable carries in the time of an agreement
  static constexpr int kFirstTag = std::numeric_limits<int>::max() - (1 << 21);  // and the next million

  // Exchanges nothing with ranks of this host.
  Heads(int rank, std::vector<bool> is_here, Wire& everyone, milliseconds timeout)
      : rank_(rank), is_here_(std::move(is_here)), everyone_(everyone), timeout_(timeout), begun_(is_here_.size()) {}

  // Of a part's head, also of one that makes no sense.
  static std::int64_t length(std::int64_t count, std::int64_t item_bytes);

  // Sends and receives the heads of parts, one of bytes for each rank. Those that are sent have to outlive this.
  void begin(const Blocks& sends, const Blocks& receives);
  const Lengths& begun(int rank) const { return begun_[rank]; }
  // Waits, and writes what has come into the parts.
  void finish(const Blocks& receives);
  // Ends what this rank and others have begun, where they differ. `others` are their lengths, as they see this rank.
  void settle(const std::vector<Lengths>& others);

 private:
  void send_to(int rank, const unsigned char* data, std::int64_t bytes);
  // Into new memory. Returns where.
  const unsigned char* receive_from(int rank, std::int64_t bytes);
  int next(int distance) const { return (rank_ + distance) % static_cast<int>(is_here_.size()); }
  void wait();

  const int rank_;
  const std::vector<bool> is_here_;
  Wire& everyone_;
  const milliseconds timeout_;
  std::vector<Lengths> begun_;                  // with each rank
  std::vector<const unsigned char*> arriving_;  // by rank; in the memory of `received_`
  std::vector<OwnedMessage> received_;
  std::vector<Wire::MessagePtr> sent_;
};

}  // namespace anyaccel::comm
