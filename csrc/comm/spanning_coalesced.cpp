// Several collectives as one, in a group between hosts: none is begun before the ranks agree on all of them.

#include <algorithm>
#include <cstdint>
#include <utility>

#include "spanning_backend.h"
#include "spanning_checks.h"
#include "tensor_blocks.h"

namespace anyaccel::comm {
namespace {

struct Range {
  std::size_t begin, end;

  Tensors of(const Tensors& tensors) const { return {tensors.begin() + begin, tensors.begin() + end}; }
};

// The parts in their order, in ranges of one dtype that are small together, and as large on each rank: a range crosses
// as one. The same on every rank that has agreed.
template <typename Requests>
std::vector<Range> small_ones_together(const Requests& requests) {
  constexpr int64_t kMostBytes = 1 << 20;
  std::vector<Range> ranges;
  int64_t bytes = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const auto& one = requests[i];
    const int64_t more = one.count * static_cast<int64_t>(c10::elementSize(one.type));
    const bool joins = i > 0 && one.digest == 0 && requests[i - 1].digest == 0 && one.type == requests[i - 1].type &&
                       bytes + more <= kMostBytes;
    bytes = (joins ? bytes : 0) + more;
    if (!joins) ranges.push_back({i, i});
    ranges.back().end = i + 1;
  }
  return ranges;
}

// A copy of the elements of tensors of one dtype, one tensor after the other.
at::Tensor joined(const Tensors& tensors) {
  Tensors bytes;
  for (const at::Tensor& one : tensors) bytes.push_back(as_bytes(plain(one)));
  return at::cat(bytes).view(tensors[0].scalar_type());
}

// Copies elements that follow one another to tensors, and returns how many these were.
int64_t take_apart(const at::Tensor& elements, const Tensors& tensors) {
  int64_t before = 0;
  for (const at::Tensor& one : tensors) {
    one.copy_(elements.narrow(0, before, one.numel()).view(one.sizes()));
    before += one.numel();
  }
  return before;
}

}  // namespace

void SpanningBackend::agree_on_each(std::vector<Request> requests) {
  if (requests.empty()) return;
  uint64_t digest = 0xcbf29ce484222325;  // FNV-1a, over words
  for (Request& one : requests) {
    one.parts = static_cast<int64_t>(requests.size());
    for (const int64_t word : {static_cast<int64_t>(one.collective), static_cast<int64_t>(one.type), one.count,
                               static_cast<int64_t>(one.reduction), one.root, one.digest}) {
      digest = (digest ^ static_cast<uint64_t>(word)) * 0x100000001b3;
    }
  }
  const at::Tensor own = at::full({1}, static_cast<int64_t>(digest), at::kLong);
  const at::Tensor riders = agree(requests[0], as_bytes(own));
  const at::Tensor digests = riders.narrow(1, 0, static_cast<int64_t>(sizeof(digest))).contiguous().view(at::kLong);
  if (digests.eq(own).all().item<bool>()) return;
  for (const Request& one : requests) agree(one);
}

WorkPtr SpanningBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) {
  return in_turn([&](Turn& turn) {
    const Tensors each = distinct(tensors);
    std::vector<Request> requests;
    for (const at::Tensor& tensor : each) {
      check_reducible("all_reduce", tensor, options.reduceOp);
      check_writable(tensor);
      requests.push_back(
          {Collective::kAllReduce, tensor.scalar_type(), tensor.numel(), reduction_of(options.reduceOp), -1});
    }
    return enqueue(turn, {OpType::ALLREDUCE_COALESCED, "shm:all_reduce", options.asyncOp, tensors, tensors},
                   [this, each, requests, op = options.reduceOp] {
                     agree_on_each(requests);
                     Tensors apart = each;
                     for (std::size_t i = 0; i < each.size(); ++i) {
                       if (may_overlap(each, i)) apart[i] = each[i].clone();
                     }
                     for (const Range& range : small_ones_together(requests)) {
                       if (range.end - range.begin == 1) {
                         reduce_in_place(apart[range.begin], op);
                         continue;
                       }
                       const at::Tensor all = joined(range.of(apart));
                       reduce_in_place(all, op);
                       take_apart(all, range.of(apart));
                     }
                     for (std::size_t i = 0; i < each.size(); ++i) {
                       if (!apart[i].is_same(each[i])) each[i].copy_(apart[i]);
                     }
                   });
  });
}

