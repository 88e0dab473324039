// An op's table of device kernels, which Python fills after compiling them. No torch header: starting a kernel needs
// none.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "launch_shape.h"

namespace anyaccel {

// The entry point of a device runtime: starts `kernel` on the current stream of `device`, with one argument of `bytes`
// bytes. The numbers are those of a Shape, of which a runtime may ignore all but `groups`. Returns a message on
// failure, otherwise null.
using LaunchFunction = const char* (*)(void* kernel, std::int32_t device, std::int64_t groups, std::int32_t threads,
                                       std::int32_t groups_of_a_block, const void* argument, std::size_t bytes);

struct Place {
  Runtime runtime;
  std::int32_t device;
};

// The device of a place, for launch shapes; kernels must have been registered for it.
Device device_of(const Place& place);

// Starts a registered kernel; throws when no kernel has the name, or it cannot be started.
void launch_on_device(const Place& place, const std::string& kernel, const Work& work, std::int64_t groups,
                      const void* argument, std::size_t bytes);

}  // namespace anyaccel
