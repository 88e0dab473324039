// Ops with one defect each, which the fuzzer must find, and one without.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/ScalarType.h>

#include <cstdint>

#include "guarded.h"

namespace {

using anyaccel::guarded;
using torch::headeronly::ScalarType;
using torch::stable::Tensor;

void require_float32(const Tensor& x) {
  STD_TORCH_CHECK(x.scalar_type() == ScalarType::Float, "planted failed: got another dtype; expected float32.");
}

Tensor doubled(const Tensor& x, std::int64_t count) {
  Tensor y = torch::stable::new_empty(x, {count});
  const float* from = static_cast<const float*>(x.const_data_ptr());
  float* to = static_cast<float*>(y.mutable_data_ptr());
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] = from[i] * 2;
  }
  return y;
}

Tensor sound(Tensor x) {
  require_float32(x);
  return doubled(torch::stable::contiguous(x), x.numel());
}

Tensor reads_past(Tensor x) {
  require_float32(x);
  const Tensor from = torch::stable::contiguous(x);
  [[maybe_unused]] const volatile float next = static_cast<const float*>(from.const_data_ptr())[from.numel()];
  return doubled(from, from.numel());
}

Tensor ignores_strides(Tensor x) {
  require_float32(x);
  return doubled(x, x.numel());
}

Tensor writes_input(Tensor x) {
  require_float32(x);
  if (x.numel() > 0) {
    *static_cast<float*>(x.mutable_data_ptr()) = 1.0f;
  }
  return sound(x);
}

void writes_before_it_refuses(Tensor x, Tensor y) {
  require_float32(x);
  if (x.numel() > 0) {
    *static_cast<float*>(x.mutable_data_ptr()) = 1.0f;
  }
  require_float32(y);
}

Tensor refuses_everything(Tensor) { STD_TORCH_CHECK(false, "planted failed: got anything; expected nothing."); }

Tensor copied(Tensor x) {
  require_float32(x);
  const Tensor from = torch::stable::contiguous(x);
  const Tensor to = torch::stable::empty_like(from);
  for (std::int64_t i = 0; i < from.numel(); ++i) {
    static_cast<float*>(to.mutable_data_ptr())[i] = static_cast<const float*>(from.const_data_ptr())[i];
  }
  return to;
}

Tensor keeps_strides(Tensor x) { return torch::stable::empty_like(x); }

}  // namespace

STABLE_TORCH_LIBRARY(planted, library) {
  library.def("sound(Tensor x) -> Tensor");
  library.def("reads_past(Tensor x) -> Tensor");
  library.def("ignores_strides(Tensor x) -> Tensor");
  library.def("writes_input(Tensor x) -> Tensor");
  library.def("writes_before_it_refuses(Tensor(a!) x, Tensor y) -> ()");
  library.def("refuses_everything(Tensor x) -> Tensor");
  library.def("has_a_fake_of_other_strides(Tensor x) -> Tensor");
  library.def("has_a_fake_that_fails(Tensor x) -> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(planted, CPU, library) {
  library.impl("sound", &guarded<TORCH_BOX(&sound)>);
  library.impl("reads_past", &guarded<TORCH_BOX(&reads_past)>);
  library.impl("ignores_strides", &guarded<TORCH_BOX(&ignores_strides)>);
  library.impl("writes_input", &guarded<TORCH_BOX(&writes_input)>);
  library.impl("writes_before_it_refuses", &guarded<TORCH_BOX(&writes_before_it_refuses)>);
  library.impl("refuses_everything", &guarded<TORCH_BOX(&refuses_everything)>);
  library.impl("has_a_fake_of_other_strides", &guarded<TORCH_BOX(&copied)>);
  library.impl("has_a_fake_that_fails", &guarded<TORCH_BOX(&copied)>);
}

STABLE_TORCH_LIBRARY_IMPL(planted, Meta, library) {
  library.impl("has_a_fake_of_other_strides", &guarded<TORCH_BOX(&keeps_strides)>);
  library.impl("has_a_fake_that_fails", &guarded<TORCH_BOX(&refuses_everything)>);
}
