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
#include <vector>

#include "adam_cpu.h"
#include "memory.h"
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

inline std::size_t bytes_of(Precision precision) { return precision == Precision::Float ? 4 : 2; }

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
    STD_TORCH_CHECK(is_aligned(views[role].data, bytes_of(quadruple.precisions[role])), "adam failed: got ",
                    place(role, index), " at an odd address; expected a multiple of the bytes of an element. ",
                    "Fix: clone it.");
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
    STD_TORCH_CHECK(is_aligned(data_, bytes()), "adam failed: got state_steps[", index,
                    "] at an odd address; expected a multiple of the bytes of an element. Fix: clone it.");
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

  Span span(std::size_t number) const {
    const auto begin = reinterpret_cast<std::uintptr_t>(data_);
    return {begin, begin + bytes(), static_cast<std::uint32_t>(number), true};
  }

 private:
  std::size_t bytes() const { return is_double_ ? 8 : 4; }

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

// Refuses tensors of a call that share memory. A gradient alone may be the very tensor that is written in its place.
inline void check_apart(const std::vector<Quadruple>& quadruples, const std::vector<StepCounter>& counters) {
  constexpr std::size_t kStep = kRoles;
  std::vector<Span> spans;
  spans.reserve(quadruples.size() * (kRoles + 1));
  for (std::size_t i = 0; i < quadruples.size(); ++i) {
    for (std::size_t role = 0; role < kRoles; ++role) {
      if (const TensorView& view = quadruples[i].views[role]; view.numel > 0) {
        const std::size_t bytes = bytes_of(quadruples[i].precisions[role]);
        spans.push_back(span_of(view, bytes, i * (kRoles + 1) + role, role != kGrad));
      }
    }
    if (!counters.empty()) {
      spans.push_back(counters[i].span(i * (kRoles + 1) + kStep));
    }
  }
  const auto role_of = [](std::uint32_t number) { return number % (kRoles + 1); };
  const auto index_of = [](std::uint32_t number) { return number / (kRoles + 1); };
  const auto may_overlap = [&](std::uint32_t left, std::uint32_t right) {
    if (role_of(left) == kStep || role_of(right) == kStep) {
      return false;
    }
    const TensorView& one = quadruples[index_of(left)].views[role_of(left)];
    const TensorView& other = quadruples[index_of(right)].views[role_of(right)];
    const bool is_one_place =
        index_of(left) == index_of(right) && (role_of(left) == kGrad) != (role_of(right) == kGrad);
    return (is_one_place && is_same_view(one, other)) || lie_apart(one, other);
  };
  const auto name = [&](std::uint32_t number) {
    const auto index = index_of(number);
    return role_of(number) == kStep ? "state_steps[" + std::to_string(index) + "]" : place(role_of(number), index);
  };
  const auto found = find_overlap(spans, may_overlap);
  STD_TORCH_CHECK(!found, "adam failed: got ", name(found->first), ", which shares memory with ", name(found->second),
                  "; expected memory of its own, as one of them is written. Fix: clone one of them.");
}

}  // namespace anyaccel
