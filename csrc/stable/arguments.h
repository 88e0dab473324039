// Checks of an op's arguments: each names the argument, what was found, what was expected, and the fix.

#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "precision.h"

namespace anyaccel {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

template <typename Sizes>
std::string text_of_sizes(const Sizes& sizes) {
  std::string text = "(";
  for (const std::int64_t size : sizes) {
    text.append(text.size() == 1 ? "" : ", ").append(std::to_string(size));
  }
  return text.append(")");
}

inline std::string text_of(const std::vector<std::int64_t>& sizes) { return text_of_sizes(sizes); }

inline std::string text_of(const Tensor& tensor) { return text_of_sizes(tensor.sizes()); }

inline const char* text_of(ScalarType dtype) {
  switch (dtype) {
    case ScalarType::Float:
      return "float32";
    case ScalarType::Double:
      return "float64";
    case ScalarType::BFloat16:
      return "bfloat16";
    case ScalarType::Half:
      return "float16";
    case ScalarType::Int:
      return "int32";
    case ScalarType::Long:
      return "int64";
    case ScalarType::Bool:
      return "bool";
    case ScalarType::Char:
      return "int8";
    case ScalarType::Byte:
      return "uint8";
    case ScalarType::Short:
      return "int16";
    case ScalarType::ComplexFloat:
      return "complex64";
    case ScalarType::ComplexDouble:
      return "complex128";
    case ScalarType::Float8_e4m3fn:
      return "float8_e4m3fn";
    case ScalarType::Float8_e5m2:
      return "float8_e5m2";
    default:
      return "another dtype";
  }
}

// The called op, for its messages.
struct Arguments {
  const char* op;

  [[noreturn, gnu::noinline]] void refuse(const char* name, const std::string& got, const std::string& expected,
                                          const std::string& fix) const {
    std::string message = op;
    message.append(" failed: got ").append(name).append(" ").append(got).append("; expected ");
    message.append(expected).append(". Fix: ").append(fix).append(".");
    throw std::invalid_argument(message);
  }

  void same_device(const Tensor& tensor, const char* name, const Tensor& as, const char* as_name) const {
    if (tensor.device() != as.device()) {
      refuse_device(name, as_name);
    }
  }

  [[noreturn, gnu::noinline]] void refuse_device(const std::string& name, const std::string& as_name) const {
    refuse(name.c_str(), "on another device than " + as_name, "the same device",
           "pass " + name + ".to(" + as_name + ".device)");
  }

  void dtype(const Tensor& tensor, const char* name, ScalarType expected) const {
    if (tensor.scalar_type() != expected) {
      refuse(name, std::string("of ").append(text_of(tensor.scalar_type())), text_of(expected),
             std::string("pass ").append(name).append(".to(torch.").append(text_of(expected)).append(")"));
    }
  }

  void same_shape(const Tensor& tensor, const char* name, const Tensor& as, const char* as_name) const {
    if (!std::ranges::equal(tensor.sizes(), as.sizes())) {
      const auto sizes = as.sizes();
      refuse_shape(tensor, name, {sizes.begin(), sizes.end()}, std::string("as ").append(as_name).append(" is"));
    }
  }

  // Suggests a reshape if it can give the expected sizes.
  [[noreturn, gnu::noinline]] void refuse_shape(const Tensor& tensor, const char* name,
                                                const std::vector<std::int64_t>& sizes, const std::string& why) const {
    std::uint64_t wanted = 1;  // wraps around for the sizes of an expanded tensor
    for (const std::int64_t size : sizes) {
      wanted *= static_cast<std::uint64_t>(size);
    }
    const std::string fix = static_cast<std::uint64_t>(tensor.numel()) == wanted
                                ? std::string(name) + ".reshape(" + text_of(sizes) + ")"
                                : std::to_string(wanted) + " elements; it has " + std::to_string(tensor.numel());
    refuse(name, "of shape " + text_of(tensor), text_of(sizes) + ", " + why, "pass " + fix);
  }

  // Checks that `tensor` has the device, dtype and shape of `as`.
  void alike(const Tensor& tensor, const char* name, const Tensor& as, const char* as_name) const {
    same_device(tensor, name, as, as_name);
    dtype(tensor, name, as.scalar_type());
    same_shape(tensor, name, as, as_name);
  }

