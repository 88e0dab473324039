#include "shm_backend.h"

#include "agreement.h"
#include "tensor_blocks.h"

namespace anyaccel::comm {
namespace {

constexpr const char* kPrefix = "shm:";

}  // namespace

ShmBackend::ShmBackend(GroupPtr group, c10::intrusive_ptr<Options> options)
    : Backend(group->rank(), group->world()), group_(std::move(group)), options_(std::move(options)) {}

ShmBackend::~ShmBackend() { group_->leave("shm failed: the process group was destroyed"); }

WorkPtr ShmBackend::launch(Turn* turn, Launch what, Staging staging,
                           const std::function<Task(Group&, int*)>& make_task) {
  auto work = c10::make_intrusive<ShmWork>(group_, rank_, what.type, what.title, what.inputs, std::move(staging),
                                           std::move(what.outputs));
  OperationFacts facts;
  facts.name = what.title + std::char_traits<char>::length(kPrefix);
  facts.sequence = turn == nullptr ? 0 : turn->number;
  facts.source = what.type == OpType::RECV || what.type == OpType::RECVANYSOURCE ? work->source() : nullptr;
  facts.peer = what.peer;
  facts.is_transfer = what.is_transfer;
  facts.timeout = what.timeout == c10d::kUnsetTimeout ? options_->timeout : what.timeout;
  if (turn != nullptr) turn->is_taken = true;
  ShmWork::start(work, facts, make_task(*group_, work->source()), what.is_async);
  return work;
}

Announcement ShmBackend::announcement(Collective collective, const at::Tensor& like, std::optional<int64_t> root) {
  if (root) check_rank(name_of(collective), *root, size_);
  return {collective,
          dtype_of(like),
          Reduction::kNone,
          static_cast<int>(root.value_or(-1)),
          0,
          like.numel(),
          1,
          static_cast<std::uint8_t>(like.scalar_type())};
}

Announcement ShmBackend::reduction(Collective collective, const at::Tensor& like, const c10d::ReduceOp& op,
                                   std::optional<int64_t> root) {
  check_reduction(name_of(collective), like, op);
  Announcement what = announcement(collective, like, root);
  what.reduction = reduction_of(op);
  what.scale = scale_of(op);
  return what;
}

WorkPtr ShmBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) {
  return in_turn([&](Turn& turn) {
    const at::Tensor& tensor = only("broadcast", tensors);
    const Announcement what = announcement(Collective::kBroadcast, tensor, options.rootRank);
    Staging staging;
    const Block block = options.rootRank == rank_ ? staging.input(tensor) : staging.output(tensor);
    Blocks outputs(size_);
    outputs[what.root] = block;
    return launch(&turn, {OpType::BROADCAST, "shm:broadcast", options.timeout, options.asyncOp, tensors, tensors},
                  std::move(staging), [&](Group& group, int*) { return share(group, what, block, outputs); });
  });
}

WorkPtr ShmBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) {
  if (tensors.size() == 1 && tensors[0].is_sparse()) return allreduce_sparse(tensors, options);
  return in_turn([&](Turn& turn) {
    const at::Tensor& tensor = only("all_reduce", tensors);
    const Announcement what = reduction(Collective::kAllReduce, tensor, options.reduceOp);
    Staging staging;
    const Block block = staging.in_out(tensor);
    return launch(&turn, {OpType::ALLREDUCE, "shm:all_reduce", options.timeout, options.asyncOp, tensors, tensors},
                  std::move(staging), [&](Group& group, int*) { return all_reduce(group, what, block); });
  });
}

WorkPtr ShmBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return in_turn([&](Turn& turn) {
    Staging staging;
    std::vector<Part> parts;
    const Tensors each = distinct(tensors);
    for (std::size_t i = 0; i < each.size(); ++i) {
      const Announcement what = one_of(reduction(Collective::kAllReduce, each[i], options.reduceOp), each);
      const Block block = may_overlap(each, i) ? staging.in_out_apart(each[i]) : staging.in_out(each[i]);
      parts.push_back({what, {}, {}, all_reduce(*group_, what, block)});
    }
    return launch(&turn,
                  {OpType::ALLREDUCE_COALESCED, "shm:all_reduce", options.timeout, options.asyncOp, tensors, tensors},
                  std::move(staging), [&](Group& group, int*) { return coalesced(group, std::move(parts)); });
  });
}

WorkPtr ShmBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& options) {
  return in_turn([&](Turn& turn) {
    const at::Tensor& tensor = only("reduce", tensors);
    const Announcement what = reduction(Collective::kReduce, tensor, options.reduceOp, options.rootRank);
    Staging staging;
    const Block block = options.rootRank == rank_ ? staging.in_out(tensor) : staging.input(tensor);
    return launch(&turn, {OpType::REDUCE, "shm:reduce", options.timeout, options.asyncOp, tensors, tensors},
                  std::move(staging), [&](Group& group, int*) { return all_reduce(group, what, block); });
  });
}