WorkPtr SpanningBackend::allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                             const c10d::AllgatherOptions& options) {
  return in_turn([&](Turn& turn) {
    TORCH_CHECK(static_cast<int>(outputs.size()) == size_, "shm all_gather failed: got ", outputs.size(),
                " lists of outputs; expected one for each of ", size_,
                " ranks. Fix: pass a list of lists, one per rank.");
    std::vector<Tensors> by_input(inputs.size());
    Tensors results;
    for (const Tensors& of_rank : outputs) {
      check_as_many("all_gather", of_rank, inputs);
      for (std::size_t i = 0; i < inputs.size(); ++i) by_input[i].push_back(of_rank[i]);
      results.insert(results.end(), of_rank.begin(), of_rank.end());
    }
    return gather_each(turn, {OpType::ALLGATHER_COALESCED, "shm:all_gather", options.asyncOp, inputs, results},
                       by_input);
  });
}

WorkPtr SpanningBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                         const c10d::AllgatherOptions& options) {
  return in_turn([&](Turn& turn) {
    check_as_many("all_gather", outputs, inputs);
    std::vector<Tensors> by_input;
    for (const at::Tensor& output : outputs) {
      check_output(output);
      by_input.push_back(equal_parts("all_gather", output, size_));
    }
    return gather_each(turn, {OpType::COALESCED, "shm:all_gather", options.asyncOp, inputs, outputs}, by_input);
  });
}

WorkPtr SpanningBackend::gather_each(Turn& turn, Queued what, std::vector<Tensors> results) {
  std::vector<Request> requests;
  for (std::size_t i = 0; i < results.size(); ++i) requests.push_back(gathering(what.inputs[i], results[i]));
  const Tensors inputs = what.inputs;
  return enqueue(turn, std::move(what), [this, inputs, results, requests] {
    agree_on_each(requests);
    for (const Range& range : small_ones_together(requests)) {
      if (range.end - range.begin == 1) {
        all_gather(inputs[range.begin], results[range.begin]);
        continue;
      }
      const at::Tensor own = joined(range.of(inputs));
      const at::Tensor rows = at::empty({size_, own.numel()}, own.options());
      all_gather(own, rows.unbind(0));
      for (int rank = 0; rank < size_; ++rank) {
        Tensors of_rank;
        for (std::size_t i = range.begin; i < range.end; ++i) of_rank.push_back(results[i][rank]);
        take_apart(rows[rank], of_rank);
      }
    }
  });
}

WorkPtr SpanningBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                         const c10d::ReduceScatterOptions& options) {
  return in_turn([&](Turn& turn) {
    check_as_many("reduce_scatter", outputs, inputs);
    std::vector<Tensors> given;
    for (const at::Tensor& input : inputs) {
      check_dense(input);
      given.push_back(equal_parts("reduce_scatter", input, size_));
    }
    return scatter_each(turn,
                        {coalesced_reduce_scatter<OpType>(), "shm:reduce_scatter", options.asyncOp, inputs, outputs},
                        std::move(given), options.reduceOp);
  });
}

// One or several reduce_scatters.
WorkPtr SpanningBackend::scatter_each(Turn& turn, Queued what, std::vector<Tensors> given, const c10d::ReduceOp& op) {
  std::vector<Request> requests;
  for (std::size_t i = 0; i < given.size(); ++i) requests.push_back(scattering(given[i], what.outputs[i], op));
  const Tensors outputs = what.outputs;
  return enqueue(turn, std::move(what), [this, given, outputs, op, requests] {
    if (requests.size() == 1) {
      agree(requests[0]);
    } else {
      agree_on_each(requests);
    }
    for (const Range& range : small_ones_together(requests)) {
      Tensors parts;
      for (std::size_t i = range.begin; i < range.end; ++i) parts.insert(parts.end(), given[i].begin(), given[i].end());
      const at::Tensor all = joined(parts);
      reduce_in_place(all, op);
      int64_t before = 0;
      for (std::size_t i = range.begin; i < range.end; ++i) {
        for (int rank = 0; rank < rank_; ++rank) before += given[i][rank].numel();
        before += take_apart(all.narrow(0, before, outputs[i].numel()), {outputs[i]});
        for (int rank = rank_ + 1; rank < size_; ++rank) before += given[i][rank].numel();
      }
    }
  });
}

}  // namespace anyaccel::comm
