// A tensor as rows of adjacent elements at a fixed distance: a result of `x.chunk(2, -1)` is read without a copy.

#pragma once

#include <cstdint>
#include <optional>

#include "allocation.h"
#include "arguments.h"

namespace anyaccel {

class Rows {
 public:
  explicit Rows(const Tensor& tensor) : tensor_(tensor), stride_(columns_of(tensor)) {
    if (!tensor.is_contiguous() && !has_even_rows()) {
      tensor_ = contiguous_of(tensor);
      stride_ = columns_of(tensor);
    }
  }

  template <typename T>
  const T* data() const {
    return read<T>(tensor_);
  }

  std::int64_t stride() const { return stride_; }

 private:
  bool has_even_rows() {
    const std::int64_t last = tensor_.dim() - 1;
    if (tensor_.stride(last) != 1 && tensor_.size(last) != 1) {
      return false;
    }
    std::optional<std::int64_t> expected;  // absent before the first dimension of rows, as 0 is also a stride
    for (std::int64_t i = last - 1; i >= 0; --i) {
      if (tensor_.size(i) == 1) {
        continue;
      }
      if (!expected.has_value()) {
        stride_ = tensor_.stride(i);
      } else if (tensor_.stride(i) != *expected) {
        return false;
      }
      expected = tensor_.stride(i) * tensor_.size(i);
    }
    return true;
  }

  Tensor tensor_;
  std::int64_t stride_;
};

}  // namespace anyaccel
