// HIP's runtime for AMD's GPUs: loads code objects and starts kernels through libamdhip64, which ROCm's torch brings
// and which is opened when it is first used.
//
// No HIP header and no HIP library is needed to build this. A module belongs to one device, so code is loaded on a
// device when a kernel of it is prepared or started there for the first time. The stream is torch's current one, asked
// of the library that torch has already loaded; a launch inside a graph's capture is captured.

#include <dlfcn.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <map>
#include <mutex>
#include <string>
#include <utility>

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
  Status (*module_unload)(Module) = nullptr;
  Status (*module_function)(Function*, Module, const char*) = nullptr;
  Status (*launch)(Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream, void**,
                   void**) = nullptr;
  std::string problem;
};

// Where an error's text stays until the thread's next error.
const char* kept(const std::string& text) {
  static thread_local char message[1024];
  std::snprintf(message, sizeof(message), "%s", text.c_str());
  return message;
}

// The library that torch uses, under the names that it has had, or else one that the system finds.
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

template <typename Call>
void find(void* library, const char* name, Call& call, std::string& problem) {
  call = reinterpret_cast<Call>(dlsym(library, name));
  if (call == nullptr && problem.empty()) {
    problem = std::string("a libamdhip64 without ") + name;
  }
}

Hip opened() {
  Hip hip;
  void* const library = opened_library();
  if (library == nullptr) {
    hip.problem = std::string("no HIP runtime: ") + dlerror();
    return hip;
  }
  find(library, "hipGetErrorName", hip.error_name, hip.problem);
  find(library, "hipGetErrorString", hip.error_string, hip.problem);
  find(library, "hipGetDevice", hip.get_device, hip.problem);
  find(library, "hipSetDevice", hip.set_device, hip.problem);
  find(library, "hipModuleLoadData", hip.module_load, hip.problem);
  find(library, "hipModuleUnload", hip.module_unload, hip.problem);
  find(library, "hipModuleGetFunction", hip.module_function, hip.problem);
  find(library, "hipModuleLaunchKernel", hip.launch, hip.problem);
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
  const char* const name = hip().error_name(status);
  const char* const text = hip().error_string(status);
  return kept(std::string(call) + ": " + (name ? name : "error " + std::to_string(status)) + ", " +
              (text ? text : "which the runtime does not explain"));
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

// A code object, and what became of it on each device.
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

// The device must be the current one.
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

const char* current_stream(int device, Stream& stream) {
  using GetStream = std::int32_t (*)(std::int32_t, void**);
  static const GetStream get = [] {
    void* const torch = dlopen("libtorch_hip.so", RTLD_LAZY | RTLD_NOLOAD);
    return torch == nullptr ? nullptr : reinterpret_cast<GetStream>(dlsym(torch, "aoti_torch_get_current_cuda_stream"));
  }();
  if (get == nullptr) {
    return kept("no libtorch_hip.so in the process that tells its current stream");
  }
  return get(device, &stream) == 0 ? nullptr : kept("torch did not tell its current stream");
}

// No block is smaller than the widest wave, whose lanes would wait for ones that are not there.
constexpr std::int32_t kSmallestBlock = 64;

// A grid's threads are counted in 32 bits; what the groups work on is shared by as many as there are.
std::uint32_t groups_of(std::int64_t groups, std::int32_t threads) {
  return static_cast<std::uint32_t>(
      std::min<std::int64_t>(groups, std::numeric_limits<std::uint32_t>::max() / threads));
}

}  // namespace

#define ANYACCEL_EXPORT extern "C" __attribute__((visibility("default")))

// Each function returns null, or what went wrong.

ANYACCEL_EXPORT const char* anyaccel_hip_open() { return hip().problem.empty() ? nullptr : hip().problem.c_str(); }

// Takes a copy of a code object, which is loaded where its kernels are prepared or started.
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

// Loads a kernel on a device now: a graph's capture refuses to load.
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
                                                std::int32_t threads, const void* argument, std::size_t) {
  Stream stream = nullptr;
  if (const char* error = current_stream(device, stream)) {
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
