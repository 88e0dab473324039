// The toy device's runtime: starts kernels, one group after another.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "toy_group.h"

namespace {

std::atomic<std::int64_t> launches = 0;

}  // namespace

#define ANYACCEL_EXPORT extern "C" __attribute__((visibility("default")))

// The LaunchFunction of device_kernels.h.
ANYACCEL_EXPORT const char* anyaccel_toy_launch(void* kernel, std::int32_t device, std::int64_t groups, std::int32_t,
                                                std::int32_t, const void* argument, std::size_t) {
  if (device != 0) {
    return "a device that is not there";
  }
  for (std::int64_t index = 0; index < groups; ++index) {
    reinterpret_cast<anyaccel::ToyKernel>(kernel)(argument, anyaccel::ToyGroup{index, groups});
  }
  ++launches;
  return nullptr;
}

ANYACCEL_EXPORT std::int64_t anyaccel_toy_launches() { return launches; }
