// Tensors and lists of tensors in an op's host code: metadata and a pointer, without an allocation for each.
//
// torch::stable::Tensor costs two allocations per tensor, which is most of the time of a call with thousands of small
// tensors. Here a list is one handle, which keeps its tensors alive, and each tensor is inspected once.

#pragma once

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "error_code.h"

// Of Python's stable ABI; weak, so that a program without Python can load an op too.
extern "C" __attribute__((weak)) int PyGILState_Ensure();
extern "C" __attribute__((weak)) void PyGILState_Release(int);

namespace anyaccel {

// Valid while the tensor lives; `sizes` and `strides` have `dim` entries.
struct TensorView {
  AtenTensorHandle tensor;
  void* data;
  std::int64_t numel;
  std::int64_t dim;
  const std::int64_t* sizes;
  const std::int64_t* strides;
  std::int32_t dtype;
  bool is_cpu;
  bool is_contiguous;
};

inline TensorView view_of(AtenTensorHandle tensor) {
  static const std::int32_t kCpu = aoti_torch_device_type_cpu();
  TensorView view{};
  view.tensor = tensor;
  std::int64_t* sizes = nullptr;
  std::int64_t* strides = nullptr;
  std::int32_t device_type = 0;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_data_ptr(tensor, &view.data));
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_numel(tensor, &view.numel));
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dim(tensor, &view.dim));
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(tensor, &sizes));
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_strides(tensor, &strides));
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(tensor, &view.dtype));
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor, &device_type));
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_is_contiguous(tensor, &view.is_contiguous));
  view.sizes = sizes;
  view.strides = strides;
  view.is_cpu = device_type == kCpu;
  return view;
}

inline bool same_shape(const TensorView& left, const TensorView& right) {
  return std::equal(left.sizes, left.sizes + left.dim, right.sizes, right.sizes + right.dim);
}

inline bool same_layout(const TensorView& left, const TensorView& right) {
  return (left.is_contiguous && right.is_contiguous) ||
         std::equal(left.strides, left.strides + left.dim, right.strides, right.strides + right.dim);
}

// Whether the elements fill memory without gaps or overlaps, in any order of dimensions.
inline bool is_dense(const TensorView& view) {
  if (view.is_contiguous) {
    return true;
  }
  std::vector<std::pair<std::int64_t, std::int64_t>> strides_and_sizes;
  for (std::int64_t i = 0; i < view.dim; ++i) {
    if (view.sizes[i] != 1) {
      strides_and_sizes.emplace_back(view.strides[i], view.sizes[i]);
    }
  }
  std::sort(strides_and_sizes.begin(), strides_and_sizes.end());
  std::int64_t expected = 1;
  return std::all_of(strides_and_sizes.begin(), strides_and_sizes.end(), [&](const auto& dimension) {
    return dimension.first == std::exchange(expected, expected * dimension.second);
  });
}

// Another reference to a tensor.
inline torch::stable::Tensor tensor_of(AtenTensorHandle handle) {
  AtenTensorHandle reference = nullptr;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_new_tensor_handle(handle, &reference));
  return torch::stable::Tensor(reference);
}

// Holds Python's lock if Python is present. Releasing a tensor that Python also holds takes that lock (torch counts
// both sides' references together), and taking it once is much cheaper than once per tensor.
class PythonLock {
 public:
  PythonLock() : state_(PyGILState_Ensure == nullptr ? 0 : PyGILState_Ensure()) {}
  ~PythonLock() {
    if (PyGILState_Release != nullptr) {
      PyGILState_Release(state_);
    }
  }
  PythonLock(const PythonLock&) = delete;
  PythonLock& operator=(const PythonLock&) = delete;

 private:
  int state_;
};

// While an object of this class lives, this thread's operations are not recorded for autograd: otherwise copying a
// result to a leaf would fail half-way.
class NoGradient {
 public:
  NoGradient() : before_(aoti_torch_grad_mode_is_enabled()) { aoti_torch_grad_mode_set_enabled(false); }
  ~NoGradient() { aoti_torch_grad_mode_set_enabled(before_); }
  NoGradient(const NoGradient&) = delete;
  NoGradient& operator=(const NoGradient&) = delete;

 private:
  bool before_;
};

// Takes over a list argument of a boxed kernel, and owns its tensors until destroyed.
class TensorList {
 public:
  explicit TensorList(StableIValue argument) {
    const auto list = torch::stable::detail::to<StableListHandle>(argument);
    std::size_t size = 0;
    STABLE_TORCH_ERROR_CODE_CHECK(torch_list_size(list, &size));
    handles_.reserve(size);
    for (std::size_t i = 0; i < size; ++i) {
      StableIValue item{};
      STABLE_TORCH_ERROR_CODE_CHECK(torch_list_get_item(list, i, &item));
      handles_.push_back(torch::stable::detail::to<AtenTensorHandle>(item));
    }
    STABLE_TORCH_ERROR_CODE_CHECK(torch_delete_list(list));
  }

  ~TensorList() {
    const PythonLock lock;
    for (const AtenTensorHandle handle : handles_) {
      aoti_torch_delete_tensor_object(handle);
    }
  }

  TensorList(const TensorList&) = delete;
  TensorList& operator=(const TensorList&) = delete;

  std::size_t size() const { return handles_.size(); }

  TensorView operator[](std::size_t index) const { return view_of(handles_[index]); }

  torch::stable::Tensor tensor(std::size_t index) const { return tensor_of(handles_[index]); }

 private:
  std::vector<AtenTensorHandle> handles_;
};

}  // namespace anyaccel
