// Starts a kernel where its tensors are: on torch's threads, or on a device through the runtime that Python registered.
//
// A kernel is a struct of pointers and sizes with a call operator over a Group (cpu_group.h), so one struct is the code
// for every device and the one argument of its launch. An op's library holds a table of device kernels, by name; what
// compiles and launches them is in cuda.cpp and sycl.cpp, libraries of their own.

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

// While one lives, this thread's CPU tensors are worked on by SYCL's CPU device.
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

// torch's name for a type of device. Its stable ABI has no function for it, and knows the numbers of these alone.
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
                              names_of_devices() + ". Fix: move it to one of them.");
}

// Elements a CPU thread takes at least: below this, waking one costs more than it saves.
inline constexpr std::int64_t kElementsAThread = 16384;

inline std::int64_t cpu_groups(const Work& work) {
  const std::int64_t columns = work.has_rows() ? std::max<std::int64_t>(1, work.columns) : 1;
  const std::int64_t units_a_thread = std::max<std::int64_t>(1, kElementsAThread / columns);
  const std::int64_t most = (work.units() + units_a_thread - 1) / units_a_thread;
  return std::clamp<std::int64_t>(most, 1, torch::stable::get_num_threads());
}

// How many groups share a work of rows whose every group keeps partial results.
inline std::int64_t groups_with_partials(const Place& place, const Work& work) {
  return place.runtime == Runtime::cpu ? cpu_groups(work) : device_groups_with_partials(device_of(place), work);
}

// Where kernels run: a device, or the CPU, whose threads are its units.
inline Device units_at(const Place& place) {
  return place.runtime == Runtime::cpu
             ? Device{Runtime::cpu, static_cast<std::int32_t>(torch::stable::get_num_threads())}
             : device_of(place);
}

// How many threads of the CPU share the elements of tensors of at most this size, each taking its part of every tensor;
// 0 on a device, whose groups take chunks.
inline std::int64_t groups_for_shares(const Place& place, std::int64_t elements) {
  return place.runtime == Runtime::cpu ? cpu_groups(Work::of_elements(elements)) : 0;
}

// A kernel's name as builders write it: `RmsNormForward<float, BFloat16>`.
template <typename Kernel>
std::string kernel_name() {
  const std::string text = __PRETTY_FUNCTION__;  // "... [with Kernel = anyaccel::X<...>; ...]", or clang's words
  const std::size_t begin = text.find("Kernel = ") + 9;
  std::string name = text.substr(begin, text.find_first_of(";]", begin) - begin);
  for (std::size_t at = name.find("anyaccel::"); at != std::string::npos; at = name.find("anyaccel::")) {
    name.erase(at, 10);
  }
  return name;
}

// Runs a kernel where `tensor` is. With `groups` of 0 there are as many as suit the work.
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
  torch::stable::parallel_for(0, parts, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t part = first; part < last; ++part) {
      kernel(CpuGroup{units * part / parts, units * (part + 1) / parts, part, parts});
    }
  });
}

}  // namespace anyaccel
