// The kinds of device that kernels run on, besides the CPU. No torch header.

#pragma once

#include <cstdint>

// A row: the kind, as Python names it; what torch's C interface calls it; the key of torch's dispatcher. `with` is
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
