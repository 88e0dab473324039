// SYCL's runtime: compiles device code from source with DPC++'s run-time compiler, and starts kernels.
//
// CPU tensors run on the OpenCL CPU device, in their own memory; its compiled code can be kept as a binary. XPU
// tensors run on torch's current queue. Built by an ordinary C++ compiler with the headers that pip installs.

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <sycl/backend/opencl.hpp>
#include <sycl/sycl.hpp>
#include <vector>

namespace {

namespace experimental = sycl::ext::oneapi::experimental;
using Bundle = sycl::kernel_bundle<sycl::bundle_state::executable>;

const char* kept(const std::string& text) {
  static thread_local std::string message;
  message = text;
  return message.c_str();
}

// Runs `body`, and returns null or the text of its exception.
template <typename Body>
const char* guarded(const Body& body) {
  try {
    body();
    return nullptr;
  } catch (const std::exception& error) {
    return kept(error.what());
  } catch (...) {
    return kept("an exception of unknown type");
  }
}

std::optional<sycl::device> find_host_device() {
  for (const auto& platform : sycl::platform::get_platforms()) {
    if (platform.get_backend() != sycl::backend::opencl) {
      continue;
    }
    for (const auto& device : platform.get_devices(sycl::info::device_type::cpu)) {
      if (device.has(sycl::aspect::usm_system_allocations)) {
        return device;
      }
    }
  }
  return std::nullopt;
}

// The queue of the CPU device; in order, so that an op's kernels run one after another.
sycl::queue& host_queue() {
  static sycl::queue* const one = [] {
    const auto device = find_host_device();
    if (!device) {
      throw std::runtime_error("no OpenCL CPU device can read ordinary host memory");
    }
    return new sycl::queue(sycl::context(*device), *device, sycl::property::queue::in_order());
  }();
  return *one;
}

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

std::vector<std::string> strings(const char* const* words, std::int32_t count) { return {words, words + count}; }

Bundle compiled(const sycl::queue& queue, const char* source, const char* const* options, std::int32_t option_count,
                std::string& log) {
  auto bundle = experimental::create_kernel_bundle_from_source(queue.get_context(), experimental::source_language::sycl,
                                                               std::string(source));
  return experimental::build(bundle, experimental::properties{
                                         experimental::build_options{strings(options, option_count)},
                                         experimental::save_log{&log},
                                     });
}

void start(sycl::queue& queue, const sycl::kernel& kernel, std::int64_t groups, std::int32_t threads,
           const void* argument, std::size_t bytes) {
  const auto local = static_cast<std::size_t>(threads);
  const auto global = static_cast<std::size_t>(groups) * local;
  queue.submit([&](sycl::handler& handler) {
    handler.set_arg(0, experimental::raw_kernel_arg(argument, bytes));
    handler.parallel_for(sycl::nd_range<1>(global, local), kernel);
  });
}

// An argument of a user's kernel: a pointer, or a value given by its bytes.
struct Argument {
  const void* value;
  std::size_t bytes;
  std::int32_t is_pointer;
};

void start_grid(sycl::queue& queue, const sycl::kernel& kernel, std::uint64_t groups, std::uint64_t threads,
                const Argument* arguments, std::int32_t count) {
  queue.submit([&](sycl::handler& handler) {
    for (std::int32_t i = 0; i < count; ++i) {
      if (arguments[i].is_pointer != 0) {
        handler.set_arg(i, *static_cast<char* const*>(arguments[i].value));
      } else {
        handler.set_arg(i, experimental::raw_kernel_arg(arguments[i].value, arguments[i].bytes));
      }
    }
    handler.parallel_for(sycl::nd_range<1>(groups * threads, threads), kernel);
  });
}

void require(cl_int status, const char* call) {
  if (status != CL_SUCCESS) {
    throw std::runtime_error(std::string(call) + " returned " + std::to_string(status));
  }
}

}  // namespace

#define ANYACCEL_EXPORT extern "C" __attribute__((visibility("default")))

// Each function returns null, or a message about the error.

// Describes the CPU device: its name and its driver's version.
ANYACCEL_EXPORT const char* anyaccel_sycl_describe(char* text, std::size_t bytes) {
  return guarded([&] {
    const sycl::device device = host_queue().get_device();
    const std::string described = device.get_info<sycl::info::device::name>() + ", driver " +
                                  device.get_info<sycl::info::device::driver_version>();
    std::snprintf(text, bytes, "%s", described.c_str());
  });
}