  // Checks that `tensor` has these sizes, and is on the device of `as`.
  void shape(const Tensor& tensor, const char* name, const std::vector<std::int64_t>& sizes, const Tensor& as,
             const char* as_name) const {
    same_device(tensor, name, as, as_name);
    if (!std::ranges::equal(tensor.sizes(), sizes)) {
      refuse_shape(tensor, name, sizes, std::string("to match ").append(as_name));
    }
  }

  void one_number(const Tensor& tensor, const char* name) const {
    if (tensor.numel() != 1) {
      refuse(name, "of shape " + text_of(tensor), "one number",
             std::string("pass a tensor of one element, such as ").append(name).append("[:1]"));
    }
  }

  void at_least_dimensions(const Tensor& tensor, const char* name, std::int64_t count) const {
    if (tensor.dim() < count) {
      refuse(name, std::string("of shape ").append(text_of(tensor)),
             std::to_string(count).append(" dimensions or more"),
             std::string("add dimensions in front, with ").append(name).append(".unsqueeze(0)"));
    }
  }

  [[noreturn, gnu::noinline]] void refuse_dtype(const std::string& name, ScalarType dtype, const char* expected) const {
    refuse(name.c_str(), std::string("of ").append(text_of(dtype)), expected, "pass " + name + ".float()");
  }

  // The same for a tensor that the op writes: a converted copy would take the result.
  [[noreturn, gnu::noinline]] void refuse_written_dtype(const std::string& name, ScalarType dtype,
                                                        const char* expected) const {
    refuse(name.c_str(), std::string("of ").append(text_of(dtype)), expected,
           "create it with dtype=torch.float32, as the op writes to it");
  }

  // Calls `body` with a value of the C++ type of a floating dtype of at most 32 bits.
  template <typename Body>
  void with_float32_or_less(ScalarType dtype, const char* name, const Body& body) const {
    switch (dtype) {
      case ScalarType::Float:
        return body(float{});
      case ScalarType::BFloat16:
        return body(BFloat16{});
      case ScalarType::Half:
        return body(Half{});
      default:
        refuse_dtype(name, dtype, "float32, bfloat16 or float16");
    }
  }

  // Calls `body` with a value of the C++ type of a floating dtype. float64 is supported on the CPU, for gradcheck.
  template <typename Body>
  auto with_floating(const Tensor& tensor, const char* name, const Body& body) const {
    if (tensor.scalar_type() == ScalarType::Double && !tensor.is_cpu()) {
      refuse_dtype(name, ScalarType::Double, "float32, bfloat16 or float16 (float64 on the CPU)");
    }
    return with_floating_or_double(tensor, name, body);
  }

  // Like floating, for an op that also has float64 kernels on CUDA devices.
  template <typename Body>
  auto with_floating_or_double(const Tensor& tensor, const char* name, const Body& body) const {
    const ScalarType dtype = tensor.scalar_type();
    switch (dtype) {
      case ScalarType::Float:
        return body(float{});
      case ScalarType::BFloat16:
        return body(BFloat16{});
      case ScalarType::Half:
        return body(Half{});
      case ScalarType::Double:
        return body(double{});
      default:
        refuse_dtype(name, dtype, "float32, bfloat16 or float16 (float64 on the CPU)");
    }
  }
};

inline std::int64_t columns_of(const Tensor& tensor) { return tensor.size(tensor.dim() - 1); }

inline std::int64_t rows_of(const Tensor& tensor) {
  std::int64_t rows = 1;
  for (std::int64_t i = 0; i + 1 < tensor.dim(); ++i) {
    rows *= tensor.size(i);
  }
  return rows;
}

// The dtype that a kernel computes in, and in which it saves data for its backward pass.
inline ScalarType compute_dtype(const Tensor& tensor) {
  return tensor.scalar_type() == ScalarType::Double ? ScalarType::Double : ScalarType::Float;
}

template <typename T>
const T* read(const Tensor& tensor) {
  return static_cast<const T*>(tensor.const_data_ptr());
}

template <typename T>
T* written(const Tensor& tensor) {
  return static_cast<T*>(tensor.mutable_data_ptr());
}

}  // namespace anyaccel
