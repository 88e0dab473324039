// The kinds of device that kernels run on, in addition to the CPU. No torch header.

#pragma once

#include <cstdint>

// A row: Python's name of the kind, its name in torch's C interface, and its key in torch's dispatcher. `with` is
// passed on.
#define ANYACCEL_DEVICES(ROW, with) \
  ROW(with, cuda, cuda, CUDA)       \
  ROW(with, xpu, xpu, XPU)

#define ANYACCEL_KIND(with, kind, torchs, key) with(kind)
#define ANYACCEL_AS_IS(kind) kind,
#define ANYACCEL_AS_TEXT(kind) #kind,

namespace anyaccel {

// What runs a kernel: torch's threads, SYCL's CPU device, or a kind of device.
enum class Runtime : std::int32_t { cpu, sycl, ANYACCEL_DEVICES(ANYACCEL_KIND, ANYACCEL_AS_IS) };

inline constexpr const char* kRuntimes[] = {"cpu", "sycl", ANYACCEL_DEVICES(ANYACCEL_KIND, ANYACCEL_AS_TEXT)};

}  // namespace anyaccel
