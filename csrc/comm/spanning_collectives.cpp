// What goes through the first ranks of the hosts, in a group between hosts: each operation is checked here, and runs on
// the queue's thread.

#include <algorithm>
#include <iterator>
#include <thread>

#include "elements.h"
#include "queued_work.h"
#include "shm_work.h"
#include "spanning_backend.h"
#include "spanning_checks.h"
#include "spanning_queue.h"
#include "sparse_parts.h"
#include "tensor_blocks.h"

namespace anyaccel::comm {
namespace {

constexpr at::ScalarType kReducedByGloo[] = {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16,
                                             at::kLong,   at::kInt,   at::kChar, at::kByte};

bool is_reduced_by_gloo(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  const bool is_known =
      std::find(std::begin(kReducedByGloo), std::end(kReducedByGloo), tensor.scalar_type()) != std::end(kReducedByGloo);
  return is_known && (op.op_ != c10d::ReduceOp::AVG || tensor.is_floating_point());
}

// Whether the values are few enough to travel with what ranks say to agree: an operation of one round.
bool can_ride(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  return tensor.numel() > 0 && tensor.nbytes() <= kRiderBytes && op.op_ != c10d::ReduceOp::PREMUL_SUM;
}

// The reduction of a row of values of each rank, in the order of ranks.
void reduce_rows(const at::Tensor& rows, const at::Tensor& output, const c10d::ReduceOp& op, const at::Tensor& scales) {
  std::vector<const void*> inputs;
  for (int64_t rank = 0; rank < rows.size(0); ++rank) inputs.push_back(rows[rank].const_data_ptr());
  reduce(dtype_of(output), reduction_of(op), output.mutable_data_ptr(), inputs.data(), static_cast<int>(rows.size(0)),
         static_cast<std::size_t>(output.numel()), scales.defined() ? scales.const_data_ptr<double>() : nullptr);
}

}  // namespace

void SpanningBackend::reduce_in_place(const at::Tensor& tensor, const c10d::ReduceOp& op, int64_t root) {
  at::Tensor flat = plain(tensor);
  const bool is_result = root < 0 || root == rank_;
  if (!is_result && flat.is_same(tensor)) flat = tensor.clone();             // only the root's is written
  if (op.op_ == c10d::ReduceOp::AVG && tensor.scalar_type() == at::kHalf) {  // a sum may be too large for float16
    const at::Tensor wide = flat.to(at::kFloat);
    reduce_hierarchically(wide, op, root);
    flat.copy_(wide);
  } else if (is_reduced_by_gloo(tensor, op)) {
    reduce_hierarchically(flat, op, root);
  } else {
    reduce_by_gathering(flat, op);
  }
  if (is_result && !flat.is_same(tensor)) tensor.copy_(flat);
}

// Inside each host, between their first ranks, and back. The parts of a large tensor follow each other: one is added up
// in the hosts while two others are between them, and one is on its way back.
void SpanningBackend::reduce_hierarchically(const at::Tensor& flat, const c10d::ReduceOp& op, int64_t root) {
  constexpr int64_t kPartBytes = 4 << 20, kMostParts = 16;
  const int64_t count = std::clamp(static_cast<int64_t>(flat.nbytes()) / kPartBytes, int64_t{1}, kMostParts);
  const Tensors parts = flat.view(-1).chunk(count);
  const bool averages = op.op_ == c10d::ReduceOp::AVG;
  const bool sums = averages || op.op_ == c10d::ReduceOp::PREMUL_SUM;
  const bool is_extreme = op.op_ == c10d::ReduceOp::MIN || op.op_ == c10d::ReduceOp::MAX;
  const bool gathers = is_extreme && flat.is_floating_point();  // gloo's MIN and MAX may lose a NaN
  Tensors rows(parts.size());
  const c10d::ReduceOp sum(c10d::ReduceOp::SUM);
  c10d::ReduceOptions local;
  local.asyncOp = parts.size() > 1;
  local.reduceOp = averages ? sum : op;
  c10d::BroadcastOptions back;
  back.asyncOp = local.asyncOp;
  const auto cross = [&](std::size_t number) {
    Tensors part{parts[number]};
    if (gathers) {
      rows[number] = at::empty({static_cast<int64_t>(hosts_.ranks.size()), part[0].numel()}, flat.options());
      std::vector<Tensors> of_hosts{rows[number].unbind(0)};
      return leaders_->allgather(of_hosts, part);
    }
    if (root < 0) {
      c10d::AllreduceOptions between;
      between.reduceOp = sums ? sum : op;
      return leaders_->allreduce(part, between);
    }
    c10d::ReduceOptions between;
    between.reduceOp = sums ? sum : op;
    between.rootRank = host_of(root);
    return leaders_->reduce(part, between);
  };
  std::vector<WorkPtr> reduced, crossing, returned;
  const auto come_back = [&](std::size_t number) {
    Tensors part{parts[number]};
    if (leads()) finish(crossing[number]);
    if (gathers && leads()) reduce_rows(rows[number], part[0], op, {});
    if (averages && leads()) part[0].div_(size_);
    if (root < 0 || is_here(root)) returned.push_back(local_->broadcast(part, back));
  };
  for (std::size_t turn = 0; turn < parts.size() + 2; ++turn) {  // every rank of a host does this in the same order
    if (turn < parts.size()) {
      Tensors part{parts[turn]};
      reduced.push_back(local_->reduce(part, local));
    }
    if (leads() && turn > 0 && turn <= parts.size()) {
      finish(reduced[turn - 1]);
      crossing.push_back(cross(turn - 1));
    }
    if (turn > 1) come_back(turn - 2);
  }
  for (const WorkPtr& work : reduced) finish(work);
  for (const WorkPtr& work : returned) finish(work);
}

// For what gloo cannot add up: every rank has all values, and does what ranks on one host do.
void SpanningBackend::reduce_by_gathering(const at::Tensor& flat, const c10d::ReduceOp& op) {
  if (flat.numel() == 0) return;
  const at::Tensor scales = gather_everywhere(at::tensor({scale_of(op)}, at::kDouble));
  reduce_rows(gather_everywhere(flat.view(-1)), flat, op, scales.contiguous());
}

WorkPtr SpanningBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (tensors.size() == 1 && tensors[0].is_sparse()) return allreduce_sparse(tensors, options);
  return in_turn([&](Turn& turn) {
    const at::Tensor tensor = only("all_reduce", tensors);
    check_reducible("all_reduce", tensor, options.reduceOp);
    check_writable(tensor);
    return enqueue(turn, {OpType::ALLREDUCE, "shm:all_reduce", options.asyncOp, tensors, tensors},
                   [this, tensor, options] {
                     const Request request{Collective::kAllReduce, tensor.scalar_type(), tensor.numel(),
                                           reduction_of(options.reduceOp)};
                     if (can_ride(tensor, options.reduceOp)) {
                       const at::Tensor flat = plain(tensor);
                       reduce_rows(agree(request, as_bytes(flat)), flat, options.reduceOp, {});
                       if (!flat.is_same(tensor)) tensor.copy_(flat);
                     } else {
                       agree(request);
                       reduce_in_place(tensor, options.reduceOp);
                     }
                   });
  });
}

