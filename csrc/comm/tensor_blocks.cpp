#include "tensor_blocks.h"

#include <algorithm>
#include <limits>

namespace anyaccel::comm {

const at::Tensor& only(const char* operation, const std::vector<at::Tensor>& tensors) {
  TORCH_CHECK(tensors.size() == 1, "shm ", operation, " failed: got ", tensors.size(),
              " tensors; expected one. Fix: call it for each tensor, or call its coalesced form.");
  return tensors[0];
}

const std::vector<at::Tensor>& only_list(const char* operation, const std::vector<std::vector<at::Tensor>>& lists) {
  TORCH_CHECK(lists.size() == 1, "shm ", operation, " failed: got ", lists.size(),
              " lists of tensors; expected one. Fix: pass a list of one list.");
  return lists[0];
}

void check_as_many(const char* operation, const std::vector<at::Tensor>& outputs,
                   const std::vector<at::Tensor>& inputs) {
  TORCH_CHECK(outputs.size() == inputs.size(), "shm ", operation, " failed: got ", outputs.size(), " outputs for ",
              inputs.size(), " inputs; expected the same number. Fix: pass one output for each input.");
}

void check_same_dtype(const char* operation, const at::Tensor& tensor, const at::Tensor& other) {
  TORCH_CHECK(tensor.scalar_type() == other.scalar_type(), "shm ", operation, " failed: got ", tensor.scalar_type(),
              " and ", other.scalar_type(),
              "; expected one dtype for all tensors of a call. Fix: convert one of them with tensor.to(dtype).");
}

void check_each_rank(const char* operation, const std::vector<at::Tensor>& tensors, int world) {
  TORCH_CHECK(static_cast<int>(tensors.size()) == world, "shm ", operation, " failed: got a list of ", tensors.size(),
              " tensors; expected one for each of ", world,
              " ranks. Fix: pass a list with one tensor per rank, such as [torch.empty_like(tensor) for _ in "
              "range(world_size)].");
  for (const at::Tensor& tensor : tensors) check_same_dtype(operation, tensor, tensors[0]);
}

void check_rank(const char* operation, int64_t rank, int world) {
  TORCH_CHECK(rank >= 0 && rank < world, "shm ", operation, " failed: got rank ", rank, "; expected one of 0 to ",
              world - 1, ". Fix: pass a rank of this group; dist.get_group_rank(group, global_rank) finds it.");
}

std::vector<at::Tensor> equal_parts(const char* operation, const at::Tensor& flat, int world) {
  TORCH_CHECK(flat.numel() % world == 0, "shm ", operation, " failed: got ", flat.numel(), " elements for ", world,
              " ranks; expected the same number for each. Fix: pad the tensor to a multiple of the ranks with "
              "torch.nn.functional.pad.");
  TORCH_CHECK(flat.is_contiguous(), "shm ", operation, " failed: got a tensor of strides ", flat.strides(),
              "; expected a contiguous one. Fix: pass tensor.contiguous().");
  return flat.view(-1).chunk(world).size() == static_cast<std::size_t>(world)
             ? flat.view(-1).chunk(world)
             : std::vector<at::Tensor>(world, flat.view(-1));  // an empty tensor has one empty chunk
}

Blocks split_rows(const char* operation, Block block, const at::Tensor& tensor, const std::vector<int64_t>& rows,
                  int world) {
  const int64_t length = tensor.dim() > 0 ? tensor.size(0) : 1;
  std::vector<int64_t> counts = rows;
  if (counts.empty()) {
    TORCH_CHECK(length % world == 0, "shm ", operation, " failed: got ", length, " rows for ", world,
                " ranks; expected the same number for each. Fix: pass input_split_sizes and output_split_sizes, or pad "
                "the tensor.");
    counts.assign(world, length / world);
  }
  for (const int64_t count : counts) {
    TORCH_CHECK(count >= 0, "shm ", operation, " failed: got split sizes ", counts,
                "; expected none below 0. Fix: pass 0 for a rank that exchanges nothing.");
  }
  int64_t left = length;  // a sum might be too large for its type
  const bool fits = std::all_of(counts.begin(), counts.end(), [&left](int64_t count) { return (left -= count) >= 0; });
  TORCH_CHECK(static_cast<int>(counts.size()) == world && fits && left == 0, "shm ", operation,
              " failed: got split sizes ", counts, " of a tensor of ", length, " rows; expected ", world,
              " sizes that add up to it. Fix: pass one size per rank; together they must cover the first dimension.");
  const int64_t row = length > 0 ? tensor.numel() / length : 0;
  Blocks blocks;
  for (const int64_t count : counts) {
    blocks.push_back({block.data, count * row});
    block.data += count * row * tensor.element_size();
  }
  return blocks;
}

std::vector<at::Tensor> distinct(const std::vector<at::Tensor>& tensors) {
  std::vector<at::Tensor> found;
  for (const at::Tensor& one : tensors) {
    const bool is_known = std::any_of(found.begin(), found.end(), [&](const at::Tensor& other) {
      return one.layout() == at::kStrided && one.numel() > 0 && one.const_data_ptr() == other.const_data_ptr() &&
             one.sizes() == other.sizes() && one.strides() == other.strides();
    });
    if (!is_known) found.push_back(one);
  }
  return found;
}

bool may_overlap(const std::vector<at::Tensor>& tensors, std::size_t index) {
  const auto span = [](const at::Tensor& one) {
    int64_t last = 0;
    for (int64_t i = 0; i < one.dim(); ++i) last += one.stride(i) * (one.size(i) - 1);
    const auto begin = reinterpret_cast<std::uintptr_t>(one.const_data_ptr());
    return std::pair(begin,
                     begin + (one.numel() == 0 ? 0 : static_cast<std::uintptr_t>(last + 1) * one.element_size()));
  };
  const auto [begin, end] = span(tensors[index]);
  return std::any_of(tensors.begin(), tensors.begin() + static_cast<std::ptrdiff_t>(index),
                     [&](const at::Tensor& other) {
                       const auto [its_begin, its_end] = span(other);
                       return begin < its_end && its_begin < end;
                     });
}

Announcement one_of(Announcement one, const std::vector<at::Tensor>& all) {
  constexpr std::size_t kMost = std::numeric_limits<decltype(one.parts)>::max();
  TORCH_CHECK(all.size() <= kMost, "shm failed: got a list of ", all.size(), " tensors; expected at most ", kMost,
              ". Fix: split the list, and call the operation once for each part.");
  one.parts = static_cast<decltype(one.parts)>(all.size());
  return one;
}

Reduction reduction_of(const c10d::ReduceOp& op) {
  TORCH_CHECK(op.op_ <= c10d::ReduceOp::PREMUL_SUM,
              "shm failed: got an unknown ReduceOp; expected SUM to PREMUL_SUM. Fix: pass a member of "
              "torch.distributed.ReduceOp, such as ReduceOp.SUM.");
  return static_cast<Reduction>(static_cast<uint8_t>(op.op_));
}

void check_reduction(const char* operation, const at::Tensor& tensor, const c10d::ReduceOp& op) {
  const Reduction reduction = reduction_of(op);
  const char* reason = refusal(dtype_of(tensor), reduction);
  TORCH_CHECK(reason == nullptr, "shm ", operation, " failed: got ", tensor.scalar_type(), " with ", name_of(reduction),
              "; ", reason, ". Fix: convert the tensor with tensor.to(dtype), or pass another op=ReduceOp.");
}

static_assert(static_cast<int>(Reduction::kScaledSum) == static_cast<int>(c10d::ReduceOp::PREMUL_SUM));

double scale_of(const c10d::ReduceOp& op) {
  if (op.op_ != c10d::ReduceOp::PREMUL_SUM) return 1;
  // torch 2.11 has only this name; newer ones have it as an alias
  const auto* supplement = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK(
      supplement != nullptr,
      "shm failed: got PREMUL_SUM without its factor. Fix: pass op=torch.distributed._make_nccl_premul_sum(factor).");
  return supplement->tensor_factor.defined() ? supplement->tensor_factor.item<double>() : supplement->double_factor;
}

}  // namespace anyaccel::comm
