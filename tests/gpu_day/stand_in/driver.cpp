// NVIDIA's driver for the pretended GPU: the functions that csrc/runtime/cuda.cpp, torch and Triton call.
// Kernels are found, loaded and launched; they do nothing.

#include <cuda.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include "device.h"

using namespace stand_in;

namespace {

struct Context {
} the_context;
thread_local std::vector<CUcontext> contexts;  // of the thread; the last is current

CUcontext primary() { return reinterpret_cast<CUcontext>(&the_context); }

struct Kernel {
  std::string symbol;
  bool is_loaded = false;
};

struct Library {
  std::map<std::string, Kernel> kernels;
};

CUresult start(Kernel& kernel, CUstream stream) {
  if (is_capturing(stream) && !kernel.is_loaded) {
    std::fprintf(stderr, "stand-in: %s was not loaded before a capture\n", kernel.symbol.c_str());
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  kernel.is_loaded = true;
  submit(stream, [] {});
  return CUDA_SUCCESS;
}

}  // namespace

STAND_IN_EXPORT CUresult cuInit(unsigned) { return use() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED; }

// NVRTC asks a driver for tables of its own, and calls them unless they are refused.
STAND_IN_EXPORT CUresult cuGetExportTable(const void** table, const CUuuid*) {
  *table = nullptr;
  return CUDA_ERROR_NOT_FOUND;
}

STAND_IN_EXPORT CUresult cuDriverGetVersion(int* version) {
  *version = kVersion;
  return CUDA_SUCCESS;
}

STAND_IN_EXPORT CUresult cuGetErrorName(CUresult status, const char** name) {
  *name = status == CUDA_ERROR_INVALID_PTX ? "CUDA_ERROR_INVALID_PTX"
          : status == CUDA_ERROR_NOT_FOUND ? "CUDA_ERROR_NOT_FOUND"
                                           : "CUDA_ERROR_OF_THE_STAND_IN";
  return CUDA_SUCCESS;
}

STAND_IN_EXPORT CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "an error of the stand-in";
  return CUDA_SUCCESS;
}

// The device

STAND_IN_EXPORT CUresult cuDeviceGetCount(int* count) {
  *count = 1;
  return CUDA_SUCCESS;
}

STAND_IN_EXPORT CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  *device = ordinal;
  return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

STAND_IN_EXPORT CUresult cuDeviceGetName(char* name, int bytes, CUdevice) {
  std::snprintf(name, bytes, "%s", kName);
  return CUDA_SUCCESS;
}

STAND_IN_EXPORT CUresult cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice) {
  *bytes = kMemoryBytes;
  return CUDA_SUCCESS;
}

STAND_IN_EXPORT CUresult cuDeviceGetUuid_v2(CUuuid* id, CUdevice) {
  std::memset(id, 1, sizeof(*id));
  return CUDA_SUCCESS;
}

