// The rest of ShmBackend: exchanges, reductions to each rank, messages, and the group's own life.

#include "agreement.h"
#include "shm_backend.h"
#include "tensor_blocks.h"

namespace anyaccel::comm {

Part ShmBackend::reduce_blocks(Announcement what, const Tensors& inputs, const at::Tensor& output, Staging& staging) {
  check_each_rank("reduce_scatter", inputs, size_);
  check_same_dtype("reduce_scatter", output, inputs[0]);
  Blocks blocks;
  for (const at::Tensor& input : apart_from_outputs(inputs, {output}, rank_)) blocks.push_back(staging.input(input));
  const Block result = staging.output(output);
  return {what, blocks, Blocks(size_, result), reduce_scatter_blocks(*group_, what, blocks, result)};
}

WorkPtr ShmBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                   const c10d::ReduceScatterOptions& options) {
  return in_turn([&](Turn& turn) {
    const at::Tensor& output = only("reduce_scatter", outputs);
    const Tensors& given = only_list("reduce_scatter", inputs);
    Staging staging;
    Part part = reduce_blocks(reduction(Collective::kReduceScatter, output, options.reduceOp), given, output, staging);
    return launch(&turn,
                  {OpType::REDUCE_SCATTER, "shm:reduce_scatter", options.timeout, options.asyncOp, given, outputs},
                  std::move(staging), [&](Group&, int*) { return std::move(part.task); });
  });
}

WorkPtr ShmBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                         const c10d::ReduceScatterOptions& options) {
  return in_turn([&](Turn& turn) {
    Staging staging;
    Part part = reduce_blocks(reduction(Collective::kReduceScatter, output, options.reduceOp),
                              equal_parts("reduce_scatter", input, size_), output, staging);
    return launch(
        &turn,
        {OpType::_REDUCE_SCATTER_BASE, "shm:_reduce_scatter_base", options.timeout, options.asyncOp, {input}, {output}},
        std::move(staging), [&](Group&, int*) { return std::move(part.task); });
  });
}

WorkPtr ShmBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                    const c10d::ReduceScatterOptions& options) {
  return in_turn([&](Turn& turn) {
    check_as_many("reduce_scatter", outputs, inputs);
    Staging staging;
    std::vector<Part> parts;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      parts.push_back(
          reduce_blocks(one_of(reduction(Collective::kReduceScatter, outputs[i], options.reduceOp), outputs),
                        equal_parts("reduce_scatter", inputs[i], size_), outputs[i], staging));
    }
    return launch(
        &turn,
        {coalesced_reduce_scatter<OpType>(), "shm:reduce_scatter", options.timeout, options.asyncOp, inputs, outputs},
        std::move(staging), [&](Group& group, int*) { return coalesced(group, std::move(parts)); });
  });
}

WorkPtr ShmBackend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                                  std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) {
  return in_turn([&](Turn& turn) {
    check_same_dtype("all_to_all", output, input);
    const Announcement what = announcement(Collective::kAllToAll, input);
    Staging staging;
    const at::Tensor given = apart_from_outputs(input, {output}, 1);
    const Blocks sends = split_rows("all_to_all", staging.input(given), input, input_splits, size_);
    const Blocks receives = split_rows("all_to_all", staging.output(output), output, output_splits, size_);
    return launch(&turn, {OpType::ALLTOALL_BASE, "shm:all_to_all", options.timeout, options.asyncOp, {input}, {output}},
                  std::move(staging), [&](Group& group, int*) { return exchange(group, what, sends, receives); });
  });
}

WorkPtr ShmBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  return in_turn([&](Turn& turn) {
    check_each_rank("all_to_all", inputs, size_);
    check_each_rank("all_to_all", outputs, size_);
    check_same_dtype("all_to_all", outputs[0], inputs[0]);
    const Announcement what = announcement(Collective::kAllToAll, inputs[0]);
    Staging staging;
    Blocks sends, receives;
    for (const at::Tensor& input : apart_from_outputs(inputs, outputs, rank_)) sends.push_back(staging.input(input));
    for (const at::Tensor& output : outputs) receives.push_back(staging.output(output));
    return launch(&turn, {OpType::ALLTOALL, "shm:all_to_all", options.timeout, options.asyncOp, inputs, outputs},
                  std::move(staging), [&](Group& group, int*) { return exchange(group, what, sends, receives); });
  });
}

namespace {

void require_tag(const char* operation, int tag) {
  TORCH_CHECK(tag >= 0, "shm ", operation, " failed: got tag ", tag,
              "; expected 0 or more. Fix: pass a tag that is not negative.");
}

}  // namespace