Part ShmBackend::gather_all(Announcement what, const at::Tensor& input, const Tensors& outputs, Staging& staging) {
  check_each_rank("all_gather", outputs, size_);
  check_same_dtype("all_gather", input, outputs[0]);
  Blocks blocks;
  for (const at::Tensor& output : outputs) blocks.push_back(staging.output(output));
  const Block block = staging.input(apart_from_outputs(input, outputs, rank_));
  return {what, Blocks(size_, block), blocks, share(*group_, what, block, blocks)};
}

WorkPtr ShmBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) {
  return in_turn([&](Turn& turn) {
    const at::Tensor& input = only("all_gather", inputs);
    const Tensors& results = only_list("all_gather", outputs);
    Staging staging;
    Part part = gather_all(announcement(Collective::kAllGather, input), input, results, staging);
    return launch(&turn, {OpType::ALLGATHER, "shm:all_gather", options.timeout, options.asyncOp, inputs, results},
                  std::move(staging), [&](Group&, int*) { return std::move(part.task); });
  });
}

WorkPtr ShmBackend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  return in_turn([&](Turn& turn) {
    Staging staging;
    Part part = gather_all(announcement(Collective::kAllGather, input), input, equal_parts("all_gather", output, size_),
                           staging);
    return launch(
        &turn, {OpType::_ALLGATHER_BASE, "shm:_all_gather_base", options.timeout, options.asyncOp, {input}, {output}},
        std::move(staging), [&](Group&, int*) { return std::move(part.task); });
  });
}

WorkPtr ShmBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                        const c10d::AllgatherOptions& options) {
  return in_turn([&](Turn& turn) {
    TORCH_CHECK(static_cast<int>(outputs.size()) == size_, "shm all_gather failed: got ", outputs.size(),
                " lists of outputs; expected one for each of ", size_,
                " ranks. Fix: pass a list of lists, one per rank.");
    Staging staging;
    std::vector<Part> parts;
    Tensors results;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      Tensors of_ranks;
      for (const Tensors& of_rank : outputs) {
        check_as_many("all_gather", of_rank, inputs);
        of_ranks.push_back(of_rank[i]);
      }
      parts.push_back(
          gather_all(one_of(announcement(Collective::kAllGather, inputs[i]), inputs), inputs[i], of_ranks, staging));
      results.insert(results.end(), of_ranks.begin(), of_ranks.end());
    }
    return launch(&turn,
                  {OpType::ALLGATHER_COALESCED, "shm:all_gather", options.timeout, options.asyncOp, inputs, results},
                  std::move(staging), [&](Group& group, int*) { return coalesced(group, std::move(parts)); });
  });
}

WorkPtr ShmBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                    const c10d::AllgatherOptions& options) {
  return in_turn([&](Turn& turn) {
    check_as_many("all_gather", outputs, inputs);
    Staging staging;
    std::vector<Part> parts;
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      parts.push_back(gather_all(one_of(announcement(Collective::kAllGather, inputs[i]), inputs), inputs[i],
                                 equal_parts("all_gather", outputs[i], size_), staging));
    }
    return launch(&turn, {OpType::COALESCED, "shm:all_gather", options.timeout, options.asyncOp, inputs, outputs},
                  std::move(staging), [&](Group& group, int*) { return coalesced(group, std::move(parts)); });
  });
}

WorkPtr ShmBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  return in_turn([&](Turn& turn) {
    const at::Tensor& input = only("gather", inputs);
    const Announcement what = announcement(Collective::kGather, input, options.rootRank);
    Staging staging;
    Blocks blocks;
    Tensors results;
    if (options.rootRank == rank_) {
      results = only_list("gather", outputs);
      check_each_rank("gather", results, size_);
      check_same_dtype("gather", input, results[0]);
      for (const at::Tensor& output : results) blocks.push_back(staging.output(output));
    }
    const Block block = staging.input(input);
    return launch(&turn, {OpType::GATHER, "shm:gather", options.timeout, options.asyncOp, inputs, results},
                  std::move(staging), [&](Group& group, int*) { return share(group, what, block, blocks); });
  });
}

WorkPtr ShmBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) {
  return in_turn([&](Turn& turn) {
    const at::Tensor& output = only("scatter", outputs);
    const Announcement what = announcement(Collective::kScatter, output, options.rootRank);
    Staging staging;
    Blocks sends;
    Tensors given;
    if (options.rootRank == rank_) {
      given = only_list("scatter", inputs);
      check_each_rank("scatter", given, size_);
      check_same_dtype("scatter", output, given[0]);
      for (const at::Tensor& input : apart_from_outputs(given, {output}, rank_)) sends.push_back(staging.input(input));
    }
    Blocks receives(size_);
    receives[what.root] = staging.output(output);
    return launch(&turn, {OpType::SCATTER, "shm:scatter", options.timeout, options.asyncOp, given, outputs},
                  std::move(staging), [&](Group& group, int*) { return exchange(group, what, sends, receives); });
  });
}

}  // namespace anyaccel::comm
