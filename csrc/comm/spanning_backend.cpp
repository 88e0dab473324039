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

void check_reducible(const at::Tensor& tensor) {
  constexpr at::ScalarType kTypes[] = {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16,
                                       at::kLong,   at::kInt,   at::kChar, at::kByte};
  TORCH_CHECK(std::find(std::begin(kTypes), std::end(kTypes), tensor.scalar_type()) != std::end(kTypes),
              "shm failed: got a reduction of ", tensor.scalar_type(),
              " between hosts; expected float64, float32, float16, "
              "bfloat16, int64, int32, int8 or uint8, as gloo does. Fix: convert the tensor.");
}

std::string described(const int64_t* row) {
  return std::string(name_of(static_cast<Collective>(row[0]))) + " of " + std::to_string(row[2]) + " " +
         c10::toString(static_cast<at::ScalarType>(row[1])) + " with " + name_of(static_cast<Reduction>(row[3])) +
         (row[4] >= 0 ? " and root " + std::to_string(row[4]) : "");
}

}  // namespace

// Operations in the order of issue, and the thread that runs them, started when it is first needed.
struct SpanningBackend::Queue {
  struct Job {
    c10::intrusive_ptr<SpanningBackend> owner;
    c10::intrusive_ptr<QueuedWork> work;
    std::function<void()> run;
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
      next.work->run([&next] { next.owner->run_in_step(next.run); });
    }
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Job> jobs;
  bool is_ending = false;
  bool is_running = false;
};

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

WorkPtr SpanningBackend::enqueue(OpType type, const char* title, const Tensors& inputs, const Tensors& outputs,
                                 bool is_async, std::function<void()> run) {
  try {
    group_->require_usable();
  } catch (const CommError& error) {
    throw_backend_error(error.what());
  }
  auto work = c10::make_intrusive<QueuedWork>(group_, rank_, type, title, inputs, outputs);
  ++sequence_;
  {
    const std::lock_guard lock(queue_->mutex);
    TORCH_CHECK(!queue_->is_ending, "shm failed: the process group was shut down");
    queue_->jobs.push_back({c10::intrusive_ptr<SpanningBackend>::reclaim_copy(this), work, std::move(run)});
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
  const at::Tensor own = at::tensor({static_cast<int64_t>(collective), static_cast<int64_t>(tensor.scalar_type()),
                                     count, static_cast<int64_t>(reduction), root},
                                    at::kLong);
  const at::Tensor rows = gather_everywhere(own).contiguous();
  const auto* first = rows.const_data_ptr<int64_t>();
  const int64_t width = own.numel();
  std::string all;
  bool agree = true;
  for (int rank = 0; rank < size_; ++rank) {
    const int64_t* row = first + rank * width;
    agree = agree && std::equal(row, row + width, first);
    all += (all.empty() ? "rank " : "; rank ") + std::to_string(rank) + ": " + described(row);
  }
  if (!agree) {
    throw MismatchError(
        "shm " + std::string(name_of(collective)) + " failed: got " + all +
        "; expected the same on every rank. Fix: correct the rank that differs. Nothing was written, and "
        "the group can go on.");
  }
}

void SpanningBackend::reduce_in_place(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  agree(Collective::kAllReduce, tensor, tensor.numel(), reduction_of(op), -1);
  const at::Tensor flat = tensor.contiguous();
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

WorkPtr SpanningBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const at::Tensor tensor = only("all_reduce", tensors);
  check_reducible(tensor);
  return enqueue(OpType::ALLREDUCE, "shm:all_reduce", tensors, tensors, options.asyncOp,
                 [this, tensor, options] { reduce_in_place(tensor, options.reduceOp); });
}

WorkPtr SpanningBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  for (const at::Tensor& tensor : tensors) check_reducible(tensor);
  return enqueue(OpType::ALLREDUCE_COALESCED, "shm:all_reduce", tensors, tensors, options.asyncOp,
                 [this, tensors, options] {
                   for (const at::Tensor& tensor : tensors) reduce_in_place(tensor, options.reduceOp);
                 });
}

WorkPtr SpanningBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor tensor = only("broadcast", tensors);
  check_rank("broadcast", options.rootRank, size_);
  return enqueue(OpType::BROADCAST, "shm:broadcast", tensors, tensors, options.asyncOp, [this, tensor, options] {
    agree(Collective::kBroadcast, tensor, tensor.numel(), Reduction::kNone, options.rootRank);
    const at::Tensor contiguous = tensor.contiguous();
    if (contiguous.numel() > 0) broadcast_in_place(as_bytes(contiguous), options.rootRank);
    if (!contiguous.is_same(tensor)) tensor.copy_(contiguous);
  });
}

