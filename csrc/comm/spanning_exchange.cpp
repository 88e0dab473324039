// What a rank has for, or wants of, each single rank, in a group between hosts: parts of collectives, and messages.

#include <limits>

#include "spanning_backend.h"
#include "spanning_checks.h"
#include "tensor_blocks.h"

namespace anyaccel::comm {
namespace {

// A tensor for each rank by numbers of rows; equal ones where none are given.
Tensors rows_for_each(const at::Tensor& tensor, const std::vector<int64_t>& rows, int world) {
  const Blocks blocks = split_rows("all_to_all", Block{}, tensor, rows, world);  // which checks them
  const int64_t length = tensor.dim() > 0 ? tensor.size(0) : 1;
  Tensors parts;
  int64_t before = 0;
  for (const Block& block : blocks) {
    const int64_t count = tensor.numel() == 0 ? 0 : block.count / (tensor.numel() / length);
    parts.push_back(tensor.dim() > 0 ? tensor.narrow(0, before, count) : tensor.view(-1).narrow(0, before, count));
    before += count;
  }
  return parts;
}

// Tensors to receive in: a result itself, or memory that takes its place until it has arrived.
Tensors plain_in_place_of(const Tensors& results) {
  Tensors found;
  for (const at::Tensor& one : results) {
    found.push_back(is_plain(one) ? one : at::empty(one.sizes(), one.options()));
  }
  return found;
}

void copy_what_arrived(const Tensors& arrived, const Tensors& results) {
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (!arrived[i].is_same(results[i])) results[i].copy_(arrived[i]);
  }
}

Blocks bytes_of_each(const Tensors& tensors) {
  Blocks blocks;
  for (const at::Tensor& one : tensors) {
    blocks.push_back({static_cast<unsigned char*>(one.data_ptr()), static_cast<int64_t>(one.nbytes())});
  }
  return blocks;
}

at::Tensor nothing_like(const at::Tensor& tensor) { return at::empty({0}, tensor.options()); }

}  // namespace

// What goes to a rank of this host travels by memory while messages between hosts are on their way.
void SpanningBackend::exchange(const Tensors& sends, const Tensors& receives, Heads heads) {
  std::vector<WorkPtr> between;
  Tensors to_here, from_here;
  const Tensors arriving = plain_in_place_of(receives);
  for (int rank = 0; rank < size_; ++rank) {
    const at::Tensor bytes = as_bytes(arriving[rank]);
    Tensors rest{bytes.slice(0, heads.begun(rank).received)};
    if (is_here(rank)) {
      from_here.push_back(bytes);
    } else if (rest[0].numel() > 0) {
      between.push_back(everyone_->recv(rest, rank, kExchangeTag));
    }
  }
  for (int rank = 0; rank < size_; ++rank) {
    const at::Tensor bytes = as_bytes(plain(sends[rank]));
    Tensors rest{bytes.slice(0, heads.begun(rank).sent)};
    if (is_here(rank)) {
      to_here.push_back(bytes);
    } else if (rest[0].numel() > 0) {
      between.push_back(everyone_->send(rest, rank, kExchangeTag));
    }
  }
  finish(local_->alltoall(from_here, to_here, inline_options<c10d::AllToAllOptions>()));
  heads.finish(bytes_of_each(arriving));
  for (const WorkPtr& work : between) work->wait(longest_wait());
  copy_what_arrived(arriving, receives);
}

