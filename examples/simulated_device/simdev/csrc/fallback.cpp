// Every op without its own kernel: it runs on the host, with copies of its tensors.

#include <ATen/native/CPUFallback.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include <algorithm>
#include <mutex>
#include <optional>

#include "generator.h"

namespace simdev {
namespace {

/// Calls a function with every tensor among an op's arguments, except indices, which may be on the host.
template <typename Function>
void for_each_tensor(at::ArrayRef<c10::IValue> arguments, Function function) {
  for (const auto& argument : arguments) {
    if (argument.isTensor() && argument.toTensor().defined()) {
      function(argument.toTensor());
    } else if (argument.isTensorList()) {
      for (const at::Tensor& tensor : argument.toTensorList()) {
        if (tensor.defined()) function(tensor);
      }
    }
  }
}

/// The device that an op runs on: that of its tensors or, if it creates a tensor from nothing, the one that it names.
c10::Device device_of(const c10::OperatorHandle& op, at::ArrayRef<c10::IValue> arguments) {
  std::optional<c10::Device> device;
  for_each_tensor(arguments, [&](const at::Tensor& tensor) {
    if (!device && tensor.is_privateuseone()) device = tensor.device();
  });
  for_each_tensor(arguments, [&](const at::Tensor& tensor) {
    const bool is_scalar_of_host = tensor.is_cpu() && tensor.dim() == 0;
    TORCH_CHECK(!device || tensor.device() == *device || is_scalar_of_host, op.operator_name(),
                " failed: got tensors on ", *device, " and ", tensor.device(),
                "; expected all tensors to be on the same device. Fix: move them with tensor.to(device).");
  });
  return device.value_or(c10::Device(kType, current_device()));
}

/// Replaces an op's generator by the host's; without a generator, uses that of the device's default generator.
/// Returns the device's generator, whose lock the caller must hold.
std::optional<at::Generator> give_generator(const c10::OperatorHandle& op, c10::Device device,
                                            torch::jit::Stack* stack) {
  const auto& parameters = op.schema().arguments();
  const auto is_generator = [](const c10::Argument& parameter) {
    return parameter.type()->isSubtypeOf(*c10::OptionalType::create(c10::GeneratorType::get()));
  };
  const auto found = std::find_if(parameters.begin(), parameters.end(), is_generator);
  if (found == parameters.end()) return std::nullopt;
  auto& given = *(stack->end() - (parameters.end() - found));
  auto generator = given.isNone() ? default_generator(device.index()) : given.toGenerator();
  TORCH_CHECK(generator.device() == device, op.operator_name(), " failed: got a generator of ", generator.device(),
              "; expected one of ", device, ".");
  given = generator.get<GeneratorImpl>()->host();
  return generator;
}

void run_on_host(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const auto device = device_of(op, torch::jit::last(*stack, op.schema().arguments().size()));
  const c10::DeviceGuard guard(device);
  auto generator = give_generator(op, device, stack);
  std::unique_lock<std::mutex> lock;
  if (generator) lock = std::unique_lock(generator->mutex());
  at::native::cpu_fallback(op, stack, /*error_on_views=*/true);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_host>());
}

}  // namespace
}  // namespace simdev