// On the root's host from the root, then between the leaders, then from the leader of every other host.
void SpanningBackend::broadcast_in_place(const at::Tensor& tensor, int64_t root) {
  Tensors flat{tensor};
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
}

// A row for each rank, in the order of ranks.
at::Tensor SpanningBackend::gather_everywhere(const at::Tensor& input) {
  std::size_t most = 0;
  for (const std::vector<int>& ranks : hosts_.ranks) most = std::max(most, ranks.size());
  const int64_t hosts = static_cast<int64_t>(hosts_.ranks.size()), slots = static_cast<int64_t>(most);
  if (input.numel() == 0) return at::empty({size_, 0}, input.options());
  const at::Tensor flat = as_bytes(input.contiguous());
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

WorkPtr SpanningBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                   const c10d::AllgatherOptions& options) {
  const at::Tensor input = only("all_gather", inputs);
  const Tensors results = only_list("all_gather", outputs);
  check_each_rank("all_gather", results, size_);
  for (const at::Tensor& output : results) {
    TORCH_CHECK(output.numel() == input.numel(), "shm all_gather between hosts failed: got outputs of ", output.numel(),
                " elements and an input of ", input.numel(), "; expected one size. Fix: pad them.");
  }
  return enqueue(OpType::ALLGATHER, "shm:all_gather", inputs, results, options.asyncOp, [this, input, results] {
    agree(Collective::kAllGather, input, input.numel(), Reduction::kNone, -1);
    const at::Tensor rows = gather_everywhere(input);
    for (int rank = 0; rank < size_; ++rank) results[rank].copy_(rows[rank].view(results[rank].sizes()));
  });
}

WorkPtr SpanningBackend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  TORCH_CHECK(output.numel() == size_ * input.numel(), "shm all_gather failed: got an output of ", output.numel(),
              " elements for ", size_, " inputs of ", input.numel(), "; expected their sum. Fix: correct its size.");
  return enqueue(OpType::_ALLGATHER_BASE, "shm:_all_gather_base", {input}, {output}, options.asyncOp,
                 [this, input = input, output = output] {
                   agree(Collective::kAllGather, input, input.numel(), Reduction::kNone, -1);
                   output.copy_(gather_everywhere(input).view(output.sizes()));
                 });
}

WorkPtr SpanningBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                        const c10d::ReduceScatterOptions& options) {
  const at::Tensor output = only("reduce_scatter", outputs);
  const Tensors given = only_list("reduce_scatter", inputs);
  check_each_rank("reduce_scatter", given, size_);
  check_reducible(output);
  TORCH_CHECK(given[rank_].numel() == output.numel(), "shm reduce_scatter failed: got an output of ", output.numel(),
              " elements for an input of ", given[rank_].numel(), "; expected one size. Fix: correct the output.");
  return enqueue(OpType::REDUCE_SCATTER, "shm:reduce_scatter", given, outputs, options.asyncOp,
                 [this, given, output, options] {
                   Tensors flat;
                   for (const at::Tensor& one : given) flat.push_back(one.reshape(-1));
                   const at::Tensor all = at::cat(flat);
                   agree(Collective::kReduceScatter, all, all.numel(), reduction_of(options.reduceOp), -1);
                   reduce_everywhere(all, options.reduceOp);
                   int64_t before = 0;
                   for (int rank = 0; rank < rank_; ++rank) before += given[rank].numel();
                   output.copy_(all.narrow(0, before, output.numel()).view(output.sizes()));
                 });
}

WorkPtr SpanningBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                              const c10d::ReduceScatterOptions& options) {
  Tensors outputs{output};
  std::vector<Tensors> inputs{equal_parts("reduce_scatter", input, size_)};
  return reduce_scatter(outputs, inputs, options);
}

WorkPtr SpanningBackend::barrier(const c10d::BarrierOptions& options) {
  return enqueue(OpType::BARRIER, "shm:barrier", {}, {}, options.asyncOp, [this] {  // whoever agrees has come
    agree(Collective::kBarrier, at::empty({0}), 0, Reduction::kNone, -1);
  });
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
    job.work->run([] { throw_backend_error("shm failed: the process group was shut down"); });
  }
}

}  // namespace anyaccel::comm
