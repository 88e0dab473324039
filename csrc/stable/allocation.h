// New tensors and contiguous ones, through torch's C functions: its C++ functions look up an operator by name in every
// call, which takes about a microsecond.

#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/HeaderOnlyArrayRef.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "arguments.h"
#include "error_code.h"

namespace anyaccel {

// The tensor itself if it is contiguous, otherwise a contiguous copy.
inline torch::stable::Tensor contiguous_of(const torch::stable::Tensor& tensor) {
  return tensor.is_contiguous() ? tensor : torch::stable::contiguous(tensor);
}

// An uninitialised contiguous tensor on the device of `like`; by default with its sizes and dtype.
inline torch::stable::Tensor empty_of(const torch::stable::Tensor& like, torch::headeronly::IntHeaderOnlyArrayRef sizes,
                                      torch::headeronly::ScalarType dtype) {
  constexpr std::size_t kMostOnStack = 8;
  std::array<std::int64_t, kMostOnStack> few{};
  std::vector<std::int64_t> many(sizes.size() > kMostOnStack ? sizes.size() : 0);
  std::int64_t* const strides = many.empty() ? few.data() : many.data();
  std::int64_t step = 1;
  for (std::size_t i = sizes.size(); i-- > 0;) {
    strides[i] = step;
    if (i > 0 && __builtin_mul_overflow(step, sizes[i] > 1 ? sizes[i] : 1, &step)) {  // an empty one can, too
      throw std::length_error("allocating a tensor failed: got the shape " + text_of_sizes(sizes) +
                              "; the product of its dimensions is 2^63 or more. Fix: pass smaller tensors.");
    }
  }
  std::int32_t device_type = 0;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(like.get(), &device_type));
  const auto number = torch::stable::detail::to<std::int32_t>(torch::stable::detail::from(dtype));
  AtenTensorHandle made = nullptr;
  if (aoti_torch_empty_strided(static_cast<std::int64_t>(sizes.size()), sizes.data(), strides, number, device_type,
                               like.get_device_index(), &made) != AOTI_TORCH_SUCCESS) {
    throw std::runtime_error("allocating a tensor failed: got the shape " + text_of_sizes(sizes) + " of " +
                             text_of(dtype) + "; the device does not have enough memory. Fix: free memory, or " +
                             "pass smaller tensors.");
  }
  return torch::stable::Tensor(made);
}

inline torch::stable::Tensor empty_of(const torch::stable::Tensor& like,
                                      torch::headeronly::IntHeaderOnlyArrayRef sizes) {
  return empty_of(like, sizes, like.scalar_type());
}

inline torch::stable::Tensor empty_of(const torch::stable::Tensor& like, torch::headeronly::ScalarType dtype) {
  const auto sizes = like.sizes();
  return empty_of(like, torch::headeronly::IntHeaderOnlyArrayRef(sizes.data(), sizes.size()), dtype);
}

inline torch::stable::Tensor empty_of(const torch::stable::Tensor& like) { return empty_of(like, like.scalar_type()); }

}  // namespace anyaccel
