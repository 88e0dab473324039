// A stand-in for libtorch_xpu.so: torch's current queue of XPU 0 is a queue of Intel's OpenCL CPU device.

#include <cstddef>
#include <cstdint>
#include <sycl/device_selector.hpp>
#include <sycl/properties/queue_properties.hpp>
#include <sycl/queue.hpp>

namespace {

using Launch = const char* (*)(void*, std::int32_t, std::int64_t, std::int32_t, std::int32_t, const void*, std::size_t);

Launch started_by = nullptr;

sycl::queue& queue() {
  static auto* const one = new sycl::queue(sycl::cpu_selector_v, sycl::property::queue::in_order());
  return *one;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

// Returns a status: there is no XPU but 0.
EXPORT std::int32_t aoti_torch_get_current_xpu_stream(std::int32_t device, void** stream) {
  *stream = &queue();
  return device;
}

EXPORT void wait_for_xpu() { queue().wait_and_throw(); }

// Sets the function by which launch_and_wait starts kernels.
EXPORT void start_by(Launch launch) { started_by = launch; }

// Waits for the kernel, as the tensors are the CPU's.
EXPORT const char* launch_and_wait(void* kernel, std::int32_t device, std::int64_t groups, std::int32_t threads,
                                   std::int32_t groups_of_a_block, const void* argument, std::size_t bytes) {
  const char* const error = started_by(kernel, device, groups, threads, groups_of_a_block, argument, bytes);
  queue().wait_and_throw();
  return error;
}
