// The op `cpu_adam` as it is usually written: torch/extension.h and pybind11, with the same loops. A peer in
// bench_load.py.

#include <ATen/Parallel.h>
#include <torch/extension.h>

#include "adam_cpu.h"

namespace {

void adam_step(const std::vector<torch::Tensor>& params, const std::vector<torch::Tensor>& grads,
               const std::vector<torch::Tensor>& exp_avgs, const std::vector<torch::Tensor>& exp_avg_sqs, double step,
               double lr, double beta1, double beta2, double eps, double weight_decay) {
  const anyaccel::AdamOptions options{lr, beta1, beta2, weight_decay, eps, true, true, false};
  const auto coefficients = anyaccel::adam_coefficients(options, step);
  for (size_t i = 0; i < params.size(); ++i) {
    TORCH_CHECK(params[i].is_contiguous() && params[i].scalar_type() == torch::kFloat, "float32, contiguous");
    anyaccel::AdamTensor tensor{};
    tensor.param = params[i].mutable_data_ptr();
    tensor.grad = grads[i].const_data_ptr();
    tensor.exp_avg = exp_avgs[i].mutable_data_ptr();
    tensor.exp_avg_sq = exp_avg_sqs[i].mutable_data_ptr();
    tensor.coefficients = coefficients;
    at::parallel_for(0, params[i].numel(), 1 << 14, [&](int64_t begin, int64_t end) {
      anyaccel::adam_cpu_range(tensor, begin, end, anyaccel::AdamDirection::Step);
    });
  }
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("adam_step", &adam_step); }
