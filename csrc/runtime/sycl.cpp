// SYCL for CPU tensors: compiles device code from source with DPC++'s run-time compiler, and starts kernels.
//
// They run on the OpenCL CPU device, in their own memory. Its compiled code can be kept as a binary, and the SPIR-V
// that it was compiled from is what xpu.cpp loads. Built by an ordinary C++ compiler with the headers that pip
// installs.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <sycl/backend.hpp>
#include <sycl/backend/opencl.hpp>
#include <sycl/kernel_bundle.hpp>
#include <sycl/properties/queue_properties.hpp>
#include <type_traits>
#include <vector>

#include "device_kernels.h"
#include "sycl_host.h"

namespace {

using anyaccel::guarded;
using anyaccel::kept;
namespace experimental = sycl::ext::oneapi::experimental;
using Bundle = sycl::kernel_bundle<sycl::bundle_state::executable>;

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

void require(cl_int status, const char* call) {
  if (status != CL_SUCCESS) {
    throw std::runtime_error(std::string(call) + " returned " + std::to_string(status));
  }
}

char* binary_of(cl_program program, std::size_t& bytes) {
  require(clGetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof(bytes), &bytes, nullptr), "clGetProgramInfo");
  auto binary = std::make_unique<char[]>(bytes);
  char* binaries[1] = {binary.get()};
  require(clGetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof(binaries), binaries, nullptr), "clGetProgramInfo");
  return binary.release();
}

char* spirv_of(cl_program program, std::size_t& bytes) {
  require(clGetProgramInfo(program, CL_PROGRAM_IL, 0, nullptr, &bytes), "clGetProgramInfo");
  if (bytes == 0) {
    throw std::runtime_error(
        "error: DPC++ took the code from its own cache, which has no SPIR-V; set SYCL_CACHE_PERSISTENT=0");
  }
  auto spirv = std::make_unique<char[]>(bytes);
  require(clGetProgramInfo(program, CL_PROGRAM_IL, bytes, spirv.get(), nullptr), "clGetProgramInfo");
  return spirv.release();
}

}  // namespace

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

// Compiles for the CPU device, or to SPIR-V. `image` receives a buffer that anyaccel_sycl_free releases.
ANYACCEL_EXPORT const char* anyaccel_sycl_compile(const char* source, const char* const* options,
                                                  std::int32_t option_count, std::int32_t is_spirv, char** image,
                                                  std::size_t* image_bytes) {
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
    *image = is_spirv != 0 ? spirv_of(programs[0], *image_bytes) : binary_of(programs[0], *image_bytes);
  });
  return error == nullptr ? nullptr : kept(std::string(error) + "\n" + log);
}

ANYACCEL_EXPORT void anyaccel_sycl_free(char* image) { delete[] image; }

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
    const cl_kernel found =
        clCreateKernel(static_cast<cl_program>(program), anyaccel::symbol_of(name).c_str(), &status);
    require(status, "clCreateKernel");
    *kernel = new sycl::kernel(sycl::make_kernel<sycl::backend::opencl>(found, host_queue().get_context()));
  });
}

// The LaunchFunction of device_kernels.h, for the CPU device; returns after the kernel has finished.
ANYACCEL_EXPORT const char* anyaccel_sycl_launch(void* kernel, std::int32_t, std::int64_t groups, std::int32_t threads,
                                                 std::int32_t, const void* argument, std::size_t bytes) {
  return guarded([&] {
    anyaccel::start(host_queue(), *static_cast<sycl::kernel*>(kernel), groups, threads, argument, bytes);
    host_queue().wait_and_throw();
  });
}
static_assert(std::is_same_v<decltype(&anyaccel_sycl_launch), anyaccel::LaunchFunction>);

ANYACCEL_EXPORT const char* anyaccel_sycl_launch_grid(void* kernel, std::uint64_t groups, std::uint64_t threads,
                                                      const anyaccel::Argument* arguments, std::int32_t count) {
  return guarded([&] {
    anyaccel::start_grid(host_queue(), *static_cast<sycl::kernel*>(kernel), groups, threads, arguments, count);
    host_queue().wait_and_throw();
  });
}
