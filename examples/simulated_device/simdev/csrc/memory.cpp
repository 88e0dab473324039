#include "memory.h"

#include <c10/core/impl/alloc_cpu.h>

#include <cstring>
#include <initializer_list>
#include <new>
#include <utility>

namespace simdev {
namespace {

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingDeviceAllocator::DeviceStats;

constexpr size_t kGranularity = 512;

void increase(std::initializer_list<StatArray*> stats, size_t amount) {
  for (auto* stat : stats) stat->front().increase(amount);  // the first is the total of all pools; there are no others
}

void decrease(std::initializer_list<StatArray*> stats, size_t amount) {
  for (auto* stat : stats) stat->front().decrease(amount);
}

void reset(DeviceStats& stats, void (Stat::*how)()) {
  for (auto* array : {&stats.allocation, &stats.segment, &stats.active, &stats.allocated_bytes, &stats.reserved_bytes,
                      &stats.active_bytes, &stats.requested_bytes}) {
    (array->front().*how)();
  }
}

}  // namespace

void HostMemoryDeleter::operator()(void* memory) const noexcept { c10::free_cpu(memory); }

size_t DeviceMemory::reserved_bytes() const { return static_cast<size_t>(stats.reserved_bytes.front().current); }

DeviceMemory::Block DeviceMemory::take(size_t bytes) {
  const size_t rounded = (bytes + kGranularity - 1) / kGranularity * kGranularity;
  auto memory = cached(rounded);
  if (!memory) {
    make_room(rounded);
    memory.reset(c10::alloc_cpu(rounded));
    increase({&stats.segment}, 1);
    increase({&stats.reserved_bytes}, rounded);
    ++stats.num_device_alloc;
  }
  increase({&stats.allocation, &stats.active}, 1);
  increase({&stats.allocated_bytes, &stats.active_bytes, &stats.requested_bytes}, rounded);
  return {std::move(memory), rounded};
}

void DeviceMemory::put_back(Block block) {
  decrease({&stats.allocation, &stats.active}, 1);
  decrease({&stats.allocated_bytes, &stats.active_bytes, &stats.requested_bytes}, block.bytes);
  try {
    cache_[block.bytes].push_back(std::move(block.memory));
  } catch (const std::bad_alloc&) {  // the block is returned to the host; a deleter must not throw
    decrease({&stats.segment}, 1);
    decrease({&stats.reserved_bytes}, block.bytes);
  }
}

HostMemory DeviceMemory::cached(size_t bytes) {
  const auto found = cache_.find(bytes);
  if (found == cache_.end() || found->second.empty()) return nullptr;
  auto memory = std::move(found->second.back());
  found->second.pop_back();
  return memory;
}

void DeviceMemory::make_room(size_t bytes) {
  if (bytes <= kTotalBytes - reserved_bytes()) return;
  ++stats.num_alloc_retries;
  empty_cache();
  if (bytes <= kTotalBytes - reserved_bytes()) return;
  ++stats.num_ooms;
  TORCH_CHECK_WITH(OutOfMemoryError, false, "allocating on a simdev device failed: got a request for ", bytes,
                   " bytes; expected at most the ", kTotalBytes - reserved_bytes(), " free bytes of ", kTotalBytes,
                   ". Fix: free tensors, or use smaller tensors.");
}

void DeviceMemory::empty_cache() {
  for (auto& [bytes, memories] : cache_) {
    decrease({&stats.segment}, memories.size());
    decrease({&stats.reserved_bytes}, memories.size() * bytes);
    stats.num_device_free += static_cast<int64_t>(memories.size());
  }
  cache_.clear();
}

Allocator& Allocator::instance() {
  static auto* const allocator = new Allocator;  // never destroyed, as tensors may outlive every static object
  return *allocator;
}

c10::DataPtr Allocator::allocate(size_t bytes) {
  const auto device = current_device();
  if (bytes == 0) return {nullptr, nullptr, &release, c10::Device(kType, device)};
  const std::scoped_lock lock(mutex_);
  auto block = devices_.at(device).take(bytes);
  void* const memory = block.memory.get();
  auto& allocation = allocations_[memory];  // before the block moves, so that its owner keeps it if this throws
  allocation = Allocation{device, std::move(block)};
  return {memory, memory, &release, c10::Device(kType, device)};
}

void Allocator::release(void* memory) {
  if (memory == nullptr) return;
  auto& self = instance();
  const std::scoped_lock lock(self.mutex_);
  auto allocation = self.allocations_.extract(memory);
  self.devices_.at(allocation.mapped().device).put_back(std::move(allocation.mapped().block));
}

c10::DeleterFnPtr Allocator::raw_deleter() const { return &release; }

void Allocator::copy_data(void* to, const void* from, size_t bytes) const { std::memcpy(to, from, bytes); }

void Allocator::emptyCache(c10::MempoolId_t) {
  const std::scoped_lock lock(mutex_);
  for (auto& device : devices_) device.empty_cache();
}

DeviceStats Allocator::getDeviceStats(c10::DeviceIndex device) {
  const std::scoped_lock lock(mutex_);
  return devices_.at(checked(device)).stats;
}

void Allocator::resetAccumulatedStats(c10::DeviceIndex device) {
  const std::scoped_lock lock(mutex_);
  reset(devices_.at(checked(device)).stats, &Stat::reset_accumulated);
}

void Allocator::resetPeakStats(c10::DeviceIndex device) {
  const std::scoped_lock lock(mutex_);
  reset(devices_.at(checked(device)).stats, &Stat::reset_peak);
}

std::pair<size_t, size_t> Allocator::getMemoryInfo(c10::DeviceIndex device) {
  const std::scoped_lock lock(mutex_);
  return {DeviceMemory::kTotalBytes - devices_.at(checked(device)).reserved_bytes(), DeviceMemory::kTotalBytes};
}

c10::DeviceIndex Allocator::device_of(const void* memory) {
  const std::scoped_lock lock(mutex_);
  const auto found = allocations_.find(memory);
  TORCH_CHECK(found != allocations_.end(), "finding the device of ", memory,
              " failed: this is not the start of a storage on a simdev device.");
  return found->second.device;
}

REGISTER_ALLOCATOR(kType, &Allocator::instance())

}  // namespace simdev
