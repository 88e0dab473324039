// The argument checks of the op `adam`: each names the argument, what was found and what was expected.

#pragma once

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "adam_cpu.h"
#include "arguments.h"
#include "memory_check.h"
#include "schema_names.h"
#include "tensor_view.h"

namespace anyaccel {

enum Role : std::uint16_t { kParam, kGrad, kExpAvg, kExpAvgSq, kRoles, kStep = kRoles };
inline constexpr Arguments kArguments{"adam"};

// Messages call all three ops `adam`, and a single tensor counts as the first of its list.
inline const SchemaNames& argument_names() {
  static const SchemaNames one(
      "adam(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs, "
      "Tensor(d!)[] state_steps)");
  return one;
}

inline std::string place(std::size_t role, std::size_t index) {
  return argument_names().name(role) + "[" + std::to_string(index) + "]";
}

inline Precision precision_of(std::int32_t dtype, std::size_t role, std::size_t index) {
  static const std::int32_t kFloat = aoti_torch_dtype_float32();
  static const std::int32_t kBFloat16 = aoti_torch_dtype_bfloat16();
  static const std::int32_t kHalf = aoti_torch_dtype_float16();
  if (dtype == kFloat) {
    return Precision::Float;
  }
  if (dtype == kBFloat16) {
    return Precision::BFloat16;
  }
  if (dtype != kHalf) {
    const auto found = torch::stable::detail::to<ScalarType>(torch::stable::detail::from(dtype));
    constexpr const char* kExpected = "float32, bfloat16 or float16";
    if (role == kGrad) {
      kArguments.refuse_dtype(place(role, index), found, kExpected);
    }
    kArguments.refuse_written_dtype(place(role, index), found, kExpected);
  }
  return Precision::Half;
}

inline std::size_t bytes_of(Precision precision) { return precision == Precision::Float ? 4 : 2; }

// The four tensors of one parameter, checked.
struct Quadruple {
  std::array<TensorView, kRoles> views;
  std::array<Precision, kRoles> precisions;

  // Elementwise loops over memory are correct when all four fill it in the same order.
  bool shares_layout() const {
    return is_dense(views[kParam]) && std::all_of(views.begin() + 1, views.end(), [&](const TensorView& view) {
             return same_layout(view, views[kParam]);
           });
  }
};

inline Quadruple checked(const std::array<TensorView, kRoles>& views, std::size_t index) {
  Quadruple quadruple{views, {}};
  for (std::size_t role = 0; role < kRoles; ++role) {
    const TensorView& view = views[role];
    if (!view.is_cpu) {
      kArguments.refuse(
          place(role, index).c_str(), "on another device", "the cpu",
          role == kGrad ? "pass " + place(role, index) + ".cpu()" : "keep parameters and states on the cpu");
    }
    if (!same_shape(view, views[kParam])) {
      kArguments.refuse(place(role, index).c_str(),
                        "of another shape than " + place(kParam, index) + " (" + std::to_string(view.numel) +
                            " against " + std::to_string(views[kParam].numel) + " elements)",
                        "the same shape", "pass the tensor that belongs to this parameter");
    }
    quadruple.precisions[role] = precision_of(view.dtype, role, index);
  }
  const auto [param, grad, exp_avg, exp_avg_sq] = quadruple.precisions;
  if (exp_avg != exp_avg_sq || (exp_avg != Precision::Float && exp_avg != param)) {
    kArguments.refuse((place(kExpAvg, index) + " and " + place(kExpAvgSq, index)).c_str(),
                      "of dtypes that do not match " + place(kParam, index), "both float32, or both the parameter's",
                      "create both with torch.zeros_like(param)");
  }
  return quadruple;
}

// The step of one parameter: a one-element float tensor on the CPU, as torch.optim keeps it.
class StepCounter {
 public:
  StepCounter() = default;
  StepCounter(const TensorView& view, std::size_t index)
      : tensor_(view.tensor), data_(view.data), is_double_(view.dtype == aoti_torch_dtype_float64()) {
    if (!view.is_cpu || view.numel != 1 || (!is_double_ && view.dtype != aoti_torch_dtype_float32())) {
      kArguments.refuse(place(kStep, index).c_str(), "with " + std::to_string(view.numel) + " elements",
                        "one float32 or float64 on the cpu", "pass torch.zeros(()), once, and keep it");
    }
  }

  double next() const { return 1.0 + (is_double_ ? *static_cast<double*>(data_) : *static_cast<float*>(data_)); }

  void set(double step) const {
    if (is_double_) {
      *static_cast<double*>(data_) = step;
    } else {
      *static_cast<float*>(data_) = static_cast<float>(step);
    }
  }

  // Not stored: a view is large, and a call may have thousands of them.
  TensorView view() const {
    TensorView view{};
    view.tensor = tensor_;
    view.data = data_;
    view.numel = 1;
    view.is_contiguous = true;
    return view;
  }

  std::size_t bytes() const { return is_double_ ? 8 : 4; }

 private:
  AtenTensorHandle tensor_ = nullptr;
  void* data_ = nullptr;
  bool is_double_ = false;
};

// Calls `check(i)` for every index, on several threads: inspecting thousands of tensors is mostly waiting for memory.
// An exception must not cross torch's C interface, so if one is thrown, the first failure in order is repeated on this
// thread.
template <typename Check>
void each_checked(std::size_t count, const Check& check) {
  constexpr std::int64_t kTensorsAThread = 64;
  std::atomic<bool> has_failed = false;
  torch::stable::parallel_for(0, static_cast<std::int64_t>(count), kTensorsAThread,
                              [&](std::int64_t begin, std::int64_t end) {
                                try {
                                  for (std::int64_t i = begin; i < end; ++i) {
                                    check(static_cast<std::size_t>(i));
                                  }
                                } catch (const std::exception&) {
                                  has_failed = true;
                                }
                              });
  for (std::size_t i = 0; has_failed && i < count; ++i) {
    check(i);
  }
}

// Rejects tensors that share memory. Only a gradient may be the same tensor as the one written at its position.
inline void check_memory(const std::vector<Quadruple>& quadruples, const std::vector<StepCounter>& counters) {
  MemoryCheck memory(argument_names());
  memory.reserve(quadruples.size() * (kRoles + 1));
  for (std::uint32_t i = 0; i < quadruples.size(); ++i) {
    for (std::uint16_t role = 0; role < kRoles; ++role) {
      const TensorView& view = quadruples[i].views[role];
      memory.look({view.tensor, i, role, role != kGrad}, view, bytes_of(quadruples[i].precisions[role]));
    }
    if (!counters.empty()) {
      const TensorView view = counters[i].view();
      memory.look({view.tensor, i, kStep, true}, view, counters[i].bytes());
    }
  }
  if (const auto shared = memory.find_shared()) {
    memory.refuse_shared(*shared);
  }
}

}  // namespace anyaccel
