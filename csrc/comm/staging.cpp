#include "staging.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>

namespace anyaccel::comm {
namespace {

// Whether every element certainly has its own memory: each stride exceeds the extent of all smaller strides.
bool is_spread(const at::Tensor& tensor) {
  std::vector<std::pair<int64_t, int64_t>> steps;
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) {
    if (tensor.size(dim) > 1) steps.emplace_back(tensor.stride(dim), tensor.size(dim));
  }
  std::sort(steps.begin(), steps.end());
  int64_t reach = 0;
  for (const auto& [stride, size] : steps) {
    if (stride <= reach) return false;
    reach += stride * (size - 1);
  }
  return true;
}

}  // namespace

void check_dense(const at::Tensor& tensor) {
  TORCH_CHECK(
      tensor.device().is_cpu() && tensor.layout() == at::kStrided && !tensor.is_quantized(), "shm failed: got a ",
      tensor.layout(), " tensor of ", tensor.scalar_type(), " on ", tensor.device(),
      "; expected dense ones on cpu. Fix: name a backend for each device: init_process_group(\"cpu:shm,cuda:nccl\").");
  if (tensor.numel() == 0) return;
  int64_t last = tensor.storage_offset();
  for (int64_t dim = 0; dim < tensor.dim(); ++dim) last += (tensor.size(dim) - 1) * tensor.stride(dim);
  const auto needed = static_cast<std::size_t>(last + 1) * tensor.element_size();
  TORCH_CHECK(tensor.storage().nbytes() >= needed, "shm failed: got a tensor of sizes ", tensor.sizes(),
              " whose storage has ", tensor.storage().nbytes(), " bytes; expected at least ", needed,
              ". Fix: give the storage its memory back, with untyped_storage().resize_(), before the call.");
}

void check_writable(const at::Tensor& tensor) {
  TORCH_CHECK(!tensor._is_zerotensor(),
              "shm failed: got an output without memory (torch._efficientzerotensor). Fix: pass "
              "tensor.clone(), and read the result there.");
  TORCH_CHECK(tensor.numel() == 0 || is_spread(tensor), "shm failed: got an output of sizes ", tensor.sizes(),
              " and strides ", tensor.strides(),
              ", whose elements share memory; expected separate memory for each element. Fix: pass "
              "tensor.contiguous(), and read the result there.");
}

Dtype dtype_of(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kDouble:
      return Dtype::kFloat64;
    case at::kFloat:
      return Dtype::kFloat32;
    case at::kHalf:
      return Dtype::kFloat16;
    case at::kBFloat16:
      return Dtype::kBFloat16;
    case at::kFloat8_e4m3fn:
      return Dtype::kFloat8E4M3;
    case at::kFloat8_e5m2:
      return Dtype::kFloat8E5M2;
    case at::kChar:
      return Dtype::kInt8;
    case at::kShort:
      return Dtype::kInt16;
    case at::kInt:
      return Dtype::kInt32;
    case at::kLong:
      return Dtype::kInt64;
    case at::kByte:
      return Dtype::kUInt8;
    case at::kUInt16:
      return Dtype::kUInt16;
    case at::kUInt32:
      return Dtype::kUInt32;
    case at::kUInt64:
      return Dtype::kUInt64;
    case at::kBool:
      return Dtype::kBool;
    case at::kComplexFloat:
      return Dtype::kComplex64;
    case at::kComplexDouble:
      return Dtype::kComplex128;
    default:
      break;
  }
  switch (tensor.element_size()) {
    case 1:
      return Dtype::kOpaque1;
    case 2:
      return Dtype::kOpaque2;
    case 4:
      return Dtype::kOpaque4;
    case 8:
      return Dtype::kOpaque8;
    default:
      return Dtype::kOpaque16;
  }
}

Block Staging::keep(at::Tensor tensor) {
  const Block block{static_cast<unsigned char*>(tensor.data_ptr()), tensor.numel()};
  kept_.push_back(std::move(tensor));
  return block;
}

Block Staging::input(const at::Tensor& tensor) {
  check_dense(tensor);
  if (is_plain(tensor)) return keep(tensor);
  const at::AutoDispatchBelowADInplaceOrView without_autograd;
  if (tensor._is_zerotensor()) return keep(at::zeros(tensor.sizes(), tensor.options()));
  return keep(tensor.resolve_conj().resolve_neg().contiguous());
}

at::Tensor apart_from_outputs(const at::Tensor& input, const std::vector<at::Tensor>& outputs, std::size_t own) {
  check_dense(input);
  if (!is_plain(input) || input.numel() == 0) return input;  // a copy, or nothing
  const auto* const begin = static_cast<const char*>(input.const_data_ptr());
  const auto is_over = [&](const at::Tensor& output) {
    const auto* const start = static_cast<const char*>(output.const_data_ptr());
    return is_plain(output) && start < begin + input.nbytes() && begin < start + output.nbytes();
  };
  for (std::size_t rank = 0; rank < outputs.size(); ++rank) {
    const bool is_in_place = rank == own && outputs[rank].const_data_ptr() == begin;
    if (is_over(outputs[rank]) && !is_in_place) return input.clone();
  }
  return input;
}

std::vector<at::Tensor> apart_from_outputs(const std::vector<at::Tensor>& inputs,
                                           const std::vector<at::Tensor>& outputs, std::size_t own) {
  const std::size_t place = outputs.size() == 1 ? 0 : own;
  std::vector<at::Tensor> apart;
  for (std::size_t rank = 0; rank < inputs.size(); ++rank) {
    apart.push_back(apart_from_outputs(inputs[rank], outputs, rank == own ? place : outputs.size()));
  }
  return apart;
}

Block Staging::output(const at::Tensor& tensor) {
  check_dense(tensor);
  return is_plain(tensor) ? keep(tensor) : stand_in_for(tensor);
}

Block Staging::stand_in_for(const at::Tensor& tensor) {
  check_writable(tensor);
  at::Tensor stand_in = at::empty(tensor.sizes(), tensor.options());
  stand_ins_.emplace_back(tensor, stand_in);
  return keep(stand_in);
}

Block Staging::in_out(const at::Tensor& tensor) {
  check_dense(tensor);
  return is_plain(tensor) ? keep(tensor) : in_out_apart(tensor);
}

Block Staging::in_out_apart(const at::Tensor& tensor) {
  check_dense(tensor);
  const Block block = stand_in_for(tensor);
  const at::AutoDispatchBelowADInplaceOrView without_autograd;
  kept_.back().copy_(tensor);
  return block;
}

void Staging::copy_back() {
  if (stand_ins_.empty()) return;
  const at::AutoDispatchBelowADInplaceOrView without_autograd;
  for (auto& [output, stand_in] : stand_ins_) output.copy_(stand_in);
}

void Staging::release() {
  kept_.clear();
  stand_ins_.clear();
}

}  // namespace anyaccel::comm
