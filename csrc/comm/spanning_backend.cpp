#include "spanning_backend.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>

#include "tensor_blocks.h"

namespace anyaccel::comm {
namespace {

constexpr int kLeader = 0;  // among the ranks of a host

// An operation that runs on its backend's thread.
class QueuedWork : public c10d::Work {
 public:
  QueuedWork(int rank, OpType type, const char* title, const Tensors& inputs, Tensors outputs)
      : Work(rank, type, title, inputs),
        outputs_(std::move(outputs)),
        future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}

  void run(const std::function<void()>& operation) {
    std::exception_ptr error;
    try {
      const at::AutoDispatchBelowADInplaceOrView without_autograd;
      operation();
    } catch (...) {
      error = std::current_exception();
    }
    finish(error);
    if (error) {
      future_->setError(error);
    } else {
      future_->markCompleted(c10::IValue(outputs_));
    }
  }

  bool wait(std::chrono::milliseconds timeout) override {
    const auto until = Clock::now() + timeout;
    std::unique_lock lock(mutex_);
    while (!cv_.wait_for(lock, kSupervision, [this] { return completed_; })) {
      lock.unlock();
      if (interrupt) interrupt();
      if (timeout != kNoTimeout && Clock::now() >= until) {
        throw_backend_error("shm failed: wait timed out after " + std::to_string(timeout.count()) +
                            " ms; the operation goes on. Fix: wait again, or longer.");
      }
      lock.lock();
    }
    if (exception_) std::rethrow_exception(exception_);
    return true;
  }
  void synchronize() override { wait(kNoTimeout); }
  Tensors result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  const Tensors outputs_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

void finish(const WorkPtr& work) { work->wait(kNoTimeout); }

template <typename Options>
Options inline_options() {
  Options options;
  options.asyncOp = false;
  return options;
}

}  // namespace

SpanningBackend::SpanningBackend(int rank, int size, Hosts hosts, GroupPtr group, c10::intrusive_ptr<ShmBackend> local,
                                 c10::intrusive_ptr<c10d::Backend> leaders)
    : Backend(rank, size),
      hosts_(std::move(hosts)),
      group_(std::move(group)),
      local_(std::move(local)),
      leaders_(std::move(leaders)) {}

SpanningBackend::~SpanningBackend() {
  if (group_->is_forked()) {
    if (thread_.joinable()) thread_.detach();  // it runs in the parent only
    return;
  }
  shutdown();
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
  auto work = c10::make_intrusive<QueuedWork>(rank_, type, title, inputs, outputs);
  ++sequence_;
  {
    const std::lock_guard lock(mutex_);
    TORCH_CHECK(!is_ending_, "shm failed: the process group was shut down");
    if (!thread_.joinable()) thread_ = std::thread([this] { serve(); });
    queue_.emplace_back([work, run = std::move(run)] { work->run(run); });
  }
  changed_.notify_one();
  if (!is_async) work->wait(kNoTimeout);
  return work;
}

void SpanningBackend::serve() {
  for (;;) {
    std::function<void()> next;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return is_ending_ || !queue_.empty(); });
      if (queue_.empty()) return;
      next = std::move(queue_.front());
      queue_.pop_front();
    }
    next();
  }
}

// What fails between hosts fails for every rank of this one.
void SpanningBackend::between_hosts(const std::function<WorkPtr(c10d::Backend&)>& call) {
  if (!leads()) return;
  try {
    finish(call(*leaders_));
  } catch (const std::exception& error) {
    group_->fail(std::string("shm failed between hosts: ") + error.what());
    throw;
  }
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
  if (averages && leads())
    at::div_out(tensor, tensor, at::scalar_tensor(size_),
                tensor.is_floating_point() || tensor.is_complex() ? std::optional<c10::string_view>()
                                                                  : std::optional<c10::string_view>("trunc"));
  finish(local_->broadcast(tensors, inline_options<c10d::BroadcastOptions>()));
}

WorkPtr SpanningBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  const at::Tensor tensor = only("all_reduce", tensors);
  return enqueue(OpType::ALLREDUCE, "shm:all_reduce", tensors, tensors, options.asyncOp, [this, tensor, options] {
    const at::Tensor flat = tensor.contiguous();
    reduce_everywhere(flat, options.reduceOp);
    if (!flat.is_same(tensor)) tensor.copy_(flat);
  });
}

WorkPtr SpanningBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return enqueue(OpType::ALLREDUCE_COALESCED, "shm:all_reduce", tensors, tensors, options.asyncOp,
                 [this, tensors, options] {
                   for (const at::Tensor& tensor : tensors) {
                     const at::Tensor flat = tensor.contiguous();
                     reduce_everywhere(flat, options.reduceOp);
                     if (!flat.is_same(tensor)) tensor.copy_(flat);
                   }
                 });
}

