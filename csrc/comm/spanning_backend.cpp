#include "spanning_backend.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <iterator>
#include <mutex>
#include <thread>
#include <utility>

#include "queued_work.h"
#include "tensor_blocks.h"

namespace anyaccel::comm {
namespace {

constexpr int kLeader = 0;  // among the ranks of a host

void finish(const WorkPtr& work) { work->wait(kNoTimeout); }

template <typename Options>
Options inline_options() {
  Options options;
  options.asyncOp = false;
  return options;
}

// Movement needs no arithmetic, so that any dtype can travel as bytes.
at::Tensor as_bytes(const at::Tensor& contiguous) { return contiguous.view(-1).view(at::kByte); }

at::Tensor plain(const at::Tensor& tensor) { return tensor.resolve_conj().resolve_neg().contiguous(); }

// What a rank says to the others that it is about to do.
struct Row {
  int64_t number, collective, type, count, reduction, root;

  friend bool operator==(const Row&, const Row&) = default;
};

std::string described(const Row& row) {
  const bool is_sane = row.collective >= 0 && row.collective <= static_cast<int64_t>(Collective::kBarrier) &&
                       row.type >= 0 && row.type < static_cast<int64_t>(at::ScalarType::NumOptions) &&
                       row.reduction >= 0 && row.reduction <= static_cast<int64_t>(Reduction::kNone);
  if (!is_sane) return "something that no rank of this version says";
  return std::string(name_of(static_cast<Collective>(row.collective))) + " of " + std::to_string(row.count) + " " +
         c10::toString(static_cast<at::ScalarType>(row.type)) + " with " +
         name_of(static_cast<Reduction>(row.reduction)) +
         (row.root >= 0 ? " and root " + std::to_string(row.root) : "");
}

}  // namespace

// Operations in the order of issue, and the thread that runs them, started when it is first needed.
struct SpanningBackend::Queue {
  struct Job {
    c10::intrusive_ptr<SpanningBackend> owner;
    c10::intrusive_ptr<QueuedWork> work;
    std::function<void()> run;
    int64_t number;
  };

