// The first bytes of the parts that ranks of different hosts exchange, which travel while the ranks agree.
//
// They arrive in memory of their own, so that nothing is written before all agree. The tag of such a message says its
// length, so that ranks which disagree on it do not pair. Each rank then sends and receives what the others still wait
// for: whatever was begun ends, and nothing is left that a later message could pair with.

#pragma once

#include <utility>
#include <vector>

#include "shm_backend.h"

namespace anyaccel::comm {

class Heads {
 public:
  // Of bytes that are exchanged with a rank.
  struct Lengths {
    int64_t sent = 0, received = 0;
  };

  static constexpr int64_t kMost = 1 << 20;  // of one part: what a fast cable carries in the time of an agreement

  // Exchanges nothing with ranks of this host.
  Heads(int rank, std::vector<bool> is_here, c10d::Backend& everyone)
      : rank_(rank), is_here_(std::move(is_here)), everyone_(everyone), begun_(is_here_.size()) {}

  static int64_t length(int64_t count, int64_t item_bytes);  // of a part's head, also of one that makes no sense

  // Sends and receives the heads of parts, one for each rank.
  void begin(const Tensors& sends, const Tensors& receives);
  const Lengths& begun(int rank) const { return begun_[rank]; }
  // Waits, and writes what has come into the parts.
  void finish(const Tensors& receives);
  // Ends what this rank and others have begun, where they differ. `others` are their lengths, as they see this rank.
  void settle(const std::vector<Lengths>& others);

 private:
  void send_to(int rank, const at::Tensor& head);
  void receive_from(int rank, const at::Tensor& head);
  int next(int distance) const { return (rank_ + distance) % static_cast<int>(is_here_.size()); }
  void wait();

  const int rank_;
  const std::vector<bool> is_here_;
  c10d::Backend& everyone_;
  std::vector<Lengths> begun_;  // with each rank
  Tensors arriving_;            // by rank
  std::vector<WorkPtr> works_;
};

}  // namespace anyaccel::comm
