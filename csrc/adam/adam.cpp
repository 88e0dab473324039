// The op `adam`: schemas, argument checks, and the distribution of many tensors over threads.
//
// All tensors of a call form one range of elements, split evenly: a thousand small tensors and one large one cost the
// same per element. Nothing is written before every argument has been checked.

#include "adam.h"

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "adam_arguments.h"
#include "adam_cpu.h"
#include "allocation.h"
#include "guarded.h"
#include "registration.h"
#include "tensor_view.h"

namespace anyaccel {
namespace {

using torch::stable::Tensor;

// The minimum number of elements per thread: below this, waking a thread costs more than it saves.
constexpr std::int64_t kGrain = 32768;

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

// Prefetches the start of a tensor's arrays, so that small tensors stream from memory like one large tensor.
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

// Processes tensors with different layouts on contiguous copies, and copies the results back.
void run_on_copies(const std::array<Tensor, kRoles>& originals, std::size_t index, const AdamCoefficients& coefficients,
                   AdamDirection direction) {
  const NoGradient scope;
  std::vector<Tensor> copies;
  std::array<TensorView, kRoles> views{};
  for (std::size_t role = 0; role < kRoles; ++role) {
    copies.push_back(torch::stable::clone(contiguous_of(originals[role])));
    views[role] = view_of(copies[role].get());
  }
  run({arrays(checked(views, index), coefficients)}, direction);
  for (const Role role : {kParam, kExpAvg, kExpAvgSq}) {
    Tensor target = originals[role];
    torch::stable::copy_(target, copies[role]);
  }
}

std::vector<AdamTensor> with_coefficients(const std::vector<Quadruple>& quadruples,
                                          const std::vector<StepCounter>& counters, const AdamOptions& options) {
  std::vector<AdamTensor> tensors;
  tensors.reserve(quadruples.size());
  AdamCoefficients coefficients{};
  double step = 0.0;
  for (std::size_t i = 0; i < quadruples.size(); ++i) {
    if (step != counters[i].next()) {
      step = counters[i].next();
      coefficients = adam_coefficients(options, step);
    }
    tensors.push_back(arrays(quadruples[i], coefficients));
  }
  return tensors;
}

void adam_step_cpu(const std::array<TensorList, kRoles>& lists, const TensorList& state_steps,
                   const AdamOptions& options) {
  const std::size_t count = lists[kParam].size();
  const bool agree = std::ranges::all_of(lists, [&](const TensorList& list) { return list.size() == count; });
  if (!agree || state_steps.size() != count) {
    const auto size = [&](Role role) { return std::to_string(lists[role].size()); };
    kArguments.refuse("lists",
                      "of " + size(kParam) + " params, " + size(kGrad) + " grads, " + size(kExpAvg) + " exp_avgs, " +
                          size(kExpAvgSq) + " exp_avg_sqs and " + std::to_string(state_steps.size()) + " state_steps",
                      "lists of equal length", "pass one tensor in each list for every parameter");
  }
  std::vector<Quadruple> quadruples(count);
  std::vector<StepCounter> counters(count);
  each_checked(count, [&](std::size_t i) {
    quadruples[i] = checked({lists[kParam][i], lists[kGrad][i], lists[kExpAvg][i], lists[kExpAvgSq][i]}, i);
    counters[i] = StepCounter(state_steps[i], i);
    if (!(counters[i].next() >= 1.0)) {  // also NaN
      kArguments.refuse(place(kStep, i).c_str(), "of " + std::to_string(counters[i].next() - 1.0),
                        "a number of 0 or more", "pass torch.zeros(()) before the first step");
    }
  });
  check_memory(quadruples, counters);
  std::vector<AdamTensor> tensors = with_coefficients(quadruples, counters, options);
  for (std::size_t i = 0; i < count; ++i) {
    if (!quadruples[i].shares_layout()) {
      run_on_copies(
          {lists[kParam].tensor(i), lists[kGrad].tensor(i), lists[kExpAvg].tensor(i), lists[kExpAvgSq].tensor(i)}, i,
          tensors[i].coefficients, AdamDirection::Step);
      tensors[i].numel = 0;
    }
  }
  run(tensors, AdamDirection::Step);
  for (const StepCounter& counter : counters) {
    counter.set(counter.next());
  }
}

AdamOptions options_of(const StableIValue* stack) {
  using torch::stable::detail::to;
  return AdamOptions{to<double>(stack[0]), to<double>(stack[1]), to<double>(stack[2]), to<double>(stack[3]),
                     to<double>(stack[4]), to<bool>(stack[5]),   to<bool>(stack[6]),   to<bool>(stack[7])};
}

// Boxed by hand because of the lists: TORCH_BOX would make a torch::stable::Tensor of every entry.
void adam_step_boxed(StableIValue* stack, std::uint64_t, std::uint64_t) {
  const std::array<TensorList, kRoles> lists = {TensorList(stack[0]), TensorList(stack[1]), TensorList(stack[2]),
                                                TensorList(stack[3])};
  const TensorList state_steps(stack[4]);
  adam_step_cpu(lists, state_steps, options_of(stack + 5));
}

template <AdamDirection Direction>
void adam_once_cpu(Tensor param, Tensor grad, Tensor exp_avg, Tensor exp_avg_sq, std::int64_t step, double lr,
                   double beta1, double beta2, double weight_decay, double eps, bool decoupled, bool bias_correction) {
  if (step < 1) {
    kArguments.refuse("step", std::to_string(step), "1 or more",
                      "pass 1 in the first call, and one more in each later call");
  }
  const AdamOptions options{lr, beta1, beta2, weight_decay, eps, decoupled, bias_correction, /*maximize=*/false};
  const AdamCoefficients coefficients = adam_coefficients(options, static_cast<double>(step));
  const Quadruple quadruple =
      checked({view_of(param.get()), view_of(grad.get()), view_of(exp_avg.get()), view_of(exp_avg_sq.get())}, 0);
  check_memory({quadruple}, {});
  if (quadruple.shares_layout()) {
    run({arrays(quadruple, coefficients)}, Direction);
  } else {
    run_on_copies({param, grad, exp_avg, exp_avg_sq}, 0, coefficients, Direction);
  }
}

// torch would materialise a negated or conjugated view, call the op, and then fail, after the op has written.
[[noreturn]] void refuse_flagged() {
  kArguments.refuse("a tensor", "that a flag marks as negated, conjugated or zero",
                    "its values in memory, where the op writes", "call clone() on it");
}

void adam_step_flagged(StableIValue* stack, std::uint64_t, std::uint64_t) {
  for (std::size_t list = 0; list <= kRoles; ++list) {
    const TensorList released(stack[list]);
  }
  refuse_flagged();
}

void adam_once_flagged(Tensor, Tensor, Tensor, Tensor, std::int64_t, double, double, double, double, double, bool,
                       bool) {
  refuse_flagged();
}

template <AdamDirection Direction>
constexpr Registration once(const char* schema) {
  return {schema, &guarded<TORCH_BOX(&adam_once_cpu<Direction>)>, nullptr, &guarded<TORCH_BOX(&adam_once_flagged)>};
}

constexpr Registration kOps[] = {
    {"adam_step(Tensor(a!)[] params, Tensor[] grads, Tensor(b!)[] exp_avgs, Tensor(c!)[] exp_avg_sqs, "
     "Tensor(d!)[] state_steps, *, float lr, float beta1, float beta2, float weight_decay, float eps, "
     "bool decoupled, bool bias_correction, bool maximize) -> ()",
     &guarded<&adam_step_boxed>, nullptr, &guarded<&adam_step_flagged>},
    once<AdamDirection::Step>(
        "adam_update(Tensor(a!) param, Tensor grad, Tensor(b!) exp_avg, Tensor(c!) exp_avg_sq, int step, *, "
        "float lr, float beta1, float beta2, float weight_decay, float eps, bool decoupled, bool bias_correction) "
        "-> ()"),
    once<AdamDirection::Rollback>(
        "adam_rollback(Tensor(a!) param, Tensor grad, Tensor(b!) exp_avg, Tensor(c!) exp_avg_sq, int step, *, "
        "float lr, float beta1, float beta2, float weight_decay, float eps, bool decoupled, bool bias_correction) "
        "-> ()"),
};

}  // namespace
}  // namespace anyaccel

ANYACCEL_DEFINE(ANYACCEL_NAMESPACE, anyaccel::kOps)
ANYACCEL_IMPLEMENT(ANYACCEL_NAMESPACE, CPU, anyaccel::kOps, function)
ANYACCEL_REFUSE_FLAGGED(ANYACCEL_NAMESPACE, anyaccel::kOps)