  static void serve(const std::shared_ptr<Queue>& queue) {
    for (;;) {
      Job next;
      {
        std::unique_lock lock(queue->mutex);
        queue->changed.wait(lock, [&queue] { return queue->is_ending || !queue->jobs.empty(); });
        if (queue->jobs.empty()) return;
        next = std::move(queue->jobs.front());
        queue->jobs.pop_front();
      }
      next.work->run([&next] {
        next.owner->number_ = next.number;
        next.owner->run_in_step(next.run);
      });
    }
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Job> jobs;
  bool is_ending = false;
  bool is_running = false;
  int64_t issued = 0;  // operations, those refused included
};

SpanningBackend::Turn::~Turn() {
  if (is_taken) return;
  const std::lock_guard lock(queue.mutex);
  ++queue.issued;
}

SpanningBackend::SpanningBackend(int rank, int size, Hosts hosts, GroupPtr group, c10::intrusive_ptr<ShmBackend> local,
                                 c10::intrusive_ptr<c10d::Backend> leaders)
    : Backend(rank, size),
      hosts_(std::move(hosts)),
      group_(std::move(group)),
      local_(std::move(local)),
      leaders_(std::move(leaders)),
      queue_(std::make_shared<Queue>()) {}

SpanningBackend::~SpanningBackend() {
  if (!group_->is_forked()) shutdown();
}

void SpanningBackend::setTimeout(std::chrono::milliseconds timeout) {
  local_->setTimeout(timeout);
  if (leads()) leaders_->setTimeout(timeout);
}

WorkPtr SpanningBackend::enqueue(Turn& turn, OpType type, const char* title, const Tensors& inputs,
                                 const Tensors& outputs, bool is_async, std::function<void()> run) {
  try {
    group_->require_usable();
  } catch (const CommError& error) {
    throw_backend_error(error.what());
  }
  auto work = c10::make_intrusive<QueuedWork>(group_, rank_, type, title, inputs, outputs);
  ++sequence_;
  {
    const std::lock_guard lock(queue_->mutex);
    TORCH_CHECK(!queue_->is_ending, "shm failed: the process group was shut down. Fix: call init_process_group again.");
    turn.is_taken = true;
    queue_->jobs.push_back(
        {c10::intrusive_ptr<SpanningBackend>::reclaim_copy(this), work, std::move(run), ++queue_->issued});
    if (!std::exchange(queue_->is_running, true)) std::thread([queue = queue_] { Queue::serve(queue); }).detach();
  }
  queue_->changed.notify_one();
  if (!is_async) work->wait(kNoTimeout);
  return work;
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
    throw;
  }
}

void SpanningBackend::between_hosts(const std::function<WorkPtr(c10d::Backend&)>& call) {
  if (leads()) finish(call(*leaders_));
}

void SpanningBackend::agree(Collective collective, const at::Tensor& tensor, int64_t count, Reduction reduction,
                            int64_t root) {
  const Row own{number_, static_cast<int64_t>(collective), static_cast<int64_t>(tensor.scalar_type()),
                count,   static_cast<int64_t>(reduction),  root};
  const std::string name = "shm " + std::string(name_of(collective)) + " #" + std::to_string(number_);
  const std::string goes_on = " Nothing was written, and the group can go on.";
  for (;;) {
    const at::Tensor sent = at::from_blob(const_cast<Row*>(&own), {sizeof(Row)}, at::kByte);
    const at::Tensor gathered = gather_everywhere(sent).contiguous();
    const auto* rows = reinterpret_cast<const Row*>(gathered.const_data_ptr());
    std::string all;
    int behind = -1, different = -1;
    for (int rank = 0; rank < size_; ++rank) {
      if (rows[rank].number > own.number) {
        throw MismatchError(name + " failed: got rank " + std::to_string(rank) + " at #" +
                            std::to_string(rows[rank].number) +
                            "; expected every rank at one operation. An earlier operation was refused there. Fix: "
                            "correct what that rank's error names." +
                            goes_on);
      }
      if (rows[rank].number < own.number) behind = rank;
      if (!(rows[rank] == own)) different = rank;
      all += (all.empty() ? "rank " : "; rank ") + std::to_string(rank) + ": " + described(rows[rank]);
    }
    if (different < 0) return;
    if (behind >= 0) continue;  // they raise, and come again with the next operation
    throw MismatchError(name + " failed: got " + all +
                        "; expected the same on every rank. Fix: correct the rank that differs." + goes_on);
  }
}

void SpanningBackend::reduce_in_place(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  const bool widens = op.op_ == c10d::ReduceOp::AVG && !tensor.is_floating_point();  // a sum of int8 may be none
  const at::Tensor flat = plain(widens ? tensor.to(at::kLong) : tensor);
  reduce_everywhere(flat, op);
  if (!flat.is_same(tensor)) tensor.copy_(flat);
}

void SpanningBackend::reduce_everywhere(at::Tensor tensor, const c10d::ReduceOp& op) {
  Tensors tensors{tensor};
  const bool averages = op.op_ == c10d::ReduceOp::AVG;
  auto local = inline_options<c10d::ReduceOptions>();
  local.reduceOp = averages ? c10d::ReduceOp(c10d::ReduceOp::SUM) : op;
  local.rootRank = kLeader;
  finish(local_->reduce(tensors, local));
  c10d::AllreduceOptions between;
  const bool sums = averages || op.op_ == c10d::ReduceOp::PREMUL_SUM;
  between.reduceOp = sums ? c10d::ReduceOp(c10d::ReduceOp::SUM) : op;
  between_hosts([&](c10d::Backend& leaders) { return leaders.allreduce(tensors, between); });
  if (averages && leads() && tensor.is_floating_point()) tensor.div_(size_);
  if (averages && leads() && !tensor.is_floating_point()) tensor.div_(size_, "trunc");
  finish(local_->broadcast(tensors, inline_options<c10d::BroadcastOptions>()));
}

// On the root's host from the root, then between the leaders, then from the leader of every other host.
void SpanningBackend::broadcast_in_place(const at::Tensor& tensor, int64_t root) {
  if (tensor.numel() == 0) return;
  const at::Tensor contiguous = plain(tensor);
  Tensors flat{as_bytes(contiguous)};
  auto local = inline_options<c10d::BroadcastOptions>();
  c10d::BroadcastOptions between;
  for (int host = 0; host < static_cast<int>(hosts_.ranks.size()); ++host) {
    const std::vector<int>& ranks = hosts_.ranks[host];
    const auto found = std::find(ranks.begin(), ranks.end(), root);
    if (found == ranks.end()) continue;
    between.rootRank = host;
    if (host == hosts_.own) local.rootRank = found - ranks.begin();
  }
  const bool has_root = hosts_.own == between.rootRank;
  if (has_root) finish(local_->broadcast(flat, local));
  between_hosts([&](c10d::Backend& leaders) { return leaders.broadcast(flat, between); });
  if (!has_root) finish(local_->broadcast(flat, local));
  if (root != rank_ && !contiguous.is_same(tensor)) tensor.copy_(contiguous);
}

// A row for each rank, in the order of ranks.
at::Tensor SpanningBackend::gather_everywhere(const at::Tensor& input) {
  std::size_t most = 0;
  for (const std::vector<int>& ranks : hosts_.ranks) most = std::max(most, ranks.size());
  const int64_t hosts = static_cast<int64_t>(hosts_.ranks.size()), slots = static_cast<int64_t>(most);
  if (input.numel() == 0) return at::empty({size_, 0}, input.options());
  const at::Tensor flat = as_bytes(plain(input));
  at::Tensor all = at::zeros({hosts, slots, flat.numel()}, flat.options());
  at::Tensor own = at::zeros({slots, flat.numel()}, flat.options());  // hosts may have unequal numbers of ranks
  at::Tensor here = own.narrow(0, 0, static_cast<int64_t>(hosts_.ranks[hosts_.own].size())).view(-1);
  at::Tensor sent = flat;
  finish(local_->_allgather_base(here, sent, inline_options<c10d::AllgatherOptions>()));
  std::vector<Tensors> outputs{all.unbind(0)};
  Tensors inputs{own};
  between_hosts([&](c10d::Backend& leaders) { return leaders.allgather(outputs, inputs, c10d::AllgatherOptions()); });
  Tensors everything{all};
  finish(local_->broadcast(everything, inline_options<c10d::BroadcastOptions>()));
  at::Tensor rows = at::empty({size_, input.numel()}, input.options());
  const at::Tensor row_bytes = rows.view(at::kByte);
  for (int64_t host = 0; host < hosts; ++host) {
    for (std::size_t i = 0; i < hosts_.ranks[host].size(); ++i) {
      row_bytes[hosts_.ranks[host][i]].copy_(all[host][static_cast<int64_t>(i)]);
    }
  }
  return rows;
}

void SpanningBackend::abort() {
  local_->abort();
  if (leads()) leaders_->abort();
}

// Does not wait for the thread, which may be waiting for another host until the timeout.
void SpanningBackend::shutdown() {
  local_->shutdown();
  if (leads()) leaders_->shutdown();
  std::deque<Queue::Job> dropped;
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->is_ending = true;
    dropped.swap(queue_->jobs);
  }
  queue_->changed.notify_all();
  for (const Queue::Job& job : dropped) {
    job.work->run([] {
      throw_backend_error("shm failed: the process group was shut down. Fix: call init_process_group again.");
    });
  }
}

}  // namespace anyaccel::comm
