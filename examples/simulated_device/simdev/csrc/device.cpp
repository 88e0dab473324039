#include "device.h"

#include <c10/util/Exception.h>

#include <array>
#include <atomic>
#include <utility>

namespace simdev {
namespace {

thread_local c10::DeviceIndex this_device = 0;
thread_local std::array<c10::StreamId, kDeviceCount> this_stream{};  // 0 is the default stream
std::atomic<c10::StreamId> last_stream{0};

c10::Stream stream_of(c10::DeviceIndex index, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, c10::Device(kType, index), id);
}

}  // namespace

c10::DeviceIndex checked(c10::DeviceIndex index) {
  TORCH_CHECK_INDEX(index >= -1 && index < kDeviceCount, "finding the simdev device failed: got index ",
                    static_cast<int>(index), "; expected one below ", static_cast<int>(kDeviceCount),
                    ". Fix: pass a smaller index.");
  return index == -1 ? this_device : index;
}

c10::DeviceIndex current_device() noexcept { return this_device; }

void set_current_device(c10::DeviceIndex index) noexcept { this_device = index; }

c10::DeviceIndex exchange_device(c10::DeviceIndex index) { return std::exchange(this_device, checked(index)); }

c10::Stream default_stream(c10::DeviceIndex index) { return stream_of(checked(index), 0); }

c10::Stream current_stream(c10::DeviceIndex index) {
  const auto device = checked(index);
  return stream_of(device, this_stream.at(device));
}

c10::Stream new_stream(c10::DeviceIndex index) { return stream_of(checked(index), ++last_stream); }

c10::Stream exchange_stream(c10::Stream stream) {
  const auto device = checked(stream.device_index());
  return stream_of(device, std::exchange(this_stream.at(device), stream.id()));
}

}  // namespace simdev
