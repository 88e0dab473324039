// The hooks that torch's device-independent code calls, and page-locked host memory, which here is any memory from this
// allocator.

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/alloc_cpu.h>

#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <mutex>
#include <utility>

#include "device.h"
#include "generator.h"
#include "memory.h"

namespace simdev {
namespace {

class PinnedAllocator final : public at::HostAllocator {
 public:
  static PinnedAllocator& instance() {
    static auto* const allocator = new PinnedAllocator;  // never destroyed, as tensors may outlive every static object
    return *allocator;
  }

  c10::DataPtr allocate(size_t bytes) override {
    HostMemory memory(c10::alloc_cpu(bytes));  // null if the size is 0
    void* const begin = memory.get();
    const std::scoped_lock lock(mutex_);
    if (memory) blocks_.emplace(begin, Block{std::move(memory), bytes});
    return {begin, begin, &release, c10::Device(c10::kCPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }

  bool holds(const void* address) {
    const std::scoped_lock lock(mutex_);
    const auto after = blocks_.upper_bound(address);
    if (after == blocks_.begin()) return false;
    const auto& [begin, block] = *std::prev(after);
    return std::less<>{}(address, static_cast<const char*>(begin) + block.bytes);
  }

  bool record_event(void*, void*, c10::Stream) override { return true; }  // there is no pending work to wait for
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

 private:
  using Block = DeviceMemory::Block;

  static void release(void* memory) {
    auto& self = instance();
    const std::scoped_lock lock(self.mutex_);
    self.blocks_.erase(memory);
  }

  std::mutex mutex_;
  std::map<const void*, Block, std::less<>> blocks_;
};

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }

  c10::DeviceIndex deviceCount() const override { return kDeviceCount; }
  c10::DeviceIndex getCurrentDevice() const override { return current_device(); }
  void setCurrentDevice(c10::DeviceIndex device) const override { exchange_device(device); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override { return exchange_device(device); }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override { return exchange_device(device); }
  at::Device getDeviceFromPtr(void* memory) const override { return {kType, Allocator::instance().device_of(memory)}; }

  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override { return default_generator(device); }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override { return new_generator(device); }

  at::Allocator* getPinnedMemoryAllocator() const override { return &PinnedAllocator::instance(); }
  bool isPinnedPtr(const void* address) const override { return PinnedAllocator::instance().holds(address); }

  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t bytes) const override {
    const c10::DeviceGuard guard(storage.device());
    at::native::resize_bytes_cpu(storage.unsafeGetStorageImpl(), bytes);
  }
};

[[maybe_unused]] const bool is_registered = [] {
  at::RegisterPrivateUse1HooksInterface(new Hooks);  // torch never releases it
  at::setHostAllocator(kType, &PinnedAllocator::instance());
  return true;
}();

}  // namespace
}  // namespace simdev
