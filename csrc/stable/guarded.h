// Boxed kernels whose errors reach Python whichever C++ library they were built with.
//
// A binary built by pip's ziglang has its own C++ library, and torch's C++ library cannot catch an exception thrown
// there: the process would abort. So the exception is caught in the binary, and torch throws its own exception with the
// same text.

#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/library.h>

#include <cstdint>
#include <cstdio>
#include <exception>

namespace anyaccel {

using BoxedKernel = void (*)(StableIValue*, std::uint64_t, std::uint64_t);

inline constexpr std::size_t kMessageBytes = 2048;

// Not inlined: the frame that torch's exception passes through must have nothing to destroy.
template <BoxedKernel Kernel>
__attribute__((noinline)) const char* error_of(StableIValue* stack, std::uint64_t inputs,
                                               std::uint64_t outputs) noexcept {
  static thread_local char message[kMessageBytes];
  try {
    Kernel(stack, inputs, outputs);
    return nullptr;
  } catch (const std::exception& error) {
    std::snprintf(message, kMessageBytes, "%s", error.what());
  } catch (...) {
    std::snprintf(message, kMessageBytes, "an exception of unknown type");
  }
  return message;
}

template <BoxedKernel Kernel>
void guarded(StableIValue* stack, std::uint64_t inputs, std::uint64_t outputs) {
  const char* const error = error_of<Kernel>(stack, inputs, outputs);
  if (error != nullptr) {
    aoti_torch_check(false, __func__, "guarded.h", __LINE__, error);
  }
}

}  // namespace anyaccel
