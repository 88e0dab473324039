// The parts of a sparse tensor, and the sum of several.

#pragma once

#include <ATen/ATen.h>

#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

namespace anyaccel::comm {

// The shape, the numbers of sparse and of dense dimensions, and the number of values.
at::Tensor facts_of(const at::Tensor& sparse);

struct SparseParts {
  at::Tensor coalesced, indices, values;
};
SparseParts parts_of(const at::Tensor& sparse);

// Throws MismatchError unless the facts of all ranks are this rank's; the number of values may differ.
void check_same_shape(const std::vector<at::Tensor>& facts, const at::Tensor& own);

// Memory for the other ranks' parts, of the sizes in their facts.
struct SparseRoom {
  SparseRoom(const std::vector<at::Tensor>& facts, const SparseParts& own);

  std::vector<at::Tensor> indices, values;
};

at::Tensor sum_of(const std::vector<at::Tensor>& indices, const std::vector<at::Tensor>& values,
                  const at::Tensor& like);

void check_sparse(const at::Tensor& tensor, const c10d::ReduceOp& op);

}  // namespace anyaccel::comm
