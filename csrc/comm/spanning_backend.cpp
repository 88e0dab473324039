#include "spanning_backend.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "spanning_checks.h"
#include "spanning_queue.h"

namespace anyaccel::comm {
namespace {

constexpr int kLeader = 0;  // among the ranks of a host

// What a rank says to the others that it is about to do.
struct Row {
  int64_t number, collective, type, count, reduction, root, digest;

  friend bool operator==(const Row&, const Row&) = default;
};

bool is_sane(const Row& row) {
  return row.collective >= 0 && row.collective <= static_cast<int64_t>(Collective::kRefused) && row.type >= 0 &&
         row.type < static_cast<int64_t>(at::ScalarType::NumOptions) && row.reduction >= 0 &&
         row.reduction <= static_cast<int64_t>(Reduction::kNone);
}

// The size of the elements whose exchange a rank has begun, or 0.
int64_t begun_item_bytes(const Row& row) {
  constexpr Collective kExchanges[] = {Collective::kAllToAll, Collective::kGather, Collective::kScatter};
  const bool exchanges = std::any_of(std::begin(kExchanges), std::end(kExchanges),
                                     [&](Collective one) { return row.collective == static_cast<int64_t>(one); });
  return exchanges && is_sane(row) ? static_cast<int64_t>(c10::elementSize(static_cast<at::ScalarType>(row.type))) : 0;
}

std::string described(const Row& row) {
  if (!is_sane(row)) return "something that no rank of this version says";
  return std::string(name_of(static_cast<Collective>(row.collective))) + " of " + std::to_string(row.count) + " " +
         c10::toString(static_cast<at::ScalarType>(row.type)) + " with " +
         name_of(static_cast<Reduction>(row.reduction)) +
         (row.root >= 0 ? " and root " + std::to_string(row.root) : "") +
         (row.digest != 0 ? ", sizes or layout " + std::to_string(row.digest) : "");
}

}  // namespace

SpanningBackend::SpanningBackend(int rank, int size, Hosts hosts, GroupPtr group, c10::intrusive_ptr<ShmBackend> local,
                                 c10::intrusive_ptr<c10d::Backend> leaders, c10::intrusive_ptr<c10d::Backend> everyone)
    : Backend(rank, size),
      hosts_(std::move(hosts)),
      places_(size),
      group_(std::move(group)),
      local_(std::move(local)),
      leaders_(std::move(leaders)),
      everyone_(std::move(everyone)),
      leaders_wire_(leaders_),
      everyone_wire_(everyone_),
      messages_(std::make_shared<OpenMessages>()),
      any_source_(std::make_shared<AnySource>(group_, hosts_.ranks[hosts_.own], size, everyone_, messages_)),
      queue_(std::make_shared<Queue>()) {
  for (std::size_t host = 0; host < hosts_.ranks.size(); ++host) {
    const std::vector<int>& ranks = hosts_.ranks[host];
    for (std::size_t i = 0; i < ranks.size(); ++i) places_[ranks[i]] = {static_cast<int>(host), static_cast<int>(i)};
    are_hosts_alike_ = are_hosts_alike_ && ranks.size() == hosts_.ranks[0].size();
  }
  if (leads()) notices_.emplace(leaders_wire_, hosts_.own, hosts_.ranks.size());
  any_source_->start();
}

SpanningBackend::~SpanningBackend() {
  if (!group_->is_forked()) shutdown();
}

void SpanningBackend::setTimeout(std::chrono::milliseconds timeout) {
  local_->setTimeout(timeout);
  if (leads()) leaders_->setTimeout(timeout);
  everyone_->setTimeout(timeout);
}

void SpanningBackend::startCoalescing() {
  is_coalescing_ = true;
  coalesced_.clear();
}

WorkPtr SpanningBackend::endCoalescing() {
  is_coalescing_ = false;
  return c10::make_intrusive<CoalescedWork>(rank_, std::exchange(coalesced_, {}));
}

void SpanningBackend::require_usable() const {
  try {
    group_->require_usable();
  } catch (const CommError& error) {
    throw_backend_error(error.what());
  }
}

WorkPtr SpanningBackend::collected(WorkPtr work) {
  if (is_coalescing_) coalesced_.push_back(work);
  return work;
}

WorkPtr SpanningBackend::enqueue(Turn& turn, Queued what, std::function<void()> run) {
  require_usable();
  auto work = c10::make_intrusive<QueuedWork>(group_, rank_, what.type, what.title, what.inputs, what.outputs);
  ++sequence_;
  turn.is_taken = true;
  const bool is_queued =
      Queue::push(queue_, {c10::intrusive_ptr<SpanningBackend>::reclaim_copy(this), work, std::move(run), 0});
  TORCH_CHECK(is_queued, "shm failed: the process group was shut down. Fix: call init_process_group again.");
  if (!what.is_async && !is_coalescing_) work->wait(kNoTimeout);
  return collected(work);
}

// Takes this rank's part in a collective that it refuses.
void SpanningBackend::refuse(const std::string& reason) {
  if (group_->is_forked() || group_->has_failed()) return;
  const auto tell = [this, told = reason.substr(0, kRiderBytes)] {
    const at::Tensor rider = at::empty({static_cast<int64_t>(told.size())}, at::kByte);
    std::memcpy(rider.mutable_data_ptr(), told.data(), told.size());
    agree({Collective::kRefused, at::kByte, rider.numel()}, rider);
  };
  Queue::push(queue_, {c10::intrusive_ptr<SpanningBackend>::reclaim_copy(this), nullptr, tell, 0});
}

void SpanningBackend::wait_for_queued_operations() {
  std::unique_lock lock(queue_->mutex);
  while (!queue_->changed.wait_for(lock, kSupervision, [this] { return queue_->unfinished == 0; })) {
    lock.unlock();
    if (interrupt) interrupt();
    lock.lock();
  }
}

// Ranks that disagree all know it, and are in step. After any other error this one is not, and ends the group.
void SpanningBackend::run_in_step(const std::function<void()>& run) {
  try {
    run();
  } catch (const MismatchError& error) {
    throw_backend_error(error.what());
  } catch (const std::exception& error) {
    group_->fail(std::string("shm failed between hosts, seen by ") + group_->name_of_rank(group_->rank()) + ": " +
                 error.what());
    if (leads()) leaders_->abort();
    everyone_->abort();
    throw;
  }
}

void SpanningBackend::between_hosts(const std::function<WorkPtr(c10d::Backend&)>& call) {
  if (leads()) finish(call(*leaders_));
}

at::Tensor SpanningBackend::agree(const Request& request, const at::Tensor& rider, Heads* heads) {
  const Row own{number_,       static_cast<int64_t>(request.collective), static_cast<int64_t>(request.type),
                request.count, static_cast<int64_t>(request.reduction),  request.root,
                request.digest};
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
  if (is_same) return riders;
  std::vector<int64_t> item_bytes;
  for (const Row& row : rows) item_bytes.push_back(begun_item_bytes(row));
  Heads none = no_heads();
  settle(riders, item_bytes, heads ? *heads : none);
  if (request.collective == Collective::kRefused) return riders;
  for (int rank = 0; rank < size_; ++rank) {
    if (rows[rank].collective != static_cast<int64_t>(Collective::kRefused)) continue;
    const at::Tensor told = riders[rank].narrow(0, 0, std::clamp(rows[rank].count, int64_t{0}, riders.size(1)));
    throw MismatchError(
        name + " failed: got a refusal by rank " + std::to_string(rank) +
        "; expected every rank to take part. Fix: correct what that rank's error names. It is: " +
        printable({static_cast<const char*>(told.const_data_ptr()), static_cast<std::size_t>(told.numel())}) + goes_on);
  }
  throw MismatchError(
      name + " failed: got " + all +
      "; expected the same on every rank. Fix: make every rank call the same operation with tensors alike." + goes_on);
}

// On the root's host from the root, then between the leaders, then from the leader of every other host.
void SpanningBackend::broadcast_in_place(const at::Tensor& tensor, int64_t root) {
  if (tensor.numel() == 0) return;
  const at::Tensor contiguous = plain(tensor);
  Tensors flat{as_bytes(contiguous)};
  auto local = inline_options<c10d::BroadcastOptions>();
  c10d::BroadcastOptions between;
  between.rootRank = host_of(root);
  if (is_here(root)) local.rootRank = local_rank_of(root);
  if (is_here(root)) finish(local_->broadcast(flat, local));
  between_hosts([&](c10d::Backend& leaders) { return leaders.broadcast(flat, between); });
  if (!is_here(root)) finish(local_->broadcast(flat, local));
  if (root != rank_ && !contiguous.is_same(tensor)) tensor.copy_(contiguous);
}

// A row of bytes for each host, with a place for each of its ranks. Fills in this host's.
at::Tensor SpanningBackend::gather_here(const at::Tensor& bytes) {
  std::size_t most = 0;
  for (const std::vector<int>& ranks : hosts_.ranks) most = std::max(most, ranks.size());
  at::Tensor all = at::zeros({static_cast<int64_t>(hosts_.ranks.size()), static_cast<int64_t>(most), bytes.numel()},
                             bytes.options());
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
  return {rank_, here, everyone_wire_};
}

void SpanningBackend::settle(const at::Tensor& riders, const std::vector<int64_t>& item_bytes, Heads& heads) {
  if (!do_sizes_ride()) return;
  std::vector<Heads::Lengths> others;
  for (int rank = 0; rank < size_; ++rank) {
    std::vector<int64_t> counts(2 * size_);
    std::memcpy(counts.data(), riders[rank].const_data_ptr(), counts.size() * sizeof(int64_t));
    others.push_back(
        {Heads::length(counts[rank_], item_bytes[rank]), Heads::length(counts[size_ + rank_], item_bytes[rank])});
  }
  heads.settle(others);
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
      settle(said, std::vector<int64_t>(size_, static_cast<int64_t>(c10::elementSize(request.type))), heads);
      throw MismatchError(
          "shm " + std::string(name_of(request.collective)) + " #" + std::to_string(number_) + " failed: got " +
          std::to_string(sizes[from][0][to]) + " elements that rank " + std::to_string(from) + " sends to rank " +
          std::to_string(to) + ", which expects " + std::to_string(sizes[to][1][from]) +
          "; expected one size. Fix: pass equal split sizes on both ranks. Nothing was written, and the group can "
          "continue.");
    }
  }
}

void SpanningBackend::abort() {
  any_source_->shut_down();
  local_->abort();
  if (leads()) leaders_->abort();
  everyone_->abort();
  messages_->abort();
  for (const c10::intrusive_ptr<QueuedWork>& one : queue_->works()) one->abort();
}

// Does not wait for the thread, which may be waiting for another host until the timeout.
void SpanningBackend::shutdown() {
  any_source_->shut_down();
  local_->shutdown();
  if (leads()) leaders_->shutdown();
  everyone_->shutdown();
  std::deque<Queue::Job> dropped;
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->is_ending = true;
    dropped.swap(queue_->jobs);
    queue_->unfinished -=
        std::count_if(dropped.begin(), dropped.end(), [](const auto& job) { return job.work.defined(); });
  }
  queue_->changed.notify_all();
  for (const Queue::Job& job : dropped) {
    if (!job.work) continue;
    job.work->run([] {
      throw_backend_error("shm failed: the process group was shut down. Fix: call init_process_group again.");
    });
  }
}

}  // namespace anyaccel::comm
