// The simulated devices of this process: the current device, and the streams of each.
#pragma once

#include <c10/core/Device.h>
#include <c10/core/Stream.h>

namespace simdev {

inline constexpr c10::DeviceType kType = c10::DeviceType::PrivateUse1;
inline constexpr c10::DeviceIndex kDeviceCount = 2;

/// Throws unless a device with this index exists; -1 stands for the current device.
c10::DeviceIndex checked(c10::DeviceIndex index);

c10::DeviceIndex current_device() noexcept;
void set_current_device(c10::DeviceIndex index) noexcept;  // for this thread; the caller has checked the index
c10::DeviceIndex exchange_device(c10::DeviceIndex index);

c10::Stream default_stream(c10::DeviceIndex index);
c10::Stream current_stream(c10::DeviceIndex index);
c10::Stream new_stream(c10::DeviceIndex index);
c10::Stream exchange_stream(c10::Stream stream);  // for this thread, on the stream's device

}  // namespace simdev
