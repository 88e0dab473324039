// The runtime for Intel's GPUs: loads SPIR-V, and starts its kernels on torch's current queue.
//
// A queue belongs to the libsycl that made it, so this library uses the one that torch has loaded: it is linked to that
// name, and looks in no folder of its own. Code is compiled for a device by its driver, when one of its kernels is
// first prepared or started there.

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <stdexcept>
#include <string>
#include <sycl/kernel_bundle.hpp>
#include <type_traits>
#include <vector>

#include "device_kernels.h"
#include "sycl_host.h"

namespace {

using anyaccel::guarded;
namespace experimental = sycl::ext::oneapi::experimental;
using Bundle = sycl::kernel_bundle<sycl::bundle_state::executable>;

sycl::queue& torchs_queue(std::int32_t device) {
  using GetStream = std::int32_t (*)(std::int32_t, void**);
  static const GetStream get = [] {
    void* const torch = dlopen("libtorch_xpu.so", RTLD_LAZY | RTLD_NOLOAD);
    return torch == nullptr ? nullptr : reinterpret_cast<GetStream>(dlsym(torch, "aoti_torch_get_current_xpu_stream"));
  }();
  void* queue = nullptr;
  if (get == nullptr || get(device, &queue) != 0 || queue == nullptr) {
    throw std::runtime_error("no libtorch_xpu.so with a current queue is loaded in this process");
  }
  return *static_cast<sycl::queue*>(queue);
}

// SPIR-V, and what a driver has made of it for each device.
struct Code {
  std::vector<std::byte> image;
  std::mutex mutex;
  std::map<std::int32_t, Bundle> bundles;
};

struct Kernel {
  Code* code;
  std::string symbol;
  std::mutex mutex;
  std::map<std::int32_t, sycl::kernel> kernels;
};

Bundle& bundle_on(Code& code, std::int32_t device) {
  const std::lock_guard lock(code.mutex);
  const auto known = code.bundles.find(device);
  if (known != code.bundles.end()) {
    return known->second;
  }
  const sycl::queue& queue = torchs_queue(device);
  auto source = experimental::create_kernel_bundle_from_source(queue.get_context(),
                                                               experimental::source_language::spirv, code.image);
  std::string log;
  try {
    auto built =
        experimental::build(source, {queue.get_device()}, experimental::properties{experimental::save_log{&log}});
    return code.bundles.emplace(device, std::move(built)).first->second;
  } catch (const std::exception& error) {
    throw std::runtime_error(std::string(error.what()) + (log.empty() ? "" : "\n" + log));
  }
}

const sycl::kernel& kernel_on(Kernel& kernel, std::int32_t device) {
  const std::lock_guard lock(kernel.mutex);
  const auto known = kernel.kernels.find(device);
  if (known != kernel.kernels.end()) {
    return known->second;
  }
  auto found = bundle_on(*kernel.code, device).ext_oneapi_get_kernel(kernel.symbol);
  return kernel.kernels.emplace(device, std::move(found)).first->second;
}

}  // namespace

// Each function returns null, or a message about the error.

// Copies SPIR-V, for every device.
ANYACCEL_EXPORT const char* anyaccel_xpu_load(const void* image, std::size_t bytes, void** code) {
  return guarded([&] {
    const auto* const begin = static_cast<const std::byte*>(image);
    *code = new Code{{begin, begin + bytes}, {}, {}};
  });
}

ANYACCEL_EXPORT const char* anyaccel_xpu_kernel(void* code, const char* name, void** kernel) {
  return guarded([&] { *kernel = new Kernel{static_cast<Code*>(code), anyaccel::symbol_of(name), {}, {}}; });
}

// Compiles a kernel for a device now.
ANYACCEL_EXPORT const char* anyaccel_xpu_prepare(void* kernel, std::int32_t device) {
  return guarded([&] { kernel_on(*static_cast<Kernel*>(kernel), device); });
}

// The LaunchFunction of device_kernels.h.
ANYACCEL_EXPORT const char* anyaccel_xpu_launch(void* kernel, std::int32_t device, std::int64_t groups,
                                                std::int32_t threads, std::int32_t, const void* argument,
                                                std::size_t bytes) {
  return guarded([&] {
    const sycl::kernel& found = kernel_on(*static_cast<Kernel*>(kernel), device);
    anyaccel::start(torchs_queue(device), found, groups, threads, argument, bytes);
  });
}
static_assert(std::is_same_v<decltype(&anyaccel_xpu_launch), anyaccel::LaunchFunction>);

ANYACCEL_EXPORT const char* anyaccel_xpu_launch_grid(void* kernel, std::int32_t device, std::uint64_t groups,
                                                     std::uint64_t threads, const anyaccel::Argument* arguments,
                                                     std::int32_t count) {
  return guarded([&] {
    const sycl::kernel& found = kernel_on(*static_cast<Kernel*>(kernel), device);
    anyaccel::start_grid(torchs_queue(device), found, groups, threads, arguments, count);
  });
}