WorkPtr SpanningBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return in_turn([&](Turn& turn) {
    const at::Tensor tensor = only("all_reduce", tensors);
    check_sparse(tensor, options.reduceOp);
    return enqueue(turn, {OpType::_ALLREDUCE_SPARSE, "shm:sparse_all_reduce", options.asyncOp, tensors, tensors},
                   [this, tensor] { sum_sparse(tensor); });
  });
}

void SpanningBackend::sum_sparse(const at::Tensor& tensor) {
  const SparseParts own = parts_of(tensor);
  const at::Tensor facts = facts_of(own.coalesced);
  agree({Collective::kAllReduce, tensor.scalar_type(), facts.numel(), Reduction::kSum, -1, kSparse});
  const Tensors all_facts = gather_everywhere(facts).unbind(0);
  check_same_shape(all_facts, facts);
  const SparseRoom room(all_facts, own);
  exchange(Tensors(size_, own.indices), room.indices, no_heads());
  exchange(Tensors(size_, own.values), room.values, no_heads());
  tensor.copy_(sum_of(room.indices, room.values, own.coalesced));
}

WorkPtr SpanningBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  return in_turn([&](Turn& turn) {
    const at::Tensor tensor = only("reduce", tensors);
    check_rank("reduce", options.rootRank, size_);
    check_reducible("reduce", tensor, options.reduceOp);
    if (options.rootRank == rank_) check_writable(tensor);
    return enqueue(turn, {OpType::REDUCE, "shm:reduce", options.asyncOp, tensors, tensors}, [this, tensor, options] {
      agree({Collective::kReduce, tensor.scalar_type(), tensor.numel(), reduction_of(options.reduceOp),
             options.rootRank});
      reduce_in_place(tensor, options.reduceOp, options.rootRank);
    });
  });
}

WorkPtr SpanningBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  return in_turn([&](Turn& turn) {
    const at::Tensor tensor = only("broadcast", tensors);
    check_rank("broadcast", options.rootRank, size_);
    check_dense(tensor);
    if (options.rootRank != rank_) check_writable(tensor);
    return enqueue(turn, {OpType::BROADCAST, "shm:broadcast", options.asyncOp, tensors, tensors},
                   [this, tensor, options] { broadcast_in_place(tensor, options.rootRank); });
  });
}

