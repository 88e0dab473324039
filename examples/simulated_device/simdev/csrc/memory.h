// Memory of the simulated devices: host memory, counted per device, and kept for reuse until the cache is emptied.
#pragma once

#include <c10/core/CachingDeviceAllocator.h>

#include <array>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "device.h"

namespace simdev {

struct HostMemoryDeleter {
  void operator()(void* memory) const noexcept;
};
using HostMemory = std::unique_ptr<void, HostMemoryDeleter>;

/// One device's memory; the allocator, which owns all of them, holds the lock.
class DeviceMemory {
 public:
  static constexpr size_t kTotalBytes = size_t{1} << 30;

  struct Block {
    HostMemory memory;
    size_t bytes = 0;
  };

  Block take(size_t bytes);
  void put_back(Block block);
  void empty_cache();
  size_t reserved_bytes() const;

  c10::CachingDeviceAllocator::DeviceStats stats;

 private:
  HostMemory cached(size_t bytes);
  void make_room(size_t bytes);

  std::unordered_map<size_t, std::vector<HostMemory>> cache_;  // by size
};

class Allocator final : public c10::DeviceAllocator {
 public:
  static Allocator& instance();

  c10::DataPtr allocate(size_t bytes) override;
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, size_t bytes) const override;

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t pool = {0, 0}) override;
  void recordStream(const c10::DataPtr&, c10::Stream) override {}  // work on a stream has always finished
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override;
  void resetAccumulatedStats(c10::DeviceIndex device) override;
  void resetPeakStats(c10::DeviceIndex device) override;
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override;

  c10::DeviceIndex device_of(const void* memory);

 private:
  struct Allocation {
    c10::DeviceIndex device;
    DeviceMemory::Block block;
  };

  static void release(void* memory);

  std::mutex mutex_;
  std::array<DeviceMemory, kDeviceCount> devices_;
  std::unordered_map<const void*, Allocation> allocations_;
};

}  // namespace simdev
