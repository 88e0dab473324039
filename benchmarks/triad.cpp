// The streaming limit of an optimizer's step: the same arrays read and written, with almost no arithmetic.
// 16 bytes read and 12 written per element.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

namespace {

using torch::stable::Tensor;

void triad(Tensor a, Tensor b, Tensor c, Tensor d) {
  float* __restrict out_a = a.mutable_data_ptr<float>();
  const float* __restrict in = b.const_data_ptr<float>();
  float* __restrict out_c = c.mutable_data_ptr<float>();
  float* __restrict out_d = d.mutable_data_ptr<float>();
  torch::stable::parallel_for(0, a.numel(), 32768, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      out_c[i] += in[i];
      out_d[i] += in[i];
      out_a[i] += 0.5f * in[i];
    }
  });
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(anyaccel_benchmarks, library) {
  library.def("triad(Tensor(a!) a, Tensor b, Tensor(b!) c, Tensor(c!) d) -> ()");
}

STABLE_TORCH_LIBRARY_IMPL(anyaccel_benchmarks, CPU, library) { library.impl("triad", TORCH_BOX(&triad)); }
