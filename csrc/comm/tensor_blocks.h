// Checks c10d's arguments, and splits tensors into one block per rank.

#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "staging.h"

namespace anyaccel::comm {

// The only tensor of a list.
const at::Tensor& only(const char* operation, const std::vector<at::Tensor>& tensors);

// The only list of lists.
const std::vector<at::Tensor>& only_list(const char* operation, const std::vector<std::vector<at::Tensor>>& lists);

// Requires as many outputs as inputs.
void check_as_many(const char* operation, const std::vector<at::Tensor>& outputs,
                   const std::vector<at::Tensor>& inputs);

// Requires one tensor per rank, all of one dtype.
void check_each_rank(const char* operation, const std::vector<at::Tensor>& tensors, int world);
void check_same_dtype(const char* operation, const at::Tensor& tensor, const at::Tensor& other);
void check_rank(const char* operation, int64_t rank, int world);

// Splits a flat tensor into equal parts, one per rank.
std::vector<at::Tensor> equal_parts(const char* operation, const at::Tensor& flat, int world);

// Splits a tensor by numbers of rows; into equal parts if none are given.
Blocks split_rows(const char* operation, Block block, const at::Tensor& tensor, const std::vector<int64_t>& rows,
                  int world);

// The announcement of one of the parts of a coalesced operation.
Announcement one_of(Announcement one, const std::vector<at::Tensor>& all);

// The tensors of a list without those that are in it before: parameters may be tied.
std::vector<at::Tensor> distinct(const std::vector<at::Tensor>& tensors);
// Returns whether a tensor may share elements with an earlier one; its own ones must then be read before any is
// written.
bool may_overlap(const std::vector<at::Tensor>& tensors, std::size_t index);

Reduction reduction_of(const c10d::ReduceOp& op);
// Throws if a reduction is not defined for a tensor's dtype.
void check_reduction(const char* operation, const at::Tensor& tensor, const c10d::ReduceOp& op);
double scale_of(const c10d::ReduceOp& op);

// The operation's own type where torch has one; 2.11 does not.
template <class Type>
constexpr Type coalesced_reduce_scatter() {
  if constexpr (requires { Type::REDUCE_SCATTER_TENSOR_COALESCED; }) {
    return Type::REDUCE_SCATTER_TENSOR_COALESCED;
  } else {
    return Type::COALESCED;
  }
}

}  // namespace anyaccel::comm
