// Starts a kernel on the device of its tensors: on torch's threads, or through the runtime that Python registered.
//
// A kernel is a struct of pointers and sizes with a call operator over a Group (cpu_group.h), so one struct is both the
// code for every device and the single argument of its launch. An op's library has a table of device kernels, by name;
// cuda.cpp and sycl.cpp, which are separate libraries, compile and launch them.

#pragma once

#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "cpu_group.h"
#include "device_kernels.h"
#include "error_code.h"

namespace anyaccel {

// While an object of this class lives, SYCL's CPU device processes this thread's CPU tensors.
class SyclOnHost {
 public:
  SyclOnHost() : before_(is_asked()) { is_asked() = true; }
  ~SyclOnHost() { is_asked() = before_; }
  SyclOnHost(const SyclOnHost&) = delete;
  SyclOnHost& operator=(const SyclOnHost&) = delete;

  static bool& is_asked() {
    static thread_local bool asked = false;
    return asked;
  }

 private:
  bool before_;
};

// torch's name for a device type. The stable ABI has no function for it; only these have fixed numbers.
inline std::string name_of_device(std::int32_t type) {
  const std::pair<std::int32_t, const char*> names[] = {{aoti_torch_device_type_meta(), "meta"},
                                                        {aoti_torch_device_type_mps(), "mps"},
                                                        {aoti_torch_device_type_privateuse1(), "privateuseone"}};
  for (const auto& [known, name] : names) {
    if (type == known) {
      return name;
    }
  }
  return "a device of torch's type " + std::to_string(type);
}

// "cpu, cuda or xpu"
inline std::string names_of_devices() {
  std::string names = "cpu";
  constexpr const char* kKinds[] = {ANYACCEL_DEVICES(ANYACCEL_KIND, ANYACCEL_AS_TEXT)};
  for (const char* const& kind : kKinds) {
    names += (&kind + 1 == std::end(kKinds) ? " or " : ", ") + std::string(kind);
  }
  return names;
}

inline Place place_of(const torch::stable::Tensor& tensor) {
  static const std::int32_t kCpu = aoti_torch_device_type_cpu();
  std::int32_t type = 0;
  STABLE_TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(tensor.get(), &type));
  if (type == kCpu) {
    return {SyclOnHost::is_asked() ? Runtime::sycl : Runtime::cpu, 0};
  }
#define ANYACCEL_PLACE(with, kind, torchs, key)                           \
  static const std::int32_t k_##kind = aoti_torch_device_type_##torchs(); \
  if (type == k_##kind) {                                                 \
    return {Runtime::kind, tensor.get_device_index()};                    \
  }
  ANYACCEL_DEVICES(ANYACCEL_PLACE, )
#undef ANYACCEL_PLACE
  throw std::invalid_argument("choosing a kernel failed: got a tensor on " + name_of_device(type) + "; expected " +
                              names_of_devices() +
                              ". Fix: move it with tensor.to(\"cpu\"), or to another of these devices.");
}

// The minimum number of elements per CPU thread: below this, waking a thread costs more than it saves.
inline constexpr std::int64_t kElementsAThread = 16384;

inline std::int64_t cpu_groups(const Work& work) {
  const std::int64_t columns = work.has_rows() ? std::max<std::int64_t>(1, work.columns) : 1;
  const std::int64_t units_a_thread = std::max<std::int64_t>(1, kElementsAThread / columns);
  const std::int64_t most = (work.units() + units_a_thread - 1) / units_a_thread;
  return std::clamp<std::int64_t>(most, 1, torch::stable::get_num_threads());
}

// The most rows whose columns a CPU thread adds up in one float: rounding errors accumulate in one long sum.
inline constexpr std::int64_t kRowsOfATotal = 4096;

// The number of groups that share rows when every group keeps partial results.
inline std::int64_t groups_with_partials(const Place& place, const Work& work) {
  return place.runtime == Runtime::cpu ? std::max(cpu_groups(work), parts_of(work.rows, kRowsOfATotal))
                                       : device_groups_with_partials(device_of(place), work);
}

// The device at a place; the CPU's units are its threads.
inline Device units_at(const Place& place) {
  return place.runtime == Runtime::cpu
             ? Device{Runtime::cpu, static_cast<std::int32_t>(torch::stable::get_num_threads())}
             : device_of(place);
}

// The number of CPU threads that share tensors of at most this many elements, each taking a part of every tensor;
// 0 on a device, whose groups take chunks.
inline std::int64_t groups_for_shares(const Place& place, std::int64_t elements) {
  return place.runtime == Runtime::cpu ? cpu_groups(Work::of_elements(elements)) : 0;
}

// A kernel's name in the form that builders use: `RmsNormForward<float, BFloat16>`.
template <typename Kernel>
std::string kernel_name() {
  const std::string text = __PRETTY_FUNCTION__;  // "... [with Kernel = anyaccel::X<...>; ...]", or clang's form
  const std::size_t begin = text.find("Kernel = ") + 9;
  std::string name = text.substr(begin, text.find_first_of(";]", begin) - begin);
  for (std::size_t at = name.find("anyaccel::"); at != std::string::npos; at = name.find("anyaccel::")) {
    name.erase(at, 10);
  }
  return name;
}

// Runs a kernel on the device of `tensor`. With `groups` of 0, the work decides the number of groups.
template <typename Kernel>
void launch(const torch::stable::Tensor& tensor, const Kernel& kernel, const Work& work, std::int64_t groups = 0) {
  static_assert(std::is_trivially_copyable_v<Kernel>);
  if (work.is_empty() && groups == 0) {
    return;
  }
  const Place place = place_of(tensor);
  if (place.runtime != Runtime::cpu) {
    static const std::string name = kernel_name<Kernel>();
    launch_on_device(place, name, work, groups, &kernel, sizeof(Kernel));
    return;
  }
  const std::int64_t parts = groups > 0 ? groups : cpu_groups(work);
  const std::int64_t units = work.units();
  // Flattened: with many kernels in a file, GCC stops inlining, and a call in a loop keeps it from being vectorised.
  torch::stable::parallel_for(0, parts, 1, [&](std::int64_t first, std::int64_t last) __attribute__((flatten)) {
    for (std::int64_t part = first; part < last; ++part) {
      kernel(CpuGroup{units * part / parts, units * (part + 1) / parts, part, parts});
    }
  });
}

}  // namespace anyaccel
