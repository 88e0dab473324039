// CUDA's runtime: loads device code and starts kernels through the driver API, which it opens on first use.
//
// The build needs no CUDA header and no CUDA library. Kernels are loaded as context-independent libraries
// (driver 12.0 or newer), so one handle serves every device of an architecture; op_builder/cuda/compatibility.py
// decides before compilation which code a driver accepts. The stream is torch's current stream,
// queried from the library that torch has loaded; a launch during graph capture is captured.

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <type_traits>

#include "device_kernels.h"
#include "opened_library.h"

namespace {

using Status = int;  // CUresult
using Context = void*;
using Stream = void*;

struct Driver {
  Status (*init)(unsigned) = nullptr;
  Status (*error_name)(Status, const char**) = nullptr;
  Status (*error_string)(Status, const char**) = nullptr;
  Status (*library_load)(void**, const void*, void*, void*, unsigned, void*, void*, unsigned) = nullptr;
  Status (*library_kernel)(void**, void*, const char*) = nullptr;
  Status (*kernel_function)(void**, void*) = nullptr;
  Status (*function_load)(void*) = nullptr;  // null before version 12.4
  Status (*context_current)(Context*) = nullptr;
  Status (*context_push)(Context) = nullptr;
  Status (*context_pop)(Context*) = nullptr;
  Status (*device_get)(int*, int) = nullptr;
  Status (*primary_retain)(Context*, int) = nullptr;
  Status (*primary_state)(int, unsigned*, int*) = nullptr;
  Status (*kernel_attribute)(int, int, void*, int) = nullptr;
  Status (*launch)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream, void**,
                   void**) = nullptr;
  std::string problem;
};

Driver opened() {
  Driver driver;
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    driver.problem = std::string("no driver: ") + dlerror();
    return driver;
  }
  const auto need = [&](const char* name, auto& function) {
    anyaccel::find(library, name, function, driver.problem, ", which version 12.0 introduced");
  };
  need("cuInit", driver.init);
  need("cuGetErrorName", driver.error_name);
  need("cuGetErrorString", driver.error_string);
  need("cuLibraryLoadData", driver.library_load);
  need("cuLibraryGetKernel", driver.library_kernel);
  need("cuKernelGetFunction", driver.kernel_function);
  driver.function_load = reinterpret_cast<Status (*)(void*)>(dlsym(library, "cuFuncLoad"));
  need("cuCtxGetCurrent", driver.context_current);
  need("cuCtxPushCurrent_v2", driver.context_push);
  need("cuCtxPopCurrent_v2", driver.context_pop);
  need("cuDeviceGet", driver.device_get);
  need("cuDevicePrimaryCtxRetain", driver.primary_retain);
  need("cuDevicePrimaryCtxGetState", driver.primary_state);
  need("cuKernelSetAttribute", driver.kernel_attribute);
  need("cuLaunchKernel", driver.launch);
  if (driver.problem.empty()) {
    const Status status = driver.init(0);
    if (status != 0) {
      driver.problem = "cuInit returned " + std::to_string(status);
    }
  }
  return driver;
}

const Driver& driver() {
  static const Driver one = opened();
  return one;
}

const char* error_of(Status status, const char* call) {
  if (status == 0) {
    return nullptr;
  }
  const char* name = nullptr;
  const char* text = nullptr;
  driver().error_name(status, &name);
  driver().error_string(status, &text);
  return anyaccel::kept_error(call, status, name, text);
}

// A device's primary context, which torch also uses; it is retained once and never released.
const char* primary_context(int device, Context& context) {
  static std::mutex mutex;
  static std::map<int, Context> contexts;
  const std::lock_guard lock(mutex);
  const auto known = contexts.find(device);
  if (known != contexts.end()) {
    context = known->second;
    return nullptr;
  }
  int handle = 0;
  if (const char* error = error_of(driver().device_get(&handle, device), "cuDeviceGet")) {
    return error;
  }
  if (const char* error = error_of(driver().primary_retain(&context, handle), "cuDevicePrimaryCtxRetain")) {
    return error;
  }
  contexts[device] = context;
  return nullptr;
}

// Makes a device's context current in this thread, and restores the previous context at the end.
class Current {
 public:
  explicit Current(int device) {
    Context wanted = nullptr;
    Context now = nullptr;
    error_ = primary_context(device, wanted);
    if (error_ == nullptr) {
      error_ = error_of(driver().context_current(&now), "cuCtxGetCurrent");
    }
    if (error_ == nullptr && now != wanted) {
      error_ = error_of(driver().context_push(wanted), "cuCtxPushCurrent");
      pushed_ = error_ == nullptr;
    }
  }
  ~Current() {
    Context popped = nullptr;
    if (pushed_) {
      driver().context_pop(&popped);
    }
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

  const char* error() const { return error_; }

 private:
  const char* error_ = nullptr;
  bool pushed_ = false;
};

}  // namespace