WorkPtr SpanningBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  const at::Tensor tensor = only("broadcast", tensors);
  check_rank("broadcast", options.rootRank, size_);
  return enqueue(OpType::BROADCAST, "shm:broadcast", tensors, tensors, options.asyncOp, [this, tensor, options] {
    Tensors flat{tensor.contiguous()};
    int root_host = 0;
    auto local = inline_options<c10d::BroadcastOptions>();
    for (int host = 0; host < static_cast<int>(hosts_.ranks.size()); ++host) {
      const std::vector<int>& ranks = hosts_.ranks[host];
      const auto root = std::find(ranks.begin(), ranks.end(), options.rootRank);
      if (root == ranks.end()) continue;
      root_host = host;
      if (host == hosts_.own) local.rootRank = root - ranks.begin();
    }
    const bool has_root = hosts_.own == root_host;
    if (has_root) finish(local_->broadcast(flat, local));
    c10d::BroadcastOptions between;
    between.rootRank = root_host;
    between_hosts([&](c10d::Backend& leaders) { return leaders.broadcast(flat, between); });
    if (!has_root) finish(local_->broadcast(flat, local));
    if (!flat[0].is_same(tensor)) tensor.copy_(flat[0]);
  });
}

// A row for each rank, in the order of ranks.
at::Tensor SpanningBackend::gather_everywhere(const at::Tensor& input) {
  std::size_t most = 0;
  for (const std::vector<int>& ranks : hosts_.ranks) most = std::max(most, ranks.size());
  const int64_t hosts = static_cast<int64_t>(hosts_.ranks.size()), slots = static_cast<int64_t>(most);
  const at::Tensor flat = input.contiguous().view(-1);
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
  at::Tensor rows = at::empty({size_, flat.numel()}, flat.options());
  for (int64_t host = 0; host < hosts; ++host) {
    for (std::size_t i = 0; i < hosts_.ranks[host].size(); ++i) {
      rows[hosts_.ranks[host][i]].copy_(all[host][static_cast<int64_t>(i)]);
    }
  }
  return rows;
}

WorkPtr SpanningBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                   const c10d::AllgatherOptions& options) {
  const at::Tensor input = only("all_gather", inputs);
  TORCH_CHECK(outputs.size() == 1, "shm all_gather failed: got ", outputs.size(), " lists of outputs; expected one.");
  const Tensors results = outputs[0];
  check_each_rank("all_gather", results, size_);
  for (const at::Tensor& output : results) {
    TORCH_CHECK(output.numel() == input.numel(), "shm all_gather between hosts failed: got outputs of ", output.numel(),
                " elements and an input of ", input.numel(), "; expected one size. Fix: pad them.");
  }
  return enqueue(OpType::ALLGATHER, "shm:all_gather", inputs, results, options.asyncOp, [this, input, results] {
    const at::Tensor rows = gather_everywhere(input);
    for (int rank = 0; rank < size_; ++rank) results[rank].copy_(rows[rank].view(results[rank].sizes()));
  });
}

WorkPtr SpanningBackend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  TORCH_CHECK(output.numel() == size_ * input.numel(), "shm all_gather failed: got an output of ", output.numel(),
              " elements for ", size_, " inputs of ", input.numel(), "; expected their sum. Fix: correct its size.");
  return enqueue(
      OpType::_ALLGATHER_BASE, "shm:_all_gather_base", {input}, {output}, options.asyncOp,
      [this, input = input, output = output] { output.copy_(gather_everywhere(input).view(output.sizes())); });
}

WorkPtr SpanningBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                        const c10d::ReduceScatterOptions& options) {
  const at::Tensor output = only("reduce_scatter", outputs);
  TORCH_CHECK(inputs.size() == 1, "shm reduce_scatter failed: got ", inputs.size(), " lists of inputs; expected one.");
  const Tensors given = inputs[0];
  check_each_rank("reduce_scatter", given, size_);
  TORCH_CHECK(given[rank_].numel() == output.numel(), "shm reduce_scatter failed: got an output of ", output.numel(),
              " elements for an input of ", given[rank_].numel(), "; expected one size. Fix: correct the output.");
  return enqueue(OpType::REDUCE_SCATTER, "shm:reduce_scatter", given, outputs, options.asyncOp,
                 [this, given, output, options] {
                   Tensors flat;
                   for (const at::Tensor& one : given) flat.push_back(one.reshape(-1));
                   const at::Tensor all = at::cat(flat);
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
  return enqueue(OpType::BARRIER, "shm:barrier", {}, {}, options.asyncOp, [this] {
    const auto local = inline_options<c10d::BarrierOptions>();
    finish(local_->barrier(local));
    between_hosts([](c10d::Backend& leaders) { return leaders.barrier(c10d::BarrierOptions()); });
    finish(local_->barrier(local));
  });
}

void SpanningBackend::abort() {
  local_->abort();
  if (leads()) leaders_->abort();
}

void SpanningBackend::shutdown() {
  local_->shutdown();
  if (leads()) leaders_->shutdown();
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable() && thread_.get_id() != std::this_thread::get_id()) thread_.join();
}

}  // namespace anyaccel::comm
