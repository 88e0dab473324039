#include <ATen/core/LegacyTypeDispatch.h>

#include "shm_backend.h"
#include "sparse_parts.h"
#include "tensor_blocks.h"

namespace anyaccel::comm {
namespace {

Block block_of(const at::Tensor& tensor) { return {static_cast<unsigned char*>(tensor.data_ptr()), tensor.numel()}; }

Task gather_into(Group& group, Announcement what, at::Tensor own, std::vector<at::Tensor> all) {
  Blocks outputs;
  for (const at::Tensor& one : all) outputs.push_back(block_of(one));
  what.dtype = dtype_of(own);
  co_await share(group, what, block_of(own), std::move(outputs));
}

}  // namespace

at::Tensor facts_of(const at::Tensor& sparse) {
  std::vector<int64_t> facts(sparse.sizes().begin(), sparse.sizes().end());
  facts.push_back(sparse.sparse_dim());
  facts.push_back(sparse._nnz());
  return at::tensor(facts, at::kLong);
}

SparseParts parts_of(const at::Tensor& sparse) {
  const at::AutoDispatchBelowADInplaceOrView without_autograd;
  const at::Tensor coalesced = sparse.coalesce();
  return {coalesced, coalesced.indices().contiguous(), coalesced.values().contiguous()};
}

at::Tensor sum_of(const std::vector<at::Tensor>& indices, const std::vector<at::Tensor>& values,
                  const at::Tensor& like) {
  const at::AutoDispatchBelowADInplaceOrView without_autograd;
  const at::ScalarType type = like.scalar_type();
  const at::ScalarType exact = type == at::kHalf || type == at::kBFloat16 ? at::kFloat : type;  // rounded once
  at::Tensor sum;
  for (std::size_t rank = 0; rank < indices.size(); ++rank) {
    const at::Tensor one =
        at::sparse_coo_tensor(indices[rank], values[rank].to(exact), like.sizes(), like.options().dtype(exact));
    sum = rank == 0 ? one : sum + one;  // in the order of ranks, so that every rank has the same bits
  }
  return sum.coalesce().to(type);
}

void check_same_shape(const std::vector<at::Tensor>& facts, const at::Tensor& own) {
  for (std::size_t rank = 0; rank < facts.size(); ++rank) {
    if (facts[rank].slice(0, 0, -1).equal(own.slice(0, 0, -1))) continue;
    throw MismatchError("shm all_reduce failed: got sparse tensors of other shapes on rank " + std::to_string(rank) +
                        " than here; expected the same. Fix: create them with one size=(...) on every rank.");
  }
}

SparseRoom::SparseRoom(const std::vector<at::Tensor>& facts, const SparseParts& own) {
  for (const at::Tensor& one : facts) {
    const int64_t n = one[-1].item<int64_t>();
    std::vector<int64_t> sizes(own.values.sizes().begin(), own.values.sizes().end());
    sizes[0] = n;
    indices.push_back(at::empty({own.indices.size(0), n}, own.indices.options()));
    values.push_back(at::empty(sizes, own.values.options()));
  }
}

void check_sparse(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  TORCH_CHECK(tensor.layout() == at::kSparse && tensor.device().is_cpu() && op.op_ == c10d::ReduceOp::SUM,
              "shm all_reduce of sparse tensors failed: got ", tensor.layout(), " on ", tensor.device(), " with ",
              name_of(reduction_of(op)),
              "; expected torch.sparse_coo on cpu with SUM. Fix: pass tensor.cpu().to_sparse_coo() and ReduceOp.SUM.");
  const at::ScalarType type = tensor.scalar_type();
  const bool is_small = type == at::kHalf || type == at::kBFloat16;
  const bool is_sum = at::isIntegralType(type, false) && !c10::isBarebonesUnsignedType(type);
  TORCH_CHECK(is_small || is_sum || type == at::kFloat || type == at::kDouble || type == at::kComplexFloat ||
                  type == at::kComplexDouble,
              "shm all_reduce of sparse tensors failed: got ", type,
              "; expected a dtype that torch adds sparse tensors of. Fix: convert it, such as tensor.float().");
}

namespace {

Task sum_sparse(Group& group, Announcement what, at::Tensor tensor) {
  const SparseParts own = parts_of(tensor);
  group.begin_collective();
  what.parts = 3;
  const at::Tensor facts = facts_of(own.coalesced);
  std::vector<at::Tensor> all_facts;
  for (int rank = 0; rank < group.world(); ++rank) all_facts.push_back(at::empty_like(facts));
  co_await gather_into(group, what, facts, all_facts);
  check_same_shape(all_facts, facts);
  const SparseRoom room(all_facts, own);
  co_await gather_into(group, what, own.indices, room.indices);
  co_await gather_into(group, what, own.values, room.values);
  const at::Tensor sum = sum_of(room.indices, room.values, own.coalesced);
  const at::AutoDispatchBelowADInplaceOrView without_autograd;
  tensor.copy_(sum);
}

}  // namespace

// Each rank sends its indices and values to every other, and adds them all up.
WorkPtr ShmBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) {
  return in_turn([&](Turn& turn) {
    const at::Tensor& tensor = only("all_reduce", tensors);
    check_sparse(tensor, options.reduceOp);
    const Announcement what =
        announcement(Collective::kAllGather, at::empty({0}, tensor.options().layout(at::kStrided)));
    return launch(
        &turn, {OpType::_ALLREDUCE_SPARSE, "shm:sparse_all_reduce", options.timeout, options.asyncOp, tensors, tensors},
        Staging(), [&](Group& group, int*) { return sum_sparse(group, what, tensor); });
  });
}

}  // namespace anyaccel::comm
