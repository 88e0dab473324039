// CUDA's runtime for the pretended GPU: the functions that torch calls. Others are generated; each says its name and
// fails.

#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <string>

#include "device.h"

using namespace stand_in;

namespace {

thread_local cudaError_t last_error = cudaSuccess;

cudaError_t checked(bool is_good, cudaError_t otherwise) {
  if (!is_good) {
    last_error = otherwise;
  }
  return is_good ? cudaSuccess : otherwise;
}

// Device variables, by the address of the host's: memory that is made at its first use.
struct Variable {
  std::size_t bytes = 0;
  void* memory = nullptr;
};

std::map<const void*, Variable>& variables() {
  static auto* const one = new std::map<const void*, Variable>;
  return *one;
}

void* variable(const void* host) {
  Variable& found = variables()[host];
  if (found.memory == nullptr && found.bytes != 0) {
    found.memory = allocate(found.bytes, Kind::device);
  }
  return found.memory;
}

struct Configuration {
  dim3 grid;
  dim3 block;
  std::size_t shared = 0;
  cudaStream_t stream = nullptr;
};
thread_local Configuration configuration;

// One of torch's kernels, whose machine code nothing here can run.
cudaError_t launch(cudaStream_t stream) {
  submit(stream, [] {});
  return cudaSuccess;
}

cudaError_t copy(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  submit(stream, [=] { std::memmove(to, from, bytes); });
  return cudaSuccess;
}

}  // namespace

// The device

STAND_IN_EXPORT cudaError_t cudaGetDeviceCount(int* count) {
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  *count = visible == nullptr || std::strcmp(visible, "0") == 0 ? 1 : 0;
  return !use() ? checked(false, cudaErrorInitializationError) : checked(*count == 1, cudaErrorNoDevice);
}

STAND_IN_EXPORT cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return checked(use(), cudaErrorInitializationError);
}

STAND_IN_EXPORT cudaError_t cudaSetDevice(int device) {
  return device != 0 ? checked(false, cudaErrorInvalidDevice) : checked(use(), cudaErrorInitializationError);
}

STAND_IN_EXPORT cudaError_t cudaGetDeviceProperties(cudaDeviceProp* all, int) {
  *all = cudaDeviceProp{};
  std::snprintf(all->name, sizeof(all->name), "%s", kName);
  all->major = kMajor;
  all->minor = kMinor;
  all->multiProcessorCount = kUnits;
  all->totalGlobalMem = kMemoryBytes;
  all->warpSize = 32;
  all->regsPerBlock = all->regsPerMultiprocessor = 65536;
  all->sharedMemPerBlock = kSharedBytes;
  all->sharedMemPerBlockOptin = kMostSharedBytes;
  all->sharedMemPerMultiprocessor = kMostSharedBytes + 1024;
  all->maxThreadsPerBlock = kThreadsPerBlock;
  all->maxThreadsPerMultiProcessor = kThreadsPerUnit;
  all->maxThreadsDim[0] = all->maxThreadsDim[1] = 1024;
  all->maxThreadsDim[2] = 64;
  all->maxGridSize[0] = 0x7fffffff;
  all->maxGridSize[1] = all->maxGridSize[2] = 65535;
  all->l2CacheSize = kCacheBytes;
  all->textureAlignment = 512;
  all->memoryBusWidth = 5120;
  all->unifiedAddressing = 1;
  return cudaSuccess;
}

STAND_IN_EXPORT cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  static auto* const query =
      reinterpret_cast<int (*)(int*, int, int)>(dlsym(dlopen("libcuda.so.1", RTLD_NOW), "cuDeviceGetAttribute"));
  return checked(query != nullptr && query(value, attribute, device) == 0, cudaErrorInvalidValue);  // the same numbers
}

STAND_IN_EXPORT cudaError_t cudaDeviceGetPCIBusId(char* text, int bytes, int) {
  std::snprintf(text, bytes, "0000:00:00.0");
  return cudaSuccess;
}

STAND_IN_EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

STAND_IN_EXPORT cudaError_t cudaDriverGetVersion(int* version) {
  *version = kVersion;
  return cudaSuccess;
}

STAND_IN_EXPORT cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = kVersion;
  return cudaSuccess;
}

STAND_IN_EXPORT cudaError_t cudaDeviceSynchronize() {
  return checked(may_wait_for_all(), cudaErrorStreamCaptureUnsupported);
}