#define ANYACCEL_EXPORT extern "C" __attribute__((visibility("default")))

// Each function returns null, or a message about the error.

ANYACCEL_EXPORT const char* anyaccel_cuda_open() {
  return driver().problem.empty() ? nullptr : driver().problem.c_str();
}

// `image` is a cubin, or PTX that ends with a zero byte; PTX is compiled by the driver. The driver finds the size.
ANYACCEL_EXPORT const char* anyaccel_cuda_load(const void* image, std::size_t, void** library) {
  if (const char* problem = anyaccel_cuda_open()) {
    return problem;
  }
  return error_of(driver().library_load(library, image, nullptr, nullptr, 0, nullptr, nullptr, 0), "cuLibraryLoadData");
}

ANYACCEL_EXPORT const char* anyaccel_cuda_kernel(void* library, const char* symbol, void** kernel) {
  return error_of(driver().library_kernel(kernel, library, symbol), "cuLibraryGetKernel");
}

// Whether anything in the process uses a device already; the query does not initialise it.
ANYACCEL_EXPORT const char* anyaccel_cuda_is_used(std::int32_t device, std::int32_t* is_used) {
  int handle = 0;
  unsigned flags = 0;
  int is_active = 0;
  if (const char* error = error_of(driver().device_get(&handle, device), "cuDeviceGet")) {
    return error;
  }
  const char* const error = error_of(driver().primary_state(handle, &flags, &is_active), "cuDevicePrimaryCtxGetState");
  *is_used = is_active;
  return error;
}

// Loads a kernel on a device now: otherwise the driver would load it at its first launch, which fails during graph
// capture.
ANYACCEL_EXPORT const char* anyaccel_cuda_prepare(void* kernel, std::int32_t device) {
  const Current current(device);
  if (current.error() != nullptr) {
    return current.error();
  }
  void* function = nullptr;
  if (const char* error = error_of(driver().kernel_function(&function, kernel), "cuKernelGetFunction")) {
    return error;
  }
  return driver().function_load == nullptr ? nullptr : error_of(driver().function_load(function), "cuFuncLoad");
}

// Allows a kernel dynamic shared memory beyond the 48 KiB that every device grants by default, of which the kernel's
// own arrays are a part.
ANYACCEL_EXPORT const char* anyaccel_cuda_allow_shared(void* kernel, std::int32_t device, std::int32_t bytes) {
  constexpr int kMaxDynamicSharedBytes = 8;
  int handle = 0;
  if (const char* error = error_of(driver().device_get(&handle, device), "cuDeviceGet")) {
    return error;
  }
  return error_of(driver().kernel_attribute(kMaxDynamicSharedBytes, bytes, kernel, handle), "cuKernelSetAttribute");
}

// Starts a kernel on torch's current stream of a device; `arguments` are pointers to its arguments.
ANYACCEL_EXPORT const char* anyaccel_cuda_launch_grid(void* kernel, std::int32_t device, const std::uint32_t* grid,
                                                      const std::uint32_t* block, std::uint32_t shared_bytes,
                                                      void** arguments) {
  Stream stream = nullptr;
  if (const char* error = anyaccel::current_stream("libtorch_cuda.so", device, stream)) {
    return error;
  }
  const Current current(device);
  if (current.error() != nullptr) {
    return current.error();
  }
  return error_of(driver().launch(kernel, grid[0], grid[1], grid[2], block[0], block[1], block[2], shared_bytes, stream,
                                  arguments, nullptr),
                  "cuLaunchKernel");
}

// The LaunchFunction of device_kernels.h: one argument, passed by value.
ANYACCEL_EXPORT const char* anyaccel_cuda_launch(void* kernel, std::int32_t device, std::int64_t groups,
                                                 std::int32_t threads, std::int32_t groups_of_a_block,
                                                 const void* argument, std::size_t) {
  const std::int64_t blocks = (groups + groups_of_a_block - 1) / groups_of_a_block;
  const std::uint32_t grid[3] = {static_cast<std::uint32_t>(blocks), 1, 1};
  const std::uint32_t block[3] = {static_cast<std::uint32_t>(threads), static_cast<std::uint32_t>(groups_of_a_block),
                                  1};
  void* arguments[1] = {const_cast<void*>(argument)};
  return anyaccel_cuda_launch_grid(kernel, device, grid, block, 0, arguments);
}
static_assert(std::is_same_v<decltype(&anyaccel_cuda_launch), anyaccel::LaunchFunction>);
