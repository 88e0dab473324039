// What a sparse tensor is made of, and a sum of several.

#pragma once

#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

namespace anyaccel::comm {

// Shape, and how it divides into sparse and dense dimensions, then the number of values.
at::Tensor facts_of(const at::Tensor& sparse);

struct SparseParts {
  at::Tensor coalesced, indices, values;
};
SparseParts parts_of(const at::Tensor& sparse);

// Throws MismatchError unless the facts of all ranks are this rank's; the number of values may differ.
void check_same_shape(const std::vector<at::Tensor>& facts, const at::Tensor& own);

// Where the other ranks' parts go, by their facts.
struct SparseRoom {
  SparseRoom(const std::vector<at::Tensor>& facts, const SparseParts& own);

  std::vector<at::Tensor> indices, values;
};

at::Tensor sum_of(const std::vector<at::Tensor>& indices, const std::vector<at::Tensor>& values,
                  const at::Tensor& like);

void check_sparse(const at::Tensor& tensor, const c10d::ReduceOp& op);

}  // namespace anyaccel::comm
