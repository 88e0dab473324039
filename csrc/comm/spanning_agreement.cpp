// How the ranks of a group between hosts agree on what they are about to do, and what they tell each other with that.

#include <algorithm>
#include <cstring>

#include "spanning_backend.h"
#include "spanning_checks.h"

namespace anyaccel::comm {
namespace {

constexpr int kLeader = 0;          // among the ranks of a host
constexpr int64_t kHasFailed = -2;  // in the place of a collective: that rank's host tells why the group is over

// What a rank says to the others that it is about to do.
struct Row {
  int64_t number, collective, type, count, reduction, root, digest, parts;

  friend bool operator==(const Row&, const Row&) = default;
};

bool is_sane(const Row& row) {
  return row.collective >= 0 && row.collective <= static_cast<int64_t>(Collective::kRefused) && row.type >= 0 &&
         row.type < static_cast<int64_t>(at::ScalarType::NumOptions) && row.reduction >= 0 &&
         row.reduction <= static_cast<int64_t>(Reduction::kNone);
}

bool is_of(const Row& row, Collective one) { return row.collective == static_cast<int64_t>(one); }

// Of one element; 0 if the row makes no sense.
int64_t item_bytes_of(const Row& row) {
  return is_sane(row) ? static_cast<int64_t>(c10::elementSize(static_cast<at::ScalarType>(row.type))) : 0;
}

std::string described(const Row& row) {
  if (!is_sane(row)) return "something that no rank of this version says";
  return std::string(name_of(static_cast<Collective>(row.collective))) + " of " + std::to_string(row.count) + " " +
         c10::toString(static_cast<at::ScalarType>(row.type)) + " with " +
         name_of(static_cast<Reduction>(row.reduction)) +
         (row.root >= 0 ? " and root " + std::to_string(row.root) : "") +
         (row.digest != 0 ? ", sizes or layout " + std::to_string(row.digest) : "") +
         (row.parts != 0 ? ", one of " + std::to_string(row.parts) : "");
}

}  // namespace

at::Tensor SpanningBackend::agree(const Request& request, const at::Tensor& rider, Heads* heads) {
  const Row own{number_,
                static_cast<int64_t>(request.collective),
                static_cast<int64_t>(request.type),
                request.count,
                static_cast<int64_t>(request.reduction),
                request.root,
                request.digest,
                request.parts};
  const std::string name = "shm " + std::string(name_of(request.collective)) + " #" + std::to_string(number_);
  const std::string goes_on = " Nothing was written, and the group can continue.";
  constexpr int64_t kRow = sizeof(Row);
  at::Tensor sent = at::zeros({kRow + static_cast<int64_t>(kRiderBytes)}, at::kByte);
  std::memcpy(sent.mutable_data_ptr(), &own, sizeof(Row));
  if (rider.defined()) sent.narrow(0, kRow, rider.numel()).copy_(rider);
  const at::Tensor all_rows = gather_here(sent);
  if (leads()) {
    auto* rows = all_rows.mutable_data_ptr<unsigned char>();
    const auto bytes = static_cast<int64_t>(all_rows[0].nbytes());
    notices_->send(rows + hosts_.own * bytes, bytes);
    notices_->receive(rows, bytes, getBackendOptions()->timeout);
  }
  const at::Tensor gathered = spread_here(all_rows);
  const at::Tensor riders = gathered.narrow(1, kRow, static_cast<int64_t>(kRiderBytes));
  std::vector<Row> rows(size_);
  bool is_same = true;
  std::string all;
  for (int rank = 0; rank < size_; ++rank) {
    std::memcpy(&rows[rank], gathered[rank].const_data_ptr(), sizeof(Row));
    is_same = is_same && rows[rank] == own;
    all += (all.empty() ? "rank " : "; rank ") + std::to_string(rank) + ": " + described(rows[rank]);
  }
  const auto told_by = [&](int rank) {
    const at::Tensor told = riders[rank].narrow(0, 0, std::clamp(rows[rank].count, int64_t{0}, riders.size(1)));
    return printable({static_cast<const char*>(told.const_data_ptr()), static_cast<std::size_t>(told.numel())});
  };
  for (int rank = 0; rank < size_; ++rank) {
    if (rows[rank].collective == kHasFailed)
      throw CommError("the host of rank " + std::to_string(rank) + " says: " + told_by(rank));
  }
  if (is_same) return riders;
  std::vector<Heads::Lengths> begun;
  for (int rank = 0; rank < size_; ++rank) {
    const Row& row = rows[rank];
    if (is_of(row, Collective::kAllToAll) || is_of(row, Collective::kGather) || is_of(row, Collective::kScatter)) {
      begun.push_back(exchanged_by(riders[rank], item_bytes_of(row)));
    } else if (is_of(row, Collective::kBroadcast)) {
      const int64_t bytes = broadcast_head(row.count, item_bytes_of(row));
      begun.push_back(
          {starts_broadcast(row.root, rank, rank_) ? bytes : 0, starts_broadcast(row.root, rank_, rank) ? bytes : 0});
    } else {
      begun.emplace_back();
    }
  }
  Heads none = no_heads();
  (heads ? *heads : none).settle(begun);
  if (request.collective == Collective::kRefused) return riders;
  for (int rank = 0; rank < size_; ++rank) {
    if (rows[rank].collective != static_cast<int64_t>(Collective::kRefused)) continue;
    throw MismatchError(name + " failed: got a refusal by rank " + std::to_string(rank) +
                        "; expected every rank to take part. Fix: correct what that rank's error names. It is: " +
                        told_by(rank) + goes_on);
  }
  throw MismatchError(
      name + " failed: got " + all +
      "; expected the same on every rank. Fix: make every rank call the same operation with tensors alike." + goes_on);
}

// In the place of this host's notice of an operation, as the other hosts wait for one. It is sent at most a second
// long, and to each that is there.
void SpanningBackend::tell_other_hosts(const std::string& failure) {
  const std::string told = failure.substr(0, kRiderBytes);
  const Row row{number_, kHasFailed, 0, static_cast<int64_t>(told.size()), 0, -1, 0, 0};
  std::vector<unsigned char> notice(most_ranks_of_a_host() * (sizeof(Row) + kRiderBytes));
  std::memcpy(notice.data(), &row, sizeof(Row));
  std::memcpy(notice.data() + sizeof(Row), told.data(), told.size());
  notices_->tell(notice.data(), static_cast<int64_t>(notice.size()), std::chrono::seconds(1));
}

int64_t SpanningBackend::most_ranks_of_a_host() const {
  std::size_t most = 0;
  for (const std::vector<int>& ranks : hosts_.ranks) most = std::max(most, ranks.size());
  return static_cast<int64_t>(most);
}

// A row of bytes for each host, with a place for each of its ranks. Fills in this host's.
at::Tensor SpanningBackend::gather_here(const at::Tensor& bytes) {
  at::Tensor all =
      at::zeros({static_cast<int64_t>(hosts_.ranks.size()), most_ranks_of_a_host(), bytes.numel()}, bytes.options());
  at::Tensor here = all[hosts_.own].narrow(0, 0, static_cast<int64_t>(hosts_.ranks[hosts_.own].size())).view(-1);
  at::Tensor sent = bytes;
  finish(local_->_allgather_base(here, sent, inline_options<c10d::AllgatherOptions>()));
  return all;
}

// Gives this host's ranks what its first has of all hosts. Returns a row for each rank, in the order of ranks.
at::Tensor SpanningBackend::spread_here(const at::Tensor& all) {
  Tensors everything{all};
  finish(local_->broadcast(everything, inline_options<c10d::BroadcastOptions>()));
  at::Tensor rows = at::empty({size_, all.size(2)}, all.options());
  for (std::size_t host = 0; host < hosts_.ranks.size(); ++host) {
    for (std::size_t i = 0; i < hosts_.ranks[host].size(); ++i) {
      rows[hosts_.ranks[host][i]].copy_(all[static_cast<int64_t>(host)][static_cast<int64_t>(i)]);
    }
  }
  return rows;
}

// A row for each rank, in the order of ranks.
at::Tensor SpanningBackend::gather_everywhere(const at::Tensor& input) {
  if (input.numel() == 0) return at::empty({size_, 0}, input.options());
  const at::Tensor all = gather_here(as_bytes(plain(input)));
  std::vector<Tensors> outputs{all.unbind(0)};
  Tensors inputs{all[hosts_.own].clone()};
  between_hosts([&](c10d::Backend& leaders) { return leaders.allgather(outputs, inputs, c10d::AllgatherOptions()); });
  return spread_here(all).view(input.scalar_type());
}

bool SpanningBackend::do_sizes_ride() const { return 2 * size_ * sizeof(int64_t) <= kRiderBytes; }

Heads SpanningBackend::no_heads() {
  std::vector<bool> here;
  for (int rank = 0; rank < size_; ++rank) here.push_back(is_here(rank));
  return {rank_, here, everyone_wire_, longest_wait()};
}

// The heads that a rank has begun with this one, which has said it in its rider.
Heads::Lengths SpanningBackend::exchanged_by(const at::Tensor& rider, int64_t item_bytes) const {
  if (!do_sizes_ride()) return {};
  std::vector<int64_t> counts(2 * size_);
  std::memcpy(counts.data(), rider.const_data_ptr(), counts.size() * sizeof(int64_t));
  return {Heads::length(counts[rank_], item_bytes), Heads::length(counts[size_ + rank_], item_bytes)};
}

// The hosts share what one host sends ahead, so that a broadcast to many does not take longer than their tree.
int64_t SpanningBackend::broadcast_head(int64_t count, int64_t item_bytes) const {
  const auto others = static_cast<int64_t>(hosts_.ranks.size()) - 1;
  return std::min(Heads::length(count, item_bytes), Heads::kMost / others);
}

bool SpanningBackend::starts_broadcast(int64_t root, int from, int to) const {
  return from == root && host_of(from) != host_of(to) && local_rank_of(to) == kLeader;
}

void SpanningBackend::agree_on_sizes(const Request& request, const Tensors& sends, const Tensors& receives,
                                     Heads& heads) {
  const at::Tensor own = at::empty({2, size_}, at::kLong);
  for (int rank = 0; rank < size_; ++rank) {
    own[0][rank] = sends[rank].numel();
    own[1][rank] = receives[rank].numel();
  }
  const bool ride = do_sizes_ride();
  const at::Tensor said = agree(request, ride ? as_bytes(own) : at::Tensor(), &heads);
  const at::Tensor all = ride ? said.narrow(1, 0, static_cast<int64_t>(own.nbytes())).contiguous().view(at::kLong)
                              : gather_everywhere(own);
  const at::Tensor table = all.view({size_, 2, size_});
  const auto sizes = table.accessor<int64_t, 3>();
  for (int from = 0; from < size_; ++from) {
    for (int to = 0; to < size_; ++to) {
      if (sizes[from][0][to] == sizes[to][1][from]) continue;
      std::vector<Heads::Lengths> begun;
      for (int rank = 0; rank < size_; ++rank) {
        begun.push_back(exchanged_by(said[rank], static_cast<int64_t>(c10::elementSize(request.type))));
      }
      heads.settle(begun);
      throw MismatchError(
          "shm " + std::string(name_of(request.collective)) + " #" + std::to_string(number_) + " failed: got " +
          std::to_string(sizes[from][0][to]) + " elements that rank " + std::to_string(from) + " sends to rank " +
          std::to_string(to) + ", which expects " + std::to_string(sizes[to][1][from]) +
          "; expected one size. Fix: pass equal split sizes on both ranks. Nothing was written, and the group can "
          "continue.");
    }
  }
}

}  // namespace anyaccel::comm
