#include "device_kernels.h"

#include <algorithm>
#include <mutex>
#include <stdexcept>
#include <unordered_map>

namespace anyaccel {
namespace {

struct DeviceKernel {
  LaunchFunction launch;
  void* kernel;
};

struct Table {
  std::mutex mutex;
  std::unordered_map<std::string, DeviceKernel> kernels;
};

Table& table() {
  static Table* const one = new Table;  // never destroyed: a device may be used while the process ends
  return *one;
}

std::string key_of(const std::string& runtime, std::int32_t device, const std::string& name) {
  return runtime + ":" + std::to_string(device) + ":" + name;
}

DeviceKernel found(const Place& place, const std::string& kernel) {
  const std::lock_guard lock(table().mutex);
  const auto entry =
      table().kernels.find(key_of(kRuntimes[static_cast<std::size_t>(place.runtime)], place.device, kernel));
  if (entry == table().kernels.end()) {
    throw std::runtime_error("launching " + kernel + " failed: got device " + std::to_string(place.device) +
                             ", for which it has not been compiled; expected a dtype and a device that the op was "
                             "loaded for. Fix: use float32, bfloat16 or float16, on a device of the kind that was "
                             "current at load().");
  }
  return entry->second;
}

// Measured for SYCL's CPU device: a work-group of one vector walks a row fastest, as each vector of a larger one goes
// through the whole row before the next; and a loop in a kernel of single elements costs a factor of five.
std::int32_t threads_for(const Place& place, const Work& work) {
  constexpr std::int32_t kForElements = 256;
  if (!work.has_rows()) {
    return kForElements;
  }
  if (place.runtime == Runtime::sycl) {
    return 16;
  }
  std::int32_t threads = 32;
  while (threads < 512 && threads * 4 < work.columns) {
    threads *= 2;
  }
  return threads;
}

std::int64_t groups_for(const Place& place, const Work& work, std::int32_t threads) {
  constexpr std::int64_t kMost = 0x7fffffff;
  if (work.has_rows()) {
    return std::min(work.rows, kMost);
  }
  const std::int64_t elements_a_thread = place.runtime == Runtime::sycl ? 1 : 4;
  const std::int64_t a_group = threads * elements_a_thread;
  return std::clamp<std::int64_t>((work.columns + a_group - 1) / a_group, 1, kMost);
}

}  // namespace

void launch_on_device(const Place& place, const std::string& kernel, const Work& work, std::int64_t groups,
                      const void* argument, std::size_t bytes) {
  const DeviceKernel device_kernel = found(place, kernel);
  const std::int32_t threads = threads_for(place, work);
  const std::int64_t count = groups > 0 ? groups : groups_for(place, work, threads);
  const char* const error = device_kernel.launch(device_kernel.kernel, place.device, count, threads, argument, bytes);
  if (error != nullptr) {
    throw std::runtime_error("launching " + kernel + " on device " + std::to_string(place.device) + " failed: got " +
                             error + "; expected it to start. Fix: look the error up in the device's documentation.");
  }
}

}  // namespace anyaccel

// Called from Python, which owns the kernel and keeps it for as long as the process lives. `runtime` is one of
// kRuntimes.
extern "C" __attribute__((visibility("default"))) void anyaccel_add_kernel(const char* runtime, std::int32_t device,
                                                                           const char* name,
                                                                           anyaccel::LaunchFunction launch,
                                                                           void* kernel) {
  const std::lock_guard lock(anyaccel::table().mutex);
  anyaccel::table().kernels[anyaccel::key_of(runtime, device, name)] = {launch, kernel};
}
