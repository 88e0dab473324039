// The op `adam`: schemas, argument checks, and the division of many tensors among threads.
//
// All tensors of a call are one range of elements, cut evenly: a thousand small tensors and one large one cost the same
// per element. Nothing is written before every argument has been checked.

#include "adam.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>
#include <vector>

#include "adam_cpu.h"
#include "tensor_view.h"

namespace anyaccel {
namespace {

using torch::stable::Tensor;

// Elements a thread takes at least: below this, waking one costs more than it saves.
constexpr std::int64_t kGrain = 32768;

enum Role : std::size_t { kParam, kGrad, kExpAvg, kExpAvgSq, kRoles };
constexpr std::array<const char*, kRoles> kRoleNames = {"params", "grads", "exp_avgs", "exp_avg_sqs"};

std::string place(std::size_t role, std::size_t index) {
  return std::string(kRoleNames[role]) + "[" + std::to_string(index) + "]";
}

Precision precision_of(std::int32_t dtype, std::size_t role, std::size_t index) {
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

Quadruple checked(const std::array<TensorView, kRoles>& views, std::size_t index) {
  Quadruple quadruple{views, {}};
  for (std::size_t role = 0; role < kRoles; ++role) {
    STD_TORCH_CHECK(views[role].is_cpu, "adam failed: got ", place(role, index),
                    " on another device; expected the cpu. Fix: move it there.");
    STD_TORCH_CHECK(same_shape(views[role], views[kParam]), "adam failed: got ", place(role, index),
                    " of another shape than ", place(kParam, index), " (", views[role].numel, " against ",
                    views[kParam].numel,
                    " elements); expected the same shape. Fix: pass what belongs to the parameter.");
    quadruple.precisions[role] = precision_of(views[role].dtype, role, index);
  }
  const auto [param, grad, exp_avg, exp_avg_sq] = quadruple.precisions;
  STD_TORCH_CHECK(exp_avg == exp_avg_sq && (exp_avg == Precision::Float || exp_avg == param), "adam failed: got ",
                  place(kExpAvg, index), " and ", place(kExpAvgSq, index), " of dtypes that do not go with ",
                  place(kParam, index), "; expected both float32, or both the parameter's. Fix: convert the states.");
  return quadruple;
}

AdamTensor arrays(const Quadruple& quadruple, const AdamCoefficients& coefficients) {
  const auto& views = quadruple.views;
  return AdamTensor{views[kParam].data,
                    views[kGrad].data,
                    views[kExpAvg].data,
                    views[kExpAvgSq].data,
                    views[kParam].numel,
                    quadruple.precisions[kParam],
                    quadruple.precisions[kGrad],
                    quadruple.precisions[kExpAvg],
                    coefficients};
}

// Asks for the head of a tensor's arrays, so that small tensors stream from memory as one large one does.
void prefetch(const AdamTensor& tensor) {
  constexpr std::int64_t kBytes = 1024;
  const std::int64_t bytes = std::min<std::int64_t>(kBytes, tensor.numel * 4);
  for (std::int64_t offset = 0; offset < bytes; offset += 64) {
    __builtin_prefetch(static_cast<const char*>(tensor.param) + offset, 1);
    __builtin_prefetch(static_cast<const char*>(tensor.grad) + offset, 0);
    __builtin_prefetch(static_cast<const char*>(tensor.exp_avg) + offset, 1);
    __builtin_prefetch(static_cast<const char*>(tensor.exp_avg_sq) + offset, 1);
  }
}

void run(const std::vector<AdamTensor>& tensors, AdamDirection direction) {
  std::vector<std::int64_t> ends;
  ends.reserve(tensors.size());
  std::int64_t total = 0;
  for (const AdamTensor& tensor : tensors) {
    ends.push_back(total += tensor.numel);
  }
  torch::stable::parallel_for(0, total, kGrain, [&](std::int64_t begin, std::int64_t end) {
    std::size_t index = std::upper_bound(ends.begin(), ends.end(), begin) - ends.begin();
    while (begin < end) {
      const std::int64_t first = ends[index] - tensors[index].numel;
      const std::int64_t last = std::min(end, ends[index]);
      if (last == ends[index] && index + 1 < tensors.size()) {
        prefetch(tensors[index + 1]);
      }
      adam_cpu_range(tensors[index], begin - first, last - first, direction);
      begin = last;
      ++index;
    }
  });
}

// Runs tensors whose layouts differ on contiguous copies, and copies the results back.
void run_on_copies(const std::array<Tensor, kRoles>& originals, std::size_t index, const AdamCoefficients& coefficients,
                   AdamDirection direction) {
  std::vector<Tensor> copies;
  std::array<TensorView, kRoles> views{};
  for (std::size_t role = 0; role < kRoles; ++role) {
    copies.push_back(torch::stable::clone(torch::stable::contiguous(originals[role])));
    views[role] = view_of(copies[role].get());
  }
  run({arrays(checked(views, index), coefficients)}, direction);
  for (const Role role : {kParam, kExpAvg, kExpAvgSq}) {
    Tensor target = originals[role];
    torch::stable::copy_(target, copies[role]);
  }
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

void adam_step_cpu(const std::array<TensorList, kRoles>& lists, const TensorList& state_steps,
                   const AdamOptions& options) {
  const std::size_t count = lists[kParam].size();
  for (const TensorList& list : lists) {
    STD_TORCH_CHECK(list.size() == count && state_steps.size() == count, "adam failed: got lists of ", count,
                    " params, ", lists[kGrad].size(), " grads, ", lists[kExpAvg].size(), " exp_avgs, ",
                    lists[kExpAvgSq].size(), " exp_avg_sqs and ", state_steps.size(),
                    " state_steps; expected as many of each. Fix: pass one of each a parameter.");
  }
  std::vector<Quadruple> quadruples(count);
  std::vector<StepCounter> counters(count);
  each_checked(count, [&](std::size_t i) {
    quadruples[i] = checked({lists[kParam][i], lists[kGrad][i], lists[kExpAvg][i], lists[kExpAvgSq][i]}, i);
    counters[i] = StepCounter(state_steps[i], i);
  });
  std::vector<AdamTensor> tensors;
  tensors.reserve(count);
  AdamCoefficients coefficients{};
  double step = 0.0;
  for (std::size_t i = 0; i < count; ++i) {
    if (step != counters[i].next()) {
      step = counters[i].next();
      coefficients = adam_coefficients(options, step);
    }
    if (quadruples[i].shares_layout()) {
      tensors.push_back(arrays(quadruples[i], coefficients));
    } else {
      run_on_copies(
          {lists[kParam].tensor(i), lists[kGrad].tensor(i), lists[kExpAvg].tensor(i), lists[kExpAvgSq].tensor(i)}, i,
          coefficients, AdamDirection::Step);
    }
  }
  run(tensors, AdamDirection::Step);
  for (const StepCounter& counter : counters) {
    counter.set(counter.next());
  }
}

// Boxed by hand, for the lists' sake: TORCH_BOX would make a torch::stable::Tensor of every entry.
void adam_step_boxed(StableIValue* stack, std::uint64_t, std::uint64_t) {
  using torch::stable::detail::to;
  const std::array<TensorList, kRoles> lists = {TensorList(stack[0]), TensorList(stack[1]), TensorList(stack[2]),
                                                TensorList(stack[3])};
  const TensorList state_steps(stack[4]);
  const AdamOptions options{to<double>(stack[5]), to<double>(stack[6]), to<double>(stack[7]), to<double>(stack[8]),
                            to<double>(stack[9]), to<bool>(stack[10]),  to<bool>(stack[11]),  to<bool>(stack[12])};
  adam_step_cpu(lists, state_steps, options);
}

template <AdamDirection Direction>
void adam_once_cpu(Tensor param, Tensor grad, Tensor exp_avg, Tensor exp_avg_sq, std::int64_t step, double lr,
                   double beta1, double beta2, double weight_decay, double eps, bool decoupled, bool bias_correction) {
  STD_TORCH_CHECK(step >= 1, "adam failed: got step ", step, "; expected 1 or more. Fix: count steps from 1.");
  const AdamOptions options{lr, beta1, beta2, weight_decay, eps, decoupled, bias_correction, /*maximize=*/false};
  const AdamCoefficients coefficients = adam_coefficients(options, static_cast<double>(step));
  const Quadruple quadruple =
      checked({view_of(param.get()), view_of(grad.get()), view_of(exp_avg.get()), view_of(exp_avg_sq.get())}, 0);
  if (quadruple.shares_layout()) {
    run({arrays(quadruple, coefficients)}, Direction);
  } else {
    run_on_copies({param, grad, exp_avg, exp_avg_sq}, 0, coefficients, Direction);
  }
}

}  // namespace
}  // namespace anyaccel

STABLE_TORCH_LIBRARY_FRAGMENT(anyaccel, library) {
  library.def(
      "adam_step(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs, "
      "Tensor(d!)[] state_steps, *, float lr, float beta1, float beta2, float weight_decay, float eps, "
      "bool decoupled, bool bias_correction, bool maximize) -> ()");
  library.def(
      "adam_update(Tensor(a!) param, Tensor grad, Tensor(b!) exp_avg, Tensor(c!) exp_avg_sq, int step, *, float lr, "
      "float beta1, float beta2, float weight_decay, float eps, bool decoupled, bool bias_correction) -> ()");
  library.def(
      "adam_rollback(Tensor(a!) param, Tensor grad, Tensor(b!) exp_avg, Tensor(c!) exp_avg_sq, int step, *, float lr, "
      "float beta1, float beta2, float weight_decay, float eps, bool decoupled, bool bias_correction) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(anyaccel, CPU, library) {
  library.impl("adam_step", &anyaccel::adam_step_boxed);
  library.impl("adam_update", TORCH_BOX(&anyaccel::adam_once_cpu<anyaccel::AdamDirection::Step>));
  library.impl("adam_rollback", TORCH_BOX(&anyaccel::adam_once_cpu<anyaccel::AdamDirection::Rollback>));
}