STAND_IN_EXPORT cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned,
                                                             unsigned long long,
                                                             cudaDriverEntryPointQueryResult* result) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  for (const char* suffix : {"_v2", ""}) {
    *function = driver == nullptr ? nullptr : dlsym(driver, (std::string(symbol) + suffix).c_str());
    if (*function != nullptr) {
      break;
    }
  }
  if (*function == nullptr) {  // torch looks up all that it may ever call
    *function = reinterpret_cast<void*>(+[] { return static_cast<int>(cudaErrorNotSupported); });
  }
  if (result != nullptr) {
    *result = cudaDriverEntryPointSuccess;
  }
  return cudaSuccess;
}

// Errors

STAND_IN_EXPORT const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaSuccess ? "cudaSuccess" : "cudaErrorOfTheStandIn";
}

STAND_IN_EXPORT const char* cudaGetErrorString(cudaError_t error) {
  static thread_local char text[64];
  std::snprintf(text, sizeof(text), "the stand-in's error %d", static_cast<int>(error));
  return text;
}

STAND_IN_EXPORT cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}

STAND_IN_EXPORT cudaError_t cudaPeekAtLastError() { return last_error; }

// Memory

STAND_IN_EXPORT cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  *memory = bytes == 0 ? nullptr : allocate(bytes, Kind::device);
  return checked(use() && (bytes == 0 || *memory != nullptr), cudaErrorMemoryAllocation);
}

STAND_IN_EXPORT cudaError_t cudaFree(void* memory) {
  return checked(memory == nullptr || release(memory, Kind::device), cudaErrorInvalidValue);
}

STAND_IN_EXPORT cudaError_t cudaHostAlloc(void** memory, std::size_t bytes, unsigned) {
  *memory = allocate(bytes, Kind::pinned);
  return checked(*memory != nullptr, cudaErrorMemoryAllocation);
}

STAND_IN_EXPORT cudaError_t cudaFreeHost(void* memory) {
  return checked(memory == nullptr || release(memory, Kind::pinned), cudaErrorInvalidValue);
}

STAND_IN_EXPORT cudaError_t cudaHostRegister(void* memory, std::size_t bytes, unsigned) {
  return checked(add_registered(memory, bytes), cudaErrorHostMemoryAlreadyRegistered);
}

STAND_IN_EXPORT cudaError_t cudaHostUnregister(void* memory) {
  return checked(release(memory, Kind::registered), cudaErrorHostMemoryNotRegistered);
}

STAND_IN_EXPORT cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *free = free_bytes();
  *total = kMemoryBytes;
  return cudaSuccess;
}

STAND_IN_EXPORT cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* found, const void* address) {
  const void* begin = nullptr;
  const Block* const block = block_of(address, begin);
  *found = cudaPointerAttributes{};
  found->type = block == nullptr              ? cudaMemoryTypeUnregistered
                : block->kind == Kind::device ? cudaMemoryTypeDevice
                                              : cudaMemoryTypeHost;
  found->devicePointer = block == nullptr ? nullptr : const_cast<void*>(address);
  found->hostPointer = block == nullptr || block->kind == Kind::device ? nullptr : const_cast<void*>(address);
  return cudaSuccess;
}

STAND_IN_EXPORT cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind,
                                            cudaStream_t stream) {
  return copy(to, from, bytes, stream);
}

STAND_IN_EXPORT cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  return may_wait_for_all() ? copy(to, from, bytes, nullptr) : checked(false, cudaErrorStreamCaptureUnsupported);
}

STAND_IN_EXPORT cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, std::size_t bytes,
                                                cudaStream_t stream) {
  return copy(to, from, bytes, stream);
}

STAND_IN_EXPORT cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t stream) {
  submit(stream, [=] { std::memset(memory, value, bytes); });
  return cudaSuccess;
}

STAND_IN_EXPORT cudaError_t cudaMemset(void* memory, int value, std::size_t bytes) {
  return cudaMemsetAsync(memory, value, bytes, nullptr);
}

STAND_IN_EXPORT cudaError_t cudaGetSymbolAddress(void** memory, const void* symbol) {
  *memory = variable(symbol);
  return checked(*memory != nullptr, cudaErrorInvalidSymbol);
}

