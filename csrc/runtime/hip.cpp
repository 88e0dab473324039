// HIP's runtime for AMD GPUs: loads code objects and starts kernels through libamdhip64, which ROCm builds of torch
// include, and which it opens on first use.
//
// The build needs no HIP header and no HIP library. A module belongs to one device, so code is loaded on a device when
// one of its kernels is first prepared or started there. The stream is torch's current stream, queried from the library
// that torch has loaded; a launch during graph capture is captured.

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <type_traits>
#include <utility>

#include "device_kernels.h"
#include "opened_library.h"

namespace {

using Status = int;  // hipError_t
using Module = void*;
using Function = void*;
using Stream = void*;

struct Hip {
  const char* (*error_name)(Status) = nullptr;
  const char* (*error_string)(Status) = nullptr;
  Status (*get_device)(int*) = nullptr;
  Status (*set_device)(int) = nullptr;
  Status (*module_load)(Module*, const void*) = nullptr;
  Status (*module_function)(Function*, Module, const char*) = nullptr;
  Status (*launch)(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream, void**,
                   void**) = nullptr;
  std::string problem;
};

// Opens the library that torch uses, by any of its names, or else one that the system finds.
void* opened_library() {
  constexpr const char* kNames[] = {"libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6"};
  for (const int flags : {RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD, RTLD_NOW | RTLD_LOCAL}) {
    for (const char* name : kNames) {
      if (void* const library = dlopen(name, flags)) {
        return library;
      }
    }
  }
  return nullptr;
}

Hip opened() {
  Hip hip;
  void* const library = opened_library();
  if (library == nullptr) {
    hip.problem = std::string("no HIP runtime: ") + dlerror();
    return hip;
  }
  const auto need = [&](const char* name, auto& function) { anyaccel::find(library, name, function, hip.problem, ""); };
  need("hipGetErrorName", hip.error_name);
  need("hipGetErrorString", hip.error_string);
  need("hipGetDevice", hip.get_device);
  need("hipSetDevice", hip.set_device);
  need("hipModuleLoadData", hip.module_load);
  need("hipModuleGetFunction", hip.module_function);
  need("hipModuleLaunchKernel", hip.launch);
  return hip;
}

const Hip& hip() {
  static const Hip one = opened();
  return one;
}

const char* error_of(Status status, const char* call) {
  if (status == 0) {
    return nullptr;
  }
  return anyaccel::kept_error(call, status, hip().error_name(status), hip().error_string(status));
}

// Makes a device the thread's current one, and restores the one before.
class Current {
 public:
  explicit Current(int device) {
    error_ = error_of(hip().get_device(&before_), "hipGetDevice");
    if (error_ == nullptr && before_ != device) {
      error_ = error_of(hip().set_device(device), "hipSetDevice");
      is_changed_ = error_ == nullptr;
    }
  }
  ~Current() {
    if (is_changed_) {
      hip().set_device(before_);
    }
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

  const char* error() const { return error_; }

 private:
  const char* error_ = nullptr;
  int before_ = 0;
  bool is_changed_ = false;
};

// A code object, and its module on each device.
struct Code {
  std::string image;
  std::mutex mutex;
  std::map<int, Module> modules;
};

struct Kernel {
  Code* code;
  std::string symbol;
  std::mutex mutex;
  std::map<int, Function> functions;
};

// The device must be the current device.
const char* module_on(Code& code, int device, Module& module) {
  const std::lock_guard lock(code.mutex);
  const auto known = code.modules.find(device);
  if (known != code.modules.end()) {
    module = known->second;
    return nullptr;
  }
  if (const char* error = error_of(hip().module_load(&module, code.image.data()), "hipModuleLoadData")) {
    return error;
  }
  code.modules[device] = module;
  return nullptr;
}

const char* function_on(Kernel& kernel, int device, Function& function) {
  const std::lock_guard lock(kernel.mutex);
  const auto known = kernel.functions.find(device);
  if (known != kernel.functions.end()) {
    function = known->second;
    return nullptr;
  }
  Module module = nullptr;
  if (const char* error = module_on(*kernel.code, device, module)) {
    return error;
  }
  if (const char* error =
          error_of(hip().module_function(&function, module, kernel.symbol.c_str()), "hipModuleGetFunction")) {
    return error;
  }
  kernel.functions[device] = function;
  return nullptr;
}

// No block is smaller than the widest wave: its lanes would wait for lanes that do not exist.
constexpr std::int32_t kSmallestBlock = 64;

// A grid's threads are counted in 32 bits. Kernels share their work among however many groups there are.
std::uint32_t groups_of(std::int64_t groups, std::int32_t threads) {
  return static_cast<std::uint32_t>(
      std::min<std::int64_t>(groups, std::numeric_limits<std::uint32_t>::max() / threads));
}

}  // namespace

#define ANYACCEL_EXPORT extern "C" __attribute__((visibility("default")))

// Each function returns null, or a message about the error.

ANYACCEL_EXPORT const char* anyaccel_hip_open() { return hip().problem.empty() ? nullptr : hip().problem.c_str(); }

// Copies a code object; it is loaded on a device when a kernel is prepared or started there.
ANYACCEL_EXPORT const char* anyaccel_hip_load(const void* image, std::size_t bytes, void** code) {
  if (const char* problem = anyaccel_hip_open()) {
    return problem;
  }
  *code = new Code{std::string(static_cast<const char*>(image), bytes), {}, {}};
  return nullptr;
}

ANYACCEL_EXPORT const char* anyaccel_hip_kernel(void* code, const char* symbol, void** kernel) {
  *kernel = new Kernel{static_cast<Code*>(code), symbol, {}, {}};
  return nullptr;
}

// Loads a kernel on a device now: loading fails during graph capture.
ANYACCEL_EXPORT const char* anyaccel_hip_prepare(void* kernel, std::int32_t device) {
  const Current current(device);
  if (current.error() != nullptr) {
    return current.error();
  }
  Function function = nullptr;
  return function_on(*static_cast<Kernel*>(kernel), device, function);
}

// The LaunchFunction of device_kernels.h: one argument, passed by value, on torch's current stream of a device.
ANYACCEL_EXPORT const char* anyaccel_hip_launch(void* kernel, std::int32_t device, std::int64_t groups,
                                                std::int32_t threads, std::int32_t, const void* argument, std::size_t) {
  Stream stream = nullptr;
  if (const char* error = anyaccel::current_stream("libtorch_hip.so", device, stream)) {
    return error;
  }
  const Current current(device);
  if (current.error() != nullptr) {
    return current.error();
  }
  Function function = nullptr;
  if (const char* error = function_on(*static_cast<Kernel*>(kernel), device, function)) {
    return error;
  }
  const std::int32_t block = std::max(threads, kSmallestBlock);
  void* arguments[1] = {const_cast<void*>(argument)};
  return error_of(hip().launch(function, groups_of(groups, block), 1, 1, static_cast<unsigned>(block), 1, 1, 0, stream,
                               arguments, nullptr),
                  "hipModuleLaunchKernel");
}
static_assert(std::is_same_v<decltype(&anyaccel_hip_launch), anyaccel::LaunchFunction>);
