// What a group between hosts can do: each operation is checked here, and runs on the queue's thread.

#include <algorithm>
#include <iterator>

#include "spanning_backend.h"
#include "tensor_blocks.h"

namespace anyaccel::comm {
namespace {

// What can only go wrong on this rank is refused here, before other ranks are asked for anything.
void check_reducible(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  constexpr at::ScalarType kTypes[] = {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16,
                                       at::kLong,   at::kInt,   at::kChar, at::kByte};
  check_dense(tensor);
  TORCH_CHECK(std::find(std::begin(kTypes), std::end(kTypes), tensor.scalar_type()) != std::end(kTypes),
              "shm failed: got a reduction of ", tensor.scalar_type(),
              " between hosts; expected float64, float32, float16, "
              "bfloat16, int64, int32, int8 or uint8, as gloo does. Fix: convert the tensor.");
  check_reduction("reduction between hosts", tensor, op);
  scale_of(op);
}

void check_output(const at::Tensor& tensor) {
  check_dense(tensor);
  check_writable(tensor);
}

}  // namespace

WorkPtr SpanningBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  Turn turn(*queue_);
  const at::Tensor tensor = only("all_reduce", tensors);
  check_reducible(tensor, options.reduceOp);
  check_writable(tensor);
  return enqueue(turn, OpType::ALLREDUCE, "shm:all_reduce", tensors, tensors, options.asyncOp, [this, tensor, options] {
    agree(Collective::kAllReduce, tensor, tensor.numel(), reduction_of(options.reduceOp), -1);
    reduce_in_place(tensor, options.reduceOp);
  });
}

WorkPtr SpanningBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  Turn turn(*queue_);
  for (const at::Tensor& tensor : tensors) {
    check_reducible(tensor, options.reduceOp);
    check_writable(tensor);
  }
  return enqueue(turn, OpType::ALLREDUCE_COALESCED, "shm:all_reduce", tensors, tensors, options.asyncOp,
                 [this, tensors, options] {
                   const auto number = static_cast<int64_t>(tensors.size());
                   agree(Collective::kBarrier, at::empty({0}), number, Reduction::kNone, -1);
                   for (const at::Tensor& tensor : tensors) {
                     agree(Collective::kAllReduce, tensor, tensor.numel(), reduction_of(options.reduceOp), -1);
                   }
                   for (const at::Tensor& tensor : tensors) reduce_in_place(tensor, options.reduceOp);
                 });
}

WorkPtr SpanningBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  Turn turn(*queue_);
  const at::Tensor tensor = only("broadcast", tensors);
  check_rank("broadcast", options.rootRank, size_);
  if (options.rootRank == rank_) {
    check_dense(tensor);
  } else {
    check_output(tensor);
  }
  return enqueue(turn, OpType::BROADCAST, "shm:broadcast", tensors, tensors, options.asyncOp, [this, tensor, options] {
    agree(Collective::kBroadcast, tensor, tensor.numel(), Reduction::kNone, options.rootRank);
    broadcast_in_place(tensor, options.rootRank);
  });
}

WorkPtr SpanningBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                   const c10d::AllgatherOptions& options) {
  Turn turn(*queue_);
  const at::Tensor input = only("all_gather", inputs);
  const Tensors results = only_list("all_gather", outputs);
  check_each_rank("all_gather", results, size_);
  check_same_dtype("all_gather", input, results[0]);
  check_dense(input);
  for (const at::Tensor& output : results) {
    check_output(output);
    TORCH_CHECK(output.numel() == input.numel(), "shm all_gather between hosts failed: got outputs of ", output.numel(),
                " elements and an input of ", input.numel(), "; expected one size. Fix: pad them.");
  }
  return enqueue(turn, OpType::ALLGATHER, "shm:all_gather", inputs, results, options.asyncOp, [this, input, results] {
    agree(Collective::kAllGather, input, input.numel(), Reduction::kNone, -1);
    const at::Tensor rows = gather_everywhere(input);
    for (int rank = 0; rank < size_; ++rank) results[rank].copy_(rows[rank].view(results[rank].sizes()));
  });
}

WorkPtr SpanningBackend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  Turn turn(*queue_);
  check_same_dtype("all_gather", input, output);
  check_dense(input);
  check_output(output);
  TORCH_CHECK(output.numel() == size_ * input.numel(), "shm all_gather failed: got an output of ", output.numel(),
              " elements for ", size_, " inputs of ", input.numel(), "; expected their sum. Fix: correct its size.");
  return enqueue(turn, OpType::_ALLGATHER_BASE, "shm:_all_gather_base", {input}, {output}, options.asyncOp,
                 [this, input = input, output = output] {
                   agree(Collective::kAllGather, input, input.numel(), Reduction::kNone, -1);
                   output.copy_(gather_everywhere(input).view(output.sizes()));
                 });
}

WorkPtr SpanningBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                        const c10d::ReduceScatterOptions& options) {
  Turn turn(*queue_);
  return scatter_sums(turn, only("reduce_scatter", outputs), only_list("reduce_scatter", inputs), options);
}

WorkPtr SpanningBackend::scatter_sums(Turn& turn, const at::Tensor& output, const Tensors& given,
                                      const c10d::ReduceScatterOptions& options) {
  check_each_rank("reduce_scatter", given, size_);
  check_same_dtype("reduce_scatter", output, given[0]);
  for (const at::Tensor& input : given) check_reducible(input, options.reduceOp);
  check_output(output);
  TORCH_CHECK(given[rank_].numel() == output.numel(), "shm reduce_scatter failed: got an output of ", output.numel(),
              " elements for an input of ", given[rank_].numel(), "; expected one size. Fix: correct the output.");
  return enqueue(turn, OpType::REDUCE_SCATTER, "shm:reduce_scatter", given, {output}, options.asyncOp,
                 [this, given, output, options] {
                   Tensors flat;
                   for (const at::Tensor& one : given) flat.push_back(one.reshape(-1));
                   const at::Tensor all = at::cat(flat);
                   agree(Collective::kReduceScatter, all, all.numel(), reduction_of(options.reduceOp), -1);
                   reduce_in_place(all, options.reduceOp);
                   int64_t before = 0;
                   for (int rank = 0; rank < rank_; ++rank) before += given[rank].numel();
                   output.copy_(all.narrow(0, before, output.numel()).view(output.sizes()));
                 });
}

WorkPtr SpanningBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                              const c10d::ReduceScatterOptions& options) {
  Turn turn(*queue_);
  check_dense(input);
  return scatter_sums(turn, output, equal_parts("reduce_scatter", input, size_), options);
}

WorkPtr SpanningBackend::barrier(const c10d::BarrierOptions& options) {
  Turn turn(*queue_);
  return enqueue(turn, OpType::BARRIER, "shm:barrier", {}, {}, options.asyncOp, [this] {  // whoever agrees has come
    agree(Collective::kBarrier, at::empty({0}), 0, Reduction::kNone, -1);
  });
}

}  // namespace anyaccel::comm
