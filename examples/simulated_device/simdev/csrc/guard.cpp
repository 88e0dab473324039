// The interface of a device's runtime to c10. Work is finished when the call that started it returns, so an event is a
// point in time, and nothing ever waits.

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <chrono>

#include "device.h"

namespace simdev {
namespace {

using Clock = std::chrono::steady_clock;

struct Event {
  bool is_timed;
  Clock::time_point recorded_at;
};

class DeviceGuardImpl final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override { return kType; }
  c10::DeviceIndex deviceCount() const noexcept override { return kDeviceCount; }

  c10::Device getDevice() const override { return {kType, current_device()}; }
  void setDevice(c10::Device device) const override { exchange_device(device.index()); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { set_current_device(device.index()); }
  c10::Device exchangeDevice(c10::Device device) const override { return {kType, exchange_device(device.index())}; }
  void synchronizeDevice(c10::DeviceIndex index) const override { checked(index); }
  c10::DeviceCapability getDeviceCapability(c10::Device) const override { return {}; }

  c10::Stream getStream(c10::Device device) const override { return current_stream(device.index()); }
  c10::Stream getDefaultStream(c10::Device device) const override { return default_stream(device.index()); }
  c10::Stream getNewStream(c10::Device device, int) const override { return new_stream(device.index()); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return new_stream(device.index()); }
  c10::Stream exchangeStream(c10::Stream stream) const override { return exchange_stream(stream); }
  bool queryStream(const c10::Stream&) const override { return true; }
  void synchronizeStream(const c10::Stream&) const override {}

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex device, c10::EventFlag flag) const override {
    TORCH_CHECK(device == -1 || device == stream.device_index(), "recording an event of device ",
                static_cast<int>(device), " failed: got ", stream, "; expected a stream of that device.");
    if (*event == nullptr) {
      *event = new Event{flag == c10::EventFlag::BACKEND_DEFAULT, {}};  // torch owns it until destroyEvent
    }
    static_cast<Event*>(*event)->recorded_at = Clock::now();
  }

  void destroyEvent(void* event, c10::DeviceIndex) const noexcept override { delete static_cast<Event*>(event); }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}

  double elapsedTime(void* start, void* end, c10::DeviceIndex) const override {
    const auto* const from = static_cast<Event*>(start);
    const auto* const to = static_cast<Event*>(end);
    TORCH_CHECK(from != nullptr && to != nullptr && from->is_timed && to->is_timed,
                "elapsed_time failed: an event has no time. Fix: record both events, with enable_timing=True.");
    return std::chrono::duration<double, std::milli>(to->recorded_at - from->recorded_at).count();
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, DeviceGuardImpl)

}  // namespace
}  // namespace simdev