// Each part crosses once to every other host, to the rank with the same place there, which passes it on by memory.
void SpanningBackend::gather_by_places(const at::Tensor& input, const Tensors& outputs) {
  if (input.numel() == 0) return;
  const Tensors arriving = plain_in_place_of(outputs);
  const auto pass_on = [&](const std::vector<int>& ranks, const at::Tensor& part) {
    std::vector<Tensors> parts(1);
    for (const int rank : ranks) parts[0].push_back(as_bytes(arriving[rank]));
    Tensors own{part};
    finish(local_->allgather(parts, own, inline_options<c10d::AllgatherOptions>()));
  };
  const int place = local_rank_of(rank_);
  const int64_t hosts = static_cast<int64_t>(hosts_.ranks.size());
  Tensors own{as_bytes(plain(input))};
  std::vector<WorkPtr> received, sent;
  for (int64_t next = 1; next < hosts; ++next) {  // each host starts with another one
    const int peer = hosts_.ranks[(hosts_.own + hosts - next) % hosts][place];
    Tensors part{as_bytes(arriving[peer])};
    received.push_back(everyone_->recv(part, peer, kExchangeTag));
  }
  for (int64_t next = 1; next < hosts; ++next) {
    sent.push_back(everyone_->send(own, hosts_.ranks[(hosts_.own + next) % hosts][place], kExchangeTag));
  }
  pass_on(hosts_.ranks[hosts_.own], own[0]);
  for (int64_t next = 1; next < hosts; ++next) {
    received[next - 1]->wait(longest_wait());
    const std::vector<int>& ranks = hosts_.ranks[(hosts_.own + hosts - next) % hosts];
    pass_on(ranks, as_bytes(arriving[ranks[place]]));
  }
  for (const WorkPtr& work : sent) work->wait(longest_wait());
  copy_what_arrived(arriving, outputs);
}

SpanningBackend::Request SpanningBackend::gathering(const at::Tensor& input, const Tensors& outputs) const {
  check_each_rank("all_gather", outputs, size_);
  check_same_dtype("all_gather", input, outputs[0]);
  check_dense(input);
  for (const at::Tensor& output : outputs) check_output(output);
  TORCH_CHECK(outputs[rank_].numel() == input.numel(), "shm all_gather failed: got an output of ",
              outputs[rank_].numel(), " elements for this rank's input of ", input.numel(),
              "; expected one size. Fix: create it with torch.empty_like(input).");
  return {Collective::kAllGather,  input.scalar_type(), elements_of(outputs), Reduction::kNone, -1,
          digest_of_sizes(outputs)};
}

void SpanningBackend::all_gather(const at::Tensor& given, const Tensors& outputs) {
  const at::Tensor input = apart_from_outputs(given, outputs, rank_);
  if (digest_of_sizes(outputs) != 0) {
    exchange(Tensors(size_, input), outputs, no_heads());
    return;
  }
  if (are_hosts_alike_) {
    gather_by_places(input, outputs);
    return;
  }
  const at::Tensor rows = gather_everywhere(input);
  for (int rank = 0; rank < size_; ++rank) outputs[rank].copy_(rows[rank].view(outputs[rank].sizes()));
}

WorkPtr SpanningBackend::allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                                   const c10d::AllgatherOptions& options) {
  return in_turn([&](Turn& turn) {
    const at::Tensor input = only("all_gather", inputs);
    const Tensors results = only_list("all_gather", outputs);
    const Request request = gathering(input, results);
    return enqueue(turn, {OpType::ALLGATHER, "shm:all_gather", options.asyncOp, inputs, results},
                   [this, input, results, request] {
                     agree(request);
                     all_gather(input, results);
                   });
  });
}

WorkPtr SpanningBackend::_allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) {
  return in_turn([&](Turn& turn) {
    check_output(output);
    const Tensors results = equal_parts("all_gather", output, size_);
    const Request request = gathering(input, results);
    return enqueue(turn, {OpType::_ALLGATHER_BASE, "shm:_all_gather_base", options.asyncOp, {input}, {output}},
                   [this, input = input, results, request] {
                     agree(request);
                     all_gather(input, results);
                   });
  });
}

SpanningBackend::Request SpanningBackend::scattering(const Tensors& inputs, const at::Tensor& output,
                                                     const c10d::ReduceOp& op) const {
  check_each_rank("reduce_scatter", inputs, size_);
  check_same_dtype("reduce_scatter", output, inputs[0]);
  for (const at::Tensor& input : inputs) check_reducible("reduce_scatter", input, op);
  check_output(output);
  TORCH_CHECK(inputs[rank_].numel() == output.numel(), "shm reduce_scatter failed: got an output of ", output.numel(),
              " elements for an input of ", inputs[rank_].numel(),
              "; expected one size. Fix: create it with torch.empty_like(input).");
  return {Collective::kReduceScatter, output.scalar_type(), elements_of(inputs), reduction_of(op), -1,
          digest_of_sizes(inputs)};
}

