// Matrix products, by torch's library for the device.
//
// On the CPU, torch's own matmul calls MKL, which is slower than oneDNN on AMD processors. torch also has oneDNN,
// behind the C interface of its ahead-of-time compiler; it is used for float32 if it is found.

#pragma once

#include <dlfcn.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <optional>

#include "allocation.h"
#include "error_code.h"

namespace anyaccel {

using OneDnnLinear = AOTITorchError (*)(AtenTensorHandle x, AtenTensorHandle weight, AtenTensorHandle* bias,
                                        const char* activation, const double** scalars, std::int64_t n_scalars,
                                        const char** algorithm, AtenTensorHandle* result);

inline OneDnnLinear one_dnn_linear() {
  static const OneDnnLinear found = [] {
    void* torch = dlopen("libtorch_cpu.so", RTLD_NOLOAD | RTLD_LAZY);
    return torch == nullptr ? nullptr
                            : reinterpret_cast<OneDnnLinear>(dlsym(torch, "aoti_torch_cpu__linear_pointwise"));
  }();
  return found;
}

// Whether rows or columns are adjacent in memory, as matrix product libraries require. oneDNN reads past the end of
// expanded tensors: it treats a stride of 0 as another stride.
inline bool is_plain_matrix(const torch::stable::Tensor& matrix) {
  const auto lies = [&](int inner, int outer) {
    return matrix.stride(inner) == 1 && matrix.stride(outer) >= matrix.size(inner);
  };
  return lies(1, 0) || lies(0, 1);
}

// x @ weight^T + bias, for matrices; `weight` may be a transposed view.
inline torch::stable::Tensor linear(const torch::stable::Tensor& x, const torch::stable::Tensor& weight,
                                    const std::optional<torch::stable::Tensor>& bias = std::nullopt) {
  using torch::headeronly::ScalarType;
  const bool suits = x.is_cpu() && x.scalar_type() == ScalarType::Float && x.numel() > 0 && weight.numel() > 0;
  if (suits && one_dnn_linear() != nullptr) {
    const torch::stable::Tensor plain = is_plain_matrix(weight) ? weight : contiguous_of(weight);
    std::optional<torch::stable::Tensor> row;
    if (bias) row = contiguous_of(*bias);
    AtenTensorHandle added = row ? row->get() : nullptr, result = nullptr;
    STABLE_TORCH_ERROR_CODE_CHECK(
        one_dnn_linear()(x.get(), plain.get(), row ? &added : nullptr, "none", nullptr, 0, nullptr, &result));
    return torch::stable::Tensor(result);
  }
  StableIValue stack[] = {torch::stable::detail::from(x), torch::stable::detail::from(weight),
                          torch::stable::detail::from(bias)};
  STABLE_TORCH_ERROR_CODE_CHECK(torch_call_dispatcher("aten::linear", "", stack, TORCH_ABI_VERSION));
  return torch::stable::detail::to<torch::stable::Tensor>(stack[0]);
}

}  // namespace anyaccel