STAND_IN_EXPORT CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice) {
  static const std::map<int, int> values = {
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, kMajor},
      {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, kMinor},
      {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, kUnits},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kThreadsPerBlock},
      {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, kThreadsPerUnit},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, kSharedBytes},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, kMostSharedBytes},
      {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, kMostSharedBytes + 1024},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
      {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
      {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
      {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1000000},
      {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 1000000},
      {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 5120},
      {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, kCacheBytes},
      {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
  };
  const auto found = values.find(attribute);
  *value = found == values.end() ? 0 : found->second;
  return CUDA_SUCCESS;
}

// Contexts

STAND_IN_EXPORT CUresult cuDevicePrimaryCtxGetState(CUdevice, unsigned* flags, int* is_active) {
  *flags = 0;
  *is_active = is_used();
  return CUDA_SUCCESS;
}

STAND_IN_EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) {
  *context = primary();
  return use() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

STAND_IN_EXPORT CUresult cuDevicePrimaryCtxRelease_v2(CUdevice) { return CUDA_SUCCESS; }

STAND_IN_EXPORT CUresult cuCtxGetCurrent(CUcontext* context) {
  *context = contexts.empty() ? (is_used() ? primary() : nullptr) : contexts.back();
  return CUDA_SUCCESS;
}

STAND_IN_EXPORT CUresult cuCtxSetCurrent(CUcontext context) {
  contexts.assign(1, context);
  return CUDA_SUCCESS;
}

STAND_IN_EXPORT CUresult cuCtxPushCurrent_v2(CUcontext context) {
  contexts.push_back(context);
  return CUDA_SUCCESS;
}

STAND_IN_EXPORT CUresult cuCtxPopCurrent_v2(CUcontext* context) {
  if (contexts.empty()) {
    return CUDA_ERROR_INVALID_CONTEXT;
  }
  *context = contexts.back();
  contexts.pop_back();
  return CUDA_SUCCESS;
}

STAND_IN_EXPORT CUresult cuCtxGetDevice(CUdevice* device) {
  *device = 0;
  return CUDA_SUCCESS;
}

STAND_IN_EXPORT CUresult cuCtxSynchronize() {
  return cudaDeviceSynchronize() == cudaSuccess ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

STAND_IN_EXPORT CUresult cuStreamSynchronize(CUstream stream) {
  return cudaStreamSynchronize(stream) == cudaSuccess ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

// Memory

STAND_IN_EXPORT CUresult cuPointerGetAttribute(void* value, CUpointer_attribute attribute, CUdeviceptr address) {
  const void* begin = nullptr;
  const Block* const block = block_of(reinterpret_cast<const void*>(address), begin);
  if (block == nullptr) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  switch (attribute) {
    case CU_POINTER_ATTRIBUTE_DEVICE_POINTER:
      *static_cast<CUdeviceptr*>(value) = address;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
      *static_cast<unsigned*>(value) = block->kind == Kind::device ? CU_MEMORYTYPE_DEVICE : CU_MEMORYTYPE_HOST;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_START_ADDR:
      *static_cast<CUdeviceptr*>(value) = reinterpret_cast<CUdeviceptr>(begin);
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_RANGE_SIZE:
      *static_cast<std::size_t*>(value) = block->bytes;
      return CUDA_SUCCESS;
    case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
      *static_cast<int*>(value) = 0;
      return CUDA_SUCCESS;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
}

// Code: a library of ours, or a module of Triton's, is a set of kernels by symbol

STAND_IN_EXPORT CUresult cuLibraryLoadData(CUlibrary* library, const void* image, CUjit_option*, void**, unsigned,
                                           CUlibraryOption*, void**, unsigned) {
  const bool is_machine_code = std::memcmp(image, "\177ELF", 4) == 0;
  if (!is_machine_code && std::strstr(static_cast<const char*>(image), ".version") == nullptr) {  // PTX is text
    return CUDA_ERROR_INVALID_PTX;
  }
  *library = reinterpret_cast<CUlibrary>(new Library);
  return CUDA_SUCCESS;
}

STAND_IN_EXPORT CUresult cuLibraryUnload(CUlibrary library) {
  delete reinterpret_cast<Library*>(library);
  return CUDA_SUCCESS;
}

STAND_IN_EXPORT CUresult cuLibraryGetKernel(CUkernel* found, CUlibrary library, const char* name) {
  Kernel& kernel = reinterpret_cast<Library*>(library)->kernels[name];
  if (kernel.symbol.empty()) {
    kernel.symbol = name;
  }
  *found = reinterpret_cast<CUkernel>(&kernel);
  return CUDA_SUCCESS;
}

STAND_IN_EXPORT CUresult cuKernelGetFunction(CUfunction* function, CUkernel kernel) {
  *function = reinterpret_cast<CUfunction>(kernel);
  return CUDA_SUCCESS;
}

STAND_IN_EXPORT CUresult cuKernelSetAttribute(CUfunction_attribute, int, CUkernel, CUdevice) { return CUDA_SUCCESS; }

STAND_IN_EXPORT CUresult cuFuncLoad(CUfunction function) {
  reinterpret_cast<Kernel*>(function)->is_loaded = true;
  return CUDA_SUCCESS;
}

STAND_IN_EXPORT CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  return cuLibraryLoadData(reinterpret_cast<CUlibrary*>(module), image, nullptr, nullptr, 0, nullptr, nullptr, 0);
}

// torch.compile loads its kernels from files.
STAND_IN_EXPORT CUresult cuModuleLoad(CUmodule* module, const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return CUDA_ERROR_FILE_NOT_FOUND;
  }
  const std::string image{std::istreambuf_iterator<char>(file), {}};
  return cuModuleLoadData(module, image.c_str());
}

STAND_IN_EXPORT CUresult cuModuleUnload(CUmodule module) {
  return cuLibraryUnload(reinterpret_cast<CUlibrary>(module));
}

STAND_IN_EXPORT CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name) {
  CUkernel kernel = nullptr;
  const CUresult result = cuLibraryGetKernel(&kernel, reinterpret_cast<CUlibrary>(module), name);
  *function = reinterpret_cast<CUfunction>(kernel);
  reinterpret_cast<Kernel*>(kernel)->is_loaded = true;
  return result;
}

STAND_IN_EXPORT CUresult cuFuncGetAttribute(int* value, CUfunction_attribute attribute, CUfunction) {
  *value = attribute == CU_FUNC_ATTRIBUTE_NUM_REGS                ? 32
           : attribute == CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK ? kThreadsPerBlock
                                                                  : 0;
  return CUDA_SUCCESS;
}

STAND_IN_EXPORT CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }
STAND_IN_EXPORT CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache) { return CUDA_SUCCESS; }

STAND_IN_EXPORT CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction, const CUlaunchConfig*) {
  *clusters = 1;
  return CUDA_SUCCESS;
}

STAND_IN_EXPORT CUresult cuLaunchKernel(CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                                        unsigned, CUstream stream, void**, void**) {
  return start(*reinterpret_cast<Kernel*>(function), stream);
}

STAND_IN_EXPORT CUresult cuLaunchKernelEx(const CUlaunchConfig* all, CUfunction function, void**, void**) {
  return start(*reinterpret_cast<Kernel*>(function), all->hStream);
}