WorkPtr SpanningBackend::reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                                        const c10d::ReduceScatterOptions& options) {
  return in_turn([&](Turn& turn) {
    const at::Tensor output = only("reduce_scatter", outputs);
    const Tensors given = only_list("reduce_scatter", inputs);
    return scatter_each(turn, {OpType::REDUCE_SCATTER, "shm:reduce_scatter", options.asyncOp, given, {output}}, {given},
                        options.reduceOp);
  });
}

WorkPtr SpanningBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                              const c10d::ReduceScatterOptions& options) {
  return in_turn([&](Turn& turn) {
    check_dense(input);
    return scatter_each(turn,
                        {OpType::_REDUCE_SCATTER_BASE, "shm:_reduce_scatter_base", options.asyncOp, {input}, {output}},
                        {equal_parts("reduce_scatter", input, size_)}, options.reduceOp);
  });
}

WorkPtr SpanningBackend::exchange_each(Turn& turn, Queued what, Request request, Tensors sends, Tensors receives) {
  for (const at::Tensor& one : sends) check_dense(one);
  for (const at::Tensor& one : receives) check_output(one);
  return enqueue(turn, std::move(what), [this, request, sends, receives] {
    Tensors flat;
    for (const at::Tensor& one : apart_from_outputs(sends, receives, rank_)) flat.push_back(plain(one));
    Heads heads = no_heads();
    if (do_sizes_ride()) heads.begin(bytes_of_each(flat), bytes_of_each(receives));
    agree_on_sizes(request, flat, receives, heads);
    exchange(flat, receives, std::move(heads));
  });
}

WorkPtr SpanningBackend::gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) {
  return in_turn([&](Turn& turn) {
    const at::Tensor input = only("gather", inputs);
    check_rank("gather", options.rootRank, size_);
    Tensors sends(size_, nothing_like(input)), receives = sends;
    sends[options.rootRank] = input;
    if (options.rootRank == rank_) {
      receives = only_list("gather", outputs);
      check_each_rank("gather", receives, size_);
      check_same_dtype("gather", input, receives[0]);
    }
    return exchange_each(turn, {OpType::GATHER, "shm:gather", options.asyncOp, inputs, receives},
                         {Collective::kGather, input.scalar_type(), 0, Reduction::kNone, options.rootRank}, sends,
                         receives);
  });
}

WorkPtr SpanningBackend::scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) {
  return in_turn([&](Turn& turn) {
    const at::Tensor output = only("scatter", outputs);
    check_rank("scatter", options.rootRank, size_);
    Tensors sends(size_, nothing_like(output)), receives = sends;
    receives[options.rootRank] = output;
    if (options.rootRank == rank_) {
      sends = only_list("scatter", inputs);
      check_each_rank("scatter", sends, size_);
      check_same_dtype("scatter", output, sends[0]);
    }
    return exchange_each(turn, {OpType::SCATTER, "shm:scatter", options.asyncOp, sends, outputs},
                         {Collective::kScatter, output.scalar_type(), 0, Reduction::kNone, options.rootRank}, sends,
                         receives);
  });
}

WorkPtr SpanningBackend::alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                                       std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) {
  return in_turn([&](Turn& turn) {
    check_same_dtype("all_to_all", output, input);
    check_dense(input);
    check_output(output);
    return exchange_each(turn, {OpType::ALLTOALL_BASE, "shm:all_to_all", options.asyncOp, {input}, {output}},
                         {Collective::kAllToAll, input.scalar_type(), 0}, rows_for_each(input, input_splits, size_),
                         rows_for_each(output, output_splits, size_));
  });
}

WorkPtr SpanningBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) {
  return in_turn([&](Turn& turn) {
    check_each_rank("all_to_all", inputs, size_);
    check_each_rank("all_to_all", outputs, size_);
    check_same_dtype("all_to_all", outputs[0], inputs[0]);
    return exchange_each(turn, {OpType::ALLTOALL, "shm:all_to_all", options.asyncOp, inputs, outputs},
                         {Collective::kAllToAll, inputs[0].scalar_type(), 0}, inputs, outputs);
  });
}

}  // namespace anyaccel::comm
