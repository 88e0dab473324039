// The CPU's loops over elements. The compiler vectorises them; memory bandwidth is the limit (see benchmarks).

#include "adam_cpu.h"

#include "precision.h"

namespace anyaccel {
namespace {

// One function per loop: all loops in one function exceed GCC's inlining limit, and GCC then calls the formula for
// every element instead of vectorising it.
template <AdamDirection Direction, bool HasL2, typename Param, typename Grad, typename State>
[[gnu::noinline]] void run(const AdamTensor& tensor, std::int64_t begin, std::int64_t end) {
  Param* __restrict param = static_cast<Param*>(tensor.param);
  const Grad* __restrict grad = static_cast<const Grad*>(tensor.grad);
  State* __restrict exp_avg = static_cast<State*>(tensor.exp_avg);
  State* __restrict exp_avg_sq = static_cast<State*>(tensor.exp_avg_sq);
  const AdamCoefficients coefficients = tensor.coefficients;
  for (std::int64_t i = begin; i < end; ++i) {
    float p = to_float(param[i]);
    float m = to_float(exp_avg[i]);
    float v = to_float(exp_avg_sq[i]);
    if constexpr (Direction == AdamDirection::Step) {
      adam_step<HasL2>(p, to_float(grad[i]), m, v, coefficients);
    } else {
      adam_rollback<HasL2>(p, to_float(grad[i]), m, v, coefficients);
    }
    store(p, param[i]);
    store(m, exp_avg[i]);
    store(v, exp_avg_sq[i]);
  }
}

template <typename Param, typename Grad, typename State>
void run_any(const AdamTensor& tensor, std::int64_t begin, std::int64_t end, AdamDirection direction) {
  const bool has_l2 = tensor.coefficients.l2 != 0.0f;
  if (direction == AdamDirection::Step) {
    has_l2 ? run<AdamDirection::Step, true, Param, Grad, State>(tensor, begin, end)
           : run<AdamDirection::Step, false, Param, Grad, State>(tensor, begin, end);
  } else {
    has_l2 ? run<AdamDirection::Rollback, true, Param, Grad, State>(tensor, begin, end)
           : run<AdamDirection::Rollback, false, Param, Grad, State>(tensor, begin, end);
  }
}

// Calls `body` with a value of the C++ type of a precision.
template <typename Body>
void with_type(Precision precision, const Body& body) {
  switch (precision) {
    case Precision::Float:
      return body(float{});
    case Precision::BFloat16:
      return body(BFloat16{});
    case Precision::Half:
      return body(Half{});
  }
}

}  // namespace

void adam_cpu_range(const AdamTensor& tensor, std::int64_t begin, std::int64_t end, AdamDirection direction) {
  with_type(tensor.param_precision, [&](auto param) {
    with_type(tensor.grad_precision, [&](auto grad) {
      if (tensor.state_precision == Precision::Float) {
        run_any<decltype(param), decltype(grad), float>(tensor, begin, end, direction);
      } else {
        run_any<decltype(param), decltype(grad), decltype(param)>(tensor, begin, end, direction);
      }
    });
  });
}

}  // namespace anyaccel
