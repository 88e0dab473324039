// Registers an op's functions for every device: one function serves CPU, CUDA and XPU tensors, as it launches kernels
// where the tensors are. The namespace `anyaccel_sycl` runs CPU tensors through SYCL's CPU device.

#pragma once

#include <torch/csrc/stable/library.h>

#include <string>

#include "checked_call.h"
#include "guarded.h"
#include "launch.h"

namespace anyaccel {

struct Registration {
  const char* schema;
  BoxedKernel function;
  BoxedKernel on_sycl;
  BoxedKernel on_flagged;  // null where torch may pass materialised tensors instead
};

template <BoxedKernel Function>
void on_sycl_host(StableIValue* stack, std::uint64_t inputs, std::uint64_t outputs) {
  const SyclOnHost scope;
  Function(stack, inputs, outputs);
}

template <Text Schema, auto Function>
constexpr Registration registration(const char* schema) {
  constexpr BoxedKernel kChecked = TORCH_BOX((&CheckedCall<Schema, Function>::call));
  constexpr BoxedKernel kRefused = TORCH_BOX((&RefusedCall<Schema, Function>::call));
  return {schema, &guarded<kChecked>, &guarded<&on_sycl_host<kChecked>>,
          Schema.writes() ? &guarded<kRefused> : nullptr};
}

inline std::string name_in(const char* schema) {
  const std::string text = schema;
  return text.substr(0, text.find('('));
}

}  // namespace anyaccel

#define ANYACCEL_OP(function, schema) anyaccel::registration<schema, &function>(schema)

#define ANYACCEL_IMPLEMENT(space, key, registrations, which)            \
  STABLE_TORCH_LIBRARY_IMPL(space, key, library) {                      \
    for (const anyaccel::Registration& one : registrations) {           \
      if (one.which != nullptr) {                                       \
        library.impl(anyaccel::name_in(one.schema).c_str(), one.which); \
      }                                                                 \
    }                                                                   \
  }

#define ANYACCEL_REFUSE_FLAGGED(space, registrations)             \
  ANYACCEL_IMPLEMENT(space, Negative, registrations, on_flagged)  \
  ANYACCEL_IMPLEMENT(space, Conjugate, registrations, on_flagged) \
  ANYACCEL_IMPLEMENT(space, ZeroTensor, registrations, on_flagged)

#define ANYACCEL_DEFINE(space, registrations)                 \
  STABLE_TORCH_LIBRARY_FRAGMENT(space, library) {             \
    for (const anyaccel::Registration& one : registrations) { \
      library.def(one.schema);                                \
    }                                                         \
  }

#define ANYACCEL_REGISTER(registrations)                      \
  ANYACCEL_DEFINE(anyaccel, registrations)                    \
  ANYACCEL_DEFINE(anyaccel_sycl, registrations)               \
  ANYACCEL_IMPLEMENT(anyaccel, CPU, registrations, function)  \
  ANYACCEL_IMPLEMENT(anyaccel, CUDA, registrations, function) \
  ANYACCEL_IMPLEMENT(anyaccel, XPU, registrations, function)  \
  ANYACCEL_REFUSE_FLAGGED(anyaccel, registrations)            \
  ANYACCEL_REFUSE_FLAGGED(anyaccel_sycl, registrations)       \
  ANYACCEL_IMPLEMENT(anyaccel_sycl, CPU, registrations, on_sycl)