// On the root's host from the root, then between the leaders, then from the leader of every other host.
void SpanningBackend::broadcast_in_place(const at::Tensor& tensor, int64_t root) {
  const at::Tensor contiguous = plain(tensor);
  Tensors bytes{as_bytes(contiguous)};
  const int64_t sent = broadcast_head(tensor.numel(), tensor.element_size());
  Blocks sends(size_), receives(size_);
  for (int rank = 0; rank < size_; ++rank) {
    const Block head{static_cast<unsigned char*>(contiguous.data_ptr()), sent};
    if (starts_broadcast(root, rank_, rank)) sends[rank] = head;
    if (starts_broadcast(root, rank, rank_)) receives[rank] = head;
  }
  Heads heads = no_heads();
  heads.begin(sends, receives);
  agree({Collective::kBroadcast, tensor.scalar_type(), tensor.numel(), Reduction::kNone, root}, {}, &heads);
  if (tensor.numel() == 0) return;
  auto local = inline_options<c10d::BroadcastOptions>();
  if (is_here(root)) local.rootRank = local_rank_of(root);
  if (is_here(root)) finish(local_->broadcast(bytes, local));
  Tensors rest{bytes[0].slice(0, sent)};
  c10d::BroadcastOptions between;
  between.rootRank = host_of(root);
  if (rest[0].numel() > 0) between_hosts([&](c10d::Backend& leaders) { return leaders.broadcast(rest, between); });
  heads.finish(receives);
  if (!is_here(root)) finish(local_->broadcast(bytes, local));
  if (root != rank_ && !contiguous.is_same(tensor)) tensor.copy_(contiguous);
}

WorkPtr SpanningBackend::barrier(const c10d::BarrierOptions& options) {
  return in_turn([&](Turn& turn) {
    return enqueue(turn, {OpType::BARRIER, "shm:barrier", options.asyncOp, {}, {}},
                   [this] { agree({Collective::kBarrier, at::kFloat, 0}); });  // whoever agrees has come
  });
}

// On a thread of its own: the queue's may wait to tell others of a refusal.
void SpanningBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  require_usable();
  wait_for_queued_operations();
  require_usable();
  require_running_python();
  const milliseconds timeout =
      options.timeout == c10d::kUnsetTimeout ? longest_wait() : std::min(options.timeout, kForever);
  auto work =
      c10::make_intrusive<QueuedWork>(group_, rank_, OpType::BARRIER, "shm:monitored_barrier", Tensors(), Tensors());
  queue_->add_beside(work);
  try {
    start_thread(
        [self = c10::intrusive_ptr<SpanningBackend>::reclaim_copy(this), work, timeout, wait_all_ranks]() mutable {
          ExitGate::keep_going();
          work->run([&] {
            self->run_in_step([&] {
              self->require_usable();  // an abort before the work was added has not ended it
              self->meet_at_rank_0(timeout, wait_all_ranks);
            });
          });
          const ExitGate::Inside inside;
          self->queue_->remove_beside(work);
          self.reset();
        });
  } catch (const CommError& error) {
    queue_->remove_beside(work);
    throw_backend_error(error.what());
  }
  work->wait(kNoTimeout);
}

// Each rank tells rank 0 that it is here, and rank 0 answers all. Gloo's own takes the tags of users' messages for
// that.
void SpanningBackend::meet_at_rank_0(milliseconds timeout, bool wait_all_ranks) {
  if (rank_ != 0) {
    OwnedMessage here(1), answer(1);
    here.memory[0] = 0;
    here.message = everyone_wire_.send(here.memory.get(), 1, 0, kMonitorTag);
    answer.message = everyone_wire_.receive(answer.memory.get(), 1, 0, kMonitorTag);
    try {
      here.message->wait(longest_wait());
      answer.message->wait(longest_wait());
    } catch (const std::exception& error) {
      throw_backend_error(c10::str("Rank ", rank_,
                                   " successfully reached monitoredBarrier, but received errors while waiting for "
                                   "send/recv from rank 0. Please check rank 0 logs for faulty rank. ",
                                   reason_of(error)));
    }
    return;
  }
  const auto until = end_of(timeout);
  std::vector<OwnedMessage> arriving, answers;
  for (int rank = 1; rank < size_; ++rank) {
    arriving.emplace_back(1);
    arriving.back().message = everyone_wire_.receive(arriving.back().memory.get(), 1, rank, kMonitorTag);
  }
  std::vector<int> missing;
  std::string reason;
  for (int rank = 1; rank < size_ && (wait_all_ranks || missing.empty()); ++rank) {
    const auto rest = std::chrono::duration_cast<milliseconds>(until - Clock::now());
    try {
      arriving[rank - 1].message->wait(std::max(rest, milliseconds{1}));
    } catch (const std::exception& error) {
      missing.push_back(rank);
      reason = reason_of(error);
    }
  }
  if (!missing.empty()) {
    throw_backend_error(c10::str("Rank 0 timed out in monitoredBarrier after ", timeout.count(), " ms. ",
                                 missing.size() > 1 ? "Ranks " : "Rank ", c10::Join(", ", missing),
                                 " failed to pass monitoredBarrier. ", reason));
  }
  for (int rank = 1; rank < size_; ++rank) {
    answers.emplace_back(1);
    answers.back().memory[0] = 0;
    answers.back().message = everyone_wire_.send(answers.back().memory.get(), 1, rank, kMonitorTag);
  }
  for (const OwnedMessage& one : answers) one.message->wait(longest_wait());
}

}  // namespace anyaccel::comm
