// A pretended GPU: its memory is the host's, and its streams run everything at once, in the caller's thread.
//
// Memory operations, host callbacks and products of matrices are real. A kernel does nothing. A graph holds the
// operations of its capture, and a replay runs them.

#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <string>

#define STAND_IN_EXPORT extern "C" __attribute__((visibility("default")))

namespace stand_in {

constexpr int kMajor = 9;  // the compute capability of an H100
constexpr int kMinor = 0;
constexpr int kVersion = 13000;  // of the driver and of the runtime
constexpr int kUnits = 4;
constexpr int kThreadsPerUnit = 2048;
constexpr int kThreadsPerBlock = 1024;
constexpr int kSharedBytes = 48 * 1024;
constexpr int kMostSharedBytes = 227 * 1024;
constexpr int kCacheBytes = 4 << 20;
constexpr std::size_t kMemoryBytes = std::size_t{64} << 30;  // the host's, which has less, as it is touched
// Where no kernel counts, sizes that depend on values are what was in memory: without a limit, the system kills the
// process.
constexpr std::size_t kMostBytesAtOnce = std::size_t{2} << 30;
constexpr char kName[] = "stand-in for an NVIDIA GPU";

enum class Kind { device, pinned, registered };

struct Block {
  std::size_t bytes = 0;
  Kind kind = Kind::device;
};

// Whether the device may be used: not in a child that was forked after its first use, as with NVIDIA's driver.
__attribute__((visibility("default"))) bool use();
__attribute__((visibility("default"))) bool is_used();

// Memory that is zero at first; null where the device has no more.
__attribute__((visibility("default"))) void* allocate(std::size_t bytes, Kind kind);
bool release(void* memory, Kind kind);
bool add_registered(void* memory, std::size_t bytes);
std::size_t free_bytes();
// The block that holds an address, and in `begin` where it begins; null where there is none.
__attribute__((visibility("default"))) const Block* block_of(const void* address, const void*& begin);

// Runs work, or, where the stream is part of a capture, records it.
__attribute__((visibility("default"))) void submit(cudaStream_t stream, std::function<void()> work);
__attribute__((visibility("default"))) bool is_capturing(cudaStream_t stream);
// Whether the host may wait for the stream (or, for any, the device); waiting ends a capture, as with NVIDIA's driver.
bool may_wait(cudaStream_t stream);
bool may_wait_for_all();

void wait_event(cudaStream_t stream, cudaEvent_t event);
void record_event(cudaStream_t stream, cudaEvent_t event);

}  // namespace stand_in
