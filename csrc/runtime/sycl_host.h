// What the host code for SYCL devices shares: errors as text, and the start of a kernel.

#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <sycl/ext/oneapi/experimental/raw_kernel_arg.hpp>
#include <sycl/handler.hpp>
#include <sycl/kernel.hpp>
#include <sycl/queue.hpp>

namespace anyaccel {

// Keeps an error's text until the thread's next error.
inline const char* kept(const std::string& text) {
  static thread_local std::string message;
  message = text;
  return message.c_str();
}

// Runs `body`, and returns null or the text of its exception.
template <typename Body>
const char* guarded(const Body& body) {
  try {
    body();
    return nullptr;
  } catch (const std::exception& error) {
    return kept(error.what());
  } catch (...) {
    return kept("an exception of unknown type");
  }
}

// The name that DPC++ gives to a kernel in its code.
inline std::string symbol_of(const char* name) { return std::string("__sycl_kernel_") + name; }

// Starts a kernel whose only argument is given by its bytes.
inline void start(sycl::queue& queue, const sycl::kernel& kernel, std::int64_t groups, std::int32_t threads,
                  const void* argument, std::size_t bytes) {
  const auto local = static_cast<std::size_t>(threads);
  const auto global = static_cast<std::size_t>(groups) * local;
  queue.submit([&](sycl::handler& handler) {
    handler.set_arg(0, sycl::ext::oneapi::experimental::raw_kernel_arg(argument, bytes));
    handler.parallel_for(sycl::nd_range<1>(global, local), kernel);
  });
}

// An argument of a user's kernel: a pointer, or a value given by its bytes.
struct Argument {
  const void* value;
  std::size_t bytes;
  std::int32_t is_pointer;
};

inline void start_grid(sycl::queue& queue, const sycl::kernel& kernel, std::uint64_t groups, std::uint64_t threads,
                       const Argument* arguments, std::int32_t count) {
  queue.submit([&](sycl::handler& handler) {
    for (std::int32_t i = 0; i < count; ++i) {
      if (arguments[i].is_pointer != 0) {
        handler.set_arg(i, *static_cast<char* const*>(arguments[i].value));
      } else {
        handler.set_arg(i, sycl::ext::oneapi::experimental::raw_kernel_arg(arguments[i].value, arguments[i].bytes));
      }
    }
    handler.parallel_for(sycl::nd_range<1>(groups * threads, threads), kernel);
  });
}

}  // namespace anyaccel

#define ANYACCEL_EXPORT extern "C" __attribute__((visibility("default")))
