// What the op `adam` accepts: each check names the argument, what it got and what it expected.

#pragma once

#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>

#include "adam_cpu.h"
#include "tensor_view.h"

namespace anyaccel {

enum Role : std::size_t { kParam, kGrad, kExpAvg, kExpAvgSq, kRoles };
inline constexpr std::array<const char*, kRoles> kRoleNames = {"params", "grads", "exp_avgs", "exp_avg_sqs"};

inline std::string place(std::size_t role, std::size_t index) {
  return std::string(kRoleNames[role]) + "[" + std::to_string(index) + "]";
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
  STD_TORCH_CHECK(dtype == kHalf, "adam failed: got ", place(role, index),
                  " of a dtype it does not know; expected float32, bfloat16 or float16. Fix: convert it.");
  return Precision::Half;
}

// The four tensors of one parameter, checked.
struct Quadruple {
  std::array<TensorView, kRoles> views;
  std::array<Precision, kRoles> precisions;

  // Elementwise loops over memory are right when all four fill it in the same order.
  bool shares_layout() const {
    return is_dense(views[kParam]) && std::all_of(views.begin() + 1, views.end(), [&](const TensorView& view) {
             return same_layout(view, views[kParam]);
           });
  }
};

inline Quadruple checked(const std::array<TensorView, kRoles>& views, std::size_t index) {
  Quadruple quadruple{views, {}};
  for (std::size_t role = 0; role < kRoles; ++role) {
    STD_TORCH_CHECK(views[role].is_cpu, "adam failed: got ", place(role, index),
                    " on another device; expected the cpu. Fix: move it there.");
    STD_TORCH_CHECK(same_shape(views[role], views[kParam]), "adam failed: got ", place(role, index),
                    " of another shape than ", place(kParam, index), " (", views[role].numel, " against ",
                    views[kParam].numel,
                    " elements); expected the same shape. Fix: pass what belongs to the parameter.");
    STD_TORCH_CHECK(role == kGrad || !overlaps_itself(views[role]), "adam failed: got ", place(role, index),
                    ", whose elements share memory; expected one place for each. Fix: clone it.");
    quadruple.precisions[role] = precision_of(views[role].dtype, role, index);
  }
  const auto [param, grad, exp_avg, exp_avg_sq] = quadruple.precisions;
  STD_TORCH_CHECK(exp_avg == exp_avg_sq && (exp_avg == Precision::Float || exp_avg == param), "adam failed: got ",
                  place(kExpAvg, index), " and ", place(kExpAvgSq, index), " of dtypes that do not go with ",
                  place(kParam, index), "; expected both float32, or both the parameter's. Fix: convert the states.");
  return quadruple;
}

// The step of one parameter: a one-element float tensor on the CPU, as torch.optim keeps it.
class StepCounter {
 public:
  StepCounter() = default;
  StepCounter(const TensorView& view, std::size_t index)
      : data_(view.data), is_double_(view.dtype == aoti_torch_dtype_float64()) {
    STD_TORCH_CHECK(view.is_cpu && view.numel == 1 && (is_double_ || view.dtype == aoti_torch_dtype_float32()),
                    "adam failed: got state_steps[", index, "] with ", view.numel,
                    " elements; expected one, a float32 or float64 on the cpu. Fix: pass the optimizer's step.");
  }

  double next() const { return 1.0 + (is_double_ ? *static_cast<double*>(data_) : *static_cast<float*>(data_)); }

  void set(double step) const {
    if (is_double_) {
      *static_cast<double*>(data_) = step;
    } else {
      *static_cast<float*>(data_) = static_cast<float>(step);
    }
  }

 private:
  void* data_ = nullptr;
  bool is_double_ = false;
};

// Calls `check(i)` for every index, on several threads: looking at thousands of tensors is mostly waiting for memory.
// An exception must not cross torch's C interface, so where one is thrown, the first in order is found again on this
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

}  // namespace anyaccel
