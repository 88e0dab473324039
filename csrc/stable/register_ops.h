// Registers an op's functions for every device: one function serves the CPU and every kind in devices.h, as it launches
// kernels on the device of the tensors. The namespace `anyaccel_sycl` runs CPU tensors on SYCL's CPU device.

#pragma once

#include <torch/csrc/stable/library.h>

#include <cstdint>

#include "checked_call.h"
#include "guarded.h"
#include "launch.h"
#include "registration.h"

namespace anyaccel {

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

}  // namespace anyaccel

#define ANYACCEL_OP(function, schema) anyaccel::registration<schema, &function>(schema)

#define ANYACCEL_SERVE(registrations, kind, torchs, key) ANYACCEL_IMPLEMENT(anyaccel, key, registrations, function)

#define ANYACCEL_REGISTER(registrations)                     \
  ANYACCEL_DEFINE(anyaccel, registrations)                   \
  ANYACCEL_DEFINE(anyaccel_sycl, registrations)              \
  ANYACCEL_IMPLEMENT(anyaccel, CPU, registrations, function) \
  ANYACCEL_DEVICES(ANYACCEL_SERVE, registrations)            \
  ANYACCEL_REFUSE_FLAGGED(anyaccel, registrations)           \
  ANYACCEL_REFUSE_FLAGGED(anyaccel_sycl, registrations)      \
  ANYACCEL_IMPLEMENT(anyaccel_sycl, CPU, registrations, on_sycl)
