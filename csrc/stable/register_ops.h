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

#define ANYACCEL_SERVE(registrations, kind, torchs, key) \
  ANYACCEL_IMPLEMENT(ANYACCEL_NAMESPACE, key, registrations, function)

#define ANYACCEL_ON_SYCL(space) ANYACCEL_WITH_SYCL(space)  // expands `space` first
#define ANYACCEL_WITH_SYCL(space) space##_sycl

#define ANYACCEL_REGISTER(registrations)                                       \
  ANYACCEL_DEFINE(ANYACCEL_NAMESPACE, registrations)                           \
  ANYACCEL_DEFINE(ANYACCEL_ON_SYCL(ANYACCEL_NAMESPACE), registrations)         \
  ANYACCEL_IMPLEMENT(ANYACCEL_NAMESPACE, CPU, registrations, function)         \
  ANYACCEL_DEVICES(ANYACCEL_SERVE, registrations)                              \
  ANYACCEL_REFUSE_FLAGGED(ANYACCEL_NAMESPACE, registrations)                   \
  ANYACCEL_REFUSE_FLAGGED(ANYACCEL_ON_SYCL(ANYACCEL_NAMESPACE), registrations) \
  ANYACCEL_IMPLEMENT(ANYACCEL_ON_SYCL(ANYACCEL_NAMESPACE), CPU, registrations, on_sycl)