WorkPtr ShmBackend::send(Tensors& tensors, int to, int tag) {
  const at::Tensor& tensor = only("send", tensors);
  check_rank("send", to, size_);
  require_tag("send", tag);
  TORCH_CHECK(to != rank_, "shm send failed: got this rank's own number, ", to,
              "; expected another rank of the group. Fix: pass another rank; within one process, copy the tensor with "
              "copy_().");
  Staging staging;
  const Block block = staging.input(tensor);
  const Dtype dtype = dtype_of(tensor);
  return launch(nullptr, {OpType::SEND, "shm:send", c10d::kUnsetTimeout, true, tensors, tensors, to, true},
                std::move(staging), [&](Group& group, int*) {
                  return group.mailbox().send(to, tag, dtype, block.data, block.count * element_bytes(dtype));
                });
}

WorkPtr ShmBackend::receive(at::Tensor& tensor, int from, int tag, OpType type) {
  require_tag("recv", tag);
  Staging staging;
  const Block block = staging.output(tensor);
  const Dtype dtype = dtype_of(tensor);
  return launch(nullptr, {type, "shm:recv", c10d::kUnsetTimeout, true, {}, {tensor}, from, true}, std::move(staging),
                [&](Group& group, int* source) {
                  return group.mailbox().receive(from, tag, dtype, block.data, block.count * element_bytes(dtype),
                                                 source);
                });
}

WorkPtr ShmBackend::recv(Tensors& tensors, int from, int tag) {
  only("recv", tensors);
  check_rank("recv", from, size_);
  TORCH_CHECK(from != rank_, "shm recv failed: got this rank's own number, ", from,
              "; expected another rank of the group. Fix: pass another rank; within one process, copy the tensor with "
              "copy_().");
  return receive(tensors[0], from, tag, OpType::RECV);
}

WorkPtr ShmBackend::recvAnysource(Tensors& tensors, int tag) {
  only("recv", tensors);
  return receive(tensors[0], -1, tag, OpType::RECVANYSOURCE);
}

WorkPtr ShmBackend::barrier(const c10d::BarrierOptions& options) {
  return in_turn([&](Turn& turn) {
    const Announcement what{Collective::kBarrier, Dtype::kUInt8, Reduction::kNone, -1, 0, 0, 1};
    return launch(&turn, {OpType::BARRIER, "shm:barrier", options.timeout, options.asyncOp, {}, {}}, Staging(),
                  [&](Group& group, int*) { return share(group, what, Block{}, Blocks{}); });
  });
}

// Like gloo's, the error names the missing ranks, all of them or the first; it also gives the cause.
void ShmBackend::monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) {
  c10d::BarrierOptions sync = options;
  sync.asyncOp = false;
  try {
    barrier(sync)->wait(kNoTimeout);
  } catch (const c10::DistBackendError& error) {
    std::vector<int> missing = group_->is_forked() ? std::vector<int>{} : group_->late_ranks();
    if (missing.empty() || getError() != c10d::ErrorType::TIMEOUT) throw;
    if (!wait_all_ranks) missing.resize(1);
    const char* ranks = missing.size() > 1 ? "Ranks " : "Rank ";
    const auto timeout = sync.timeout == c10d::kUnsetTimeout ? options_->timeout : sync.timeout;
    throw_backend_error(c10::str("Rank ", rank_, " timed out in monitoredBarrier after ", timeout.count(), " ms. ",
                                 ranks, c10::Join(", ", missing), " failed to pass monitoredBarrier. ",
                                 error.what_without_backtrace()));
  }
}

c10d::ErrorType ShmBackend::getError() {
  if (group_->is_forked() || !group_->has_failed()) return c10d::ErrorType::SUCCESS;
  const bool is_timeout = group_->failure_text().find("Timed out") != std::string::npos;
  return is_timeout ? c10d::ErrorType::TIMEOUT : c10d::ErrorType::COMM_ERROR;
}

void ShmBackend::abort() {
  if (!group_->is_forked()) group_->fail("shm failed: the process group was aborted by " + group_->name_of_rank(rank_));
}

// What was issued is done first.
void ShmBackend::shutdown() {
  try {
    if (!group_->is_forked()) group_->finish_collectives(interrupt);
  } catch (...) {
    leave();
    throw;
  }
  leave();
}

void ShmBackend::leave() { group_->leave("shm failed: the process group was shut down"); }

}  // namespace anyaccel::comm