// Compiles for the CPU device. `image` receives a buffer that anyaccel_sycl_free releases.
ANYACCEL_EXPORT const char* anyaccel_sycl_compile(const char* source, const char* const* options,
                                                  std::int32_t option_count, char** image, std::size_t* image_bytes) {
  std::string log;
  const char* const error = guarded([&] {
    const Bundle bundle = compiled(host_queue(), source, options, option_count, log);
    const auto programs = sycl::get_native<sycl::backend::opencl>(bundle);
    if (programs.empty()) {
      throw std::runtime_error(
          "the source has no kernel; expected a function that begins with extern \"C\" "
          "SYCL_EXT_ONEAPI_FUNCTION_PROPERTY((sycl::ext::oneapi::experimental::nd_range_kernel<1>))");
    }
    if (programs.size() != 1) {
      throw std::runtime_error("the compiler produced " + std::to_string(programs.size()) + " programs; expected one");
    }
    require(clGetProgramInfo(programs[0], CL_PROGRAM_BINARY_SIZES, sizeof(*image_bytes), image_bytes, nullptr),
            "clGetProgramInfo");
    auto* const binary = new unsigned char[*image_bytes];
    unsigned char* binaries[1] = {binary};
    *image = reinterpret_cast<char*>(binary);
    require(clGetProgramInfo(programs[0], CL_PROGRAM_BINARIES, sizeof(binaries), binaries, nullptr),
            "clGetProgramInfo");
  });
  return error == nullptr ? nullptr : kept(std::string(error) + "\n" + log);
}

ANYACCEL_EXPORT void anyaccel_sycl_free(char* image) { delete[] reinterpret_cast<unsigned char*>(image); }

// Loads the result of anyaccel_sycl_compile from this process or an earlier one.
ANYACCEL_EXPORT const char* anyaccel_sycl_load(const char* image, std::size_t bytes, void** program) {
  return guarded([&] {
    const cl_context context = sycl::get_native<sycl::backend::opencl>(host_queue().get_context());
    const cl_device_id device = sycl::get_native<sycl::backend::opencl>(host_queue().get_device());
    const auto* binary = reinterpret_cast<const unsigned char*>(image);
    cl_int status = CL_SUCCESS;
    const cl_program made = clCreateProgramWithBinary(context, 1, &device, &bytes, &binary, nullptr, &status);
    require(status, "clCreateProgramWithBinary");
    require(clBuildProgram(made, 1, &device, "", nullptr, nullptr), "clBuildProgram");
    *program = made;
  });
}

ANYACCEL_EXPORT const char* anyaccel_sycl_kernel(void* program, const char* name, void** kernel) {
  return guarded([&] {
    cl_int status = CL_SUCCESS;
    const std::string symbol = std::string("__sycl_kernel_") + name;
    const cl_kernel found = clCreateKernel(static_cast<cl_program>(program), symbol.c_str(), &status);
    require(status, "clCreateKernel");
    *kernel = new sycl::kernel(sycl::make_kernel<sycl::backend::opencl>(found, host_queue().get_context()));
  });
}

// The LaunchFunction of device_kernels.h, for the CPU device; returns after the kernel has finished.
ANYACCEL_EXPORT const char* anyaccel_sycl_launch(void* kernel, std::int32_t, std::int64_t groups, std::int32_t threads,
                                                 const void* argument, std::size_t bytes) {
  return guarded([&] {
    start(host_queue(), *static_cast<sycl::kernel*>(kernel), groups, threads, argument, bytes);
    host_queue().wait_and_throw();
  });
}

ANYACCEL_EXPORT const char* anyaccel_sycl_launch_grid(void* kernel, std::uint64_t groups, std::uint64_t threads,
                                                      const Argument* arguments, std::int32_t count) {
  return guarded([&] {
    start_grid(host_queue(), *static_cast<sycl::kernel*>(kernel), groups, threads, arguments, count);
    host_queue().wait_and_throw();
  });
}

// Compiles for one of torch's XPUs; DPC++'s own cache keeps the result.
ANYACCEL_EXPORT const char* anyaccel_xpu_compile(std::int32_t device, const char* source, const char* const* options,
                                                 std::int32_t option_count, void** bundle) {
  std::string log;
  const char* const error =
      guarded([&] { *bundle = new Bundle(compiled(torchs_queue(device), source, options, option_count, log)); });
  return error == nullptr ? nullptr : kept(std::string(error) + "\n" + log);
}

ANYACCEL_EXPORT const char* anyaccel_xpu_kernel(void* bundle, const char* name, void** kernel) {
  return guarded([&] { *kernel = new sycl::kernel(static_cast<Bundle*>(bundle)->ext_oneapi_get_kernel(name)); });
}

// The LaunchFunction of device_kernels.h, on torch's current queue.
ANYACCEL_EXPORT const char* anyaccel_xpu_launch(void* kernel, std::int32_t device, std::int64_t groups,
                                                std::int32_t threads, const void* argument, std::size_t bytes) {
  return guarded(
      [&] { start(torchs_queue(device), *static_cast<sycl::kernel*>(kernel), groups, threads, argument, bytes); });
}

ANYACCEL_EXPORT const char* anyaccel_xpu_launch_grid(void* kernel, std::int32_t device, std::uint64_t groups,
                                                     std::uint64_t threads, const Argument* arguments,
                                                     std::int32_t count) {
  return guarded([&] {
    start_grid(torchs_queue(device), *static_cast<sycl::kernel*>(kernel), groups, threads, arguments, count);
  });
}
