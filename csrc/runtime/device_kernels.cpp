#include "device_kernels.h"

#include <map>
#include <mutex>
#include <stdexcept>
#include <unordered_map>
#include <utility>

namespace anyaccel {
namespace {

struct DeviceKernel {
  LaunchFunction launch;
  void* kernel;
  std::int32_t units;
};

struct Table {
  std::mutex mutex;
  std::unordered_map<std::string, DeviceKernel> kernels;
  std::map<std::pair<std::string, std::int32_t>, std::int32_t> units;  // by runtime and device
};

Table& table() {
  static Table* const one = new Table;  // never destroyed: a device may be used while the process exits
  return *one;
}

std::string name_of(Runtime runtime) { return kRuntimes[static_cast<std::size_t>(runtime)]; }

std::string key_of(const std::string& runtime, std::int32_t device, const std::string& name) {
  return runtime + ":" + std::to_string(device) + ":" + name;
}

DeviceKernel found(const Place& place, const std::string& kernel) {
  const std::lock_guard lock(table().mutex);
  const auto entry = table().kernels.find(key_of(name_of(place.runtime), place.device, kernel));
  if (entry == table().kernels.end()) {
    throw std::runtime_error("launching " + kernel + " failed: got device " + std::to_string(place.device) +
                             ", for which this kernel was not compiled; expected a dtype and a device that the op was "
                             "loaded for. Fix: use float32, bfloat16 or float16, on a device of the kind that was "
                             "current at load().");
  }
  return entry->second;
}

}  // namespace

Device device_of(const Place& place) {
  const std::lock_guard lock(table().mutex);
  const auto known = table().units.find({name_of(place.runtime), place.device});
  return {place.runtime, known == table().units.end() ? 0 : known->second};
}

void launch_on_device(const Place& place, const std::string& kernel, const Work& work, std::int64_t groups,
                      const void* argument, std::size_t bytes) {
  const DeviceKernel device_kernel = found(place, kernel);
  const Shape shape = shape_for({place.runtime, device_kernel.units}, work, groups);
  const char* const error = device_kernel.launch(device_kernel.kernel, place.device, shape.groups, shape.threads,
                                                 shape.groups_of_a_block, argument, bytes);
  if (error != nullptr) {
    throw std::runtime_error("launching " + kernel + " on device " + std::to_string(place.device) +
                             " failed: " + error +
                             ". Fix: look up the error in the device's documentation, or run the op on tensor.cpu().");
  }
}

}  // namespace anyaccel

// Called from Python, which owns the kernel and keeps it for the life of the process. `runtime` is one of
// kRuntimes; `units` is the device's number of units.
extern "C" __attribute__((visibility("default"))) void anyaccel_add_kernel(const char* runtime, std::int32_t device,
                                                                           std::int32_t units, const char* name,
                                                                           anyaccel::LaunchFunction launch,
                                                                           void* kernel) {
  const std::lock_guard lock(anyaccel::table().mutex);
  anyaccel::table().kernels[anyaccel::key_of(runtime, device, name)] = {launch, kernel, units};
  anyaccel::table().units[{runtime, device}] = units;
}