STAND_IN_EXPORT cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, std::size_t bytes,
                                               std::size_t offset, cudaMemcpyKind) {
  void* const to = variable(symbol);
  return to == nullptr ? checked(false, cudaErrorInvalidSymbol)
                       : copy(static_cast<char*>(to) + offset, from, bytes, nullptr);
}

// Streams and events, whose work is done as soon as it is submitted

STAND_IN_EXPORT cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return cudaStreamCreateWithPriority(stream, 0, 0);
}

STAND_IN_EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return checked(may_wait(stream), cudaErrorStreamCaptureUnsupported);
}

STAND_IN_EXPORT cudaError_t cudaStreamQuery(cudaStream_t stream) { return cudaStreamSynchronize(stream); }

STAND_IN_EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  wait_event(stream, event);
  return cudaSuccess;
}

STAND_IN_EXPORT cudaError_t cudaStreamAddCallback(cudaStream_t stream, cudaStreamCallback_t call, void* data,
                                                  unsigned) {
  submit(stream, [=] { call(stream, cudaSuccess, data); });
  return cudaSuccess;
}

STAND_IN_EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t call, void* data) {
  submit(stream, [=] { call(data); });
  return cudaSuccess;
}

STAND_IN_EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  static thread_local cudaStreamCaptureMode current = cudaStreamCaptureModeGlobal;
  std::swap(*mode, current);
  return cudaSuccess;
}

STAND_IN_EXPORT cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, 0); }

STAND_IN_EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  record_event(stream, event);
  return cudaSuccess;
}

STAND_IN_EXPORT cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
  return cudaEventRecord(event, stream);
}

STAND_IN_EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return checked(cudaEventQuery(event) == cudaSuccess, cudaErrorCapturedEvent);
}

STAND_IN_EXPORT cudaError_t cudaProfilerStart() { return cudaSuccess; }
STAND_IN_EXPORT cudaError_t cudaProfilerStop() { return cudaSuccess; }

// Kernels

STAND_IN_EXPORT cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, std::size_t, cudaStream_t stream) {
  return launch(stream);
}

STAND_IN_EXPORT cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, std::size_t, cudaStream_t stream) {
  return launch(stream);
}

STAND_IN_EXPORT cudaError_t cudaLaunchCooperativeKernel(const void*, dim3, dim3, void**, std::size_t,
                                                        cudaStream_t stream) {
  return launch(stream);
}

STAND_IN_EXPORT cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* all, const void*, void**) {
  return launch(all->stream);
}

STAND_IN_EXPORT cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = static_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}

STAND_IN_EXPORT cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* found, const void*) {
  *found = cudaFuncAttributes{};
  found->maxThreadsPerBlock = kThreadsPerBlock;
  found->numRegs = 32;
  found->binaryVersion = found->ptxVersion = 10 * kMajor + kMinor;
  found->maxDynamicSharedSizeBytes = kMostSharedBytes;
  return cudaSuccess;
}

STAND_IN_EXPORT cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }

STAND_IN_EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void*,
                                                                                   int threads, std::size_t, unsigned) {
  *blocks = kThreadsPerUnit / threads;
  return cudaSuccess;
}

STAND_IN_EXPORT cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int threads,
                                                                          std::size_t shared) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(blocks, kernel, threads, shared, 0);
}

// What nvcc makes every program call

STAND_IN_EXPORT unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, std::size_t shared, cudaStream_t stream) {
  configuration = {grid, block, shared, stream};
  return 0;
}

STAND_IN_EXPORT cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, std::size_t* shared, void* stream) {
  *grid = configuration.grid;
  *block = configuration.block;
  *shared = configuration.shared;
  *static_cast<cudaStream_t*>(stream) = configuration.stream;
  return cudaSuccess;
}

STAND_IN_EXPORT void** __cudaRegisterFatBinary(void* binary) { return new void*(binary); }
STAND_IN_EXPORT void __cudaRegisterFatBinaryEnd(void**) {}
STAND_IN_EXPORT void __cudaUnregisterFatBinary(void** binary) { delete binary; }
STAND_IN_EXPORT char __cudaInitModule(void**) { return 1; }
STAND_IN_EXPORT void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*, dim3*,
                                            int*) {}
STAND_IN_EXPORT void __cudaRegisterVar(void**, char* host, char*, const char*, int, std::size_t bytes, int, int) {
  variables()[host].bytes = bytes;
}
