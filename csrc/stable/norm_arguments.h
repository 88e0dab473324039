// Common host code of the normalisation ops.

#pragma once

#include <optional>

#include "allocation.h"
#include "arguments.h"

namespace anyaccel {

// Calls `body` with values of the types of x and of the weight, which has x's dtype or float32.
template <typename Body>
void with_norm_types(const Arguments& arguments, const Tensor& x, const Tensor& weight, const Body& body) {
  arguments.with_floating(x, "x", [&](auto value) {
    if (weight.scalar_type() == x.scalar_type()) {
      return body(value, value);
    }
    if constexpr (sizeof(value) == 2) {
      arguments.dtype(weight, "weight", ScalarType::Float);
      return body(value, float{});
    } else {
      arguments.dtype(weight, "weight", x.scalar_type());
    }
  });
}

// An optional tensor, contiguous.
class Optional {
 public:
  Optional() = default;
  explicit Optional(const std::optional<Tensor>& tensor) {
    if (tensor.has_value()) {
      tensor_ = contiguous_of(*tensor);
    }
  }

  template <typename T>
  const T* data() const {
    return tensor_.has_value() ? read<T>(*tensor_) : nullptr;
  }

 private:
  std::optional<Tensor> tensor_;
};

}  // namespace anyaccel
