#include "generator.h"

#include <ATen/CPUGeneratorImpl.h>

#include <array>
#include <utility>

namespace simdev {

GeneratorImpl::GeneratorImpl(c10::DeviceIndex device, at::Generator host)
    : c10::GeneratorImpl(c10::Device(kType, device), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
      host_(std::move(host)) {}

at::Generator new_generator(c10::DeviceIndex device) {
  return at::make_generator<GeneratorImpl>(checked(device), at::detail::createCPUGenerator());
}

const at::Generator& default_generator(c10::DeviceIndex device) {
  static const auto* const generators = [] {  // never destroyed, as Python objects for them may outlive this library
    auto* const made = new std::array<at::Generator, kDeviceCount>;
    for (c10::DeviceIndex index = 0; index < kDeviceCount; ++index) {
      made->at(index) = new_generator(index);
      made->at(index).seed();
    }
    return made;
  }();
  return generators->at(checked(device));
}

}  // namespace simdev
