// What the runtimes of CUDA and HIP share: a vendor's library that is opened at run time, and torch's current stream.

#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <string>

namespace anyaccel {

// Keeps an error's text until the thread's next error.
inline const char* kept(const std::string& text) {
  static thread_local char message[1024];
  std::snprintf(message, sizeof(message), "%s", text.c_str());
  return message;
}

// The text of a call's error; a vendor may have no name or no explanation for it.
inline const char* kept_error(const char* call, int status, const char* name, const char* explanation) {
  return kept(std::string(call) + ": " + (name ? name : "error " + std::to_string(status)) + ", " +
              (explanation ? explanation : "no explanation from the driver"));
}

// Looks up a function; `problem` keeps the name of the first that is missing, with the text `missing`.
template <typename Function>
void find(void* library, const char* name, Function& function, std::string& problem, const char* missing) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function == nullptr && problem.empty()) {
    problem = std::string("the driver has no ") + name + missing;
  }
}

// Reads torch's current stream of a device from its library `torch`, such as libtorch_cuda.so, if it is loaded.
inline const char* current_stream(const char* torch, std::int32_t device, void*& stream) {
  using GetStream = std::int32_t (*)(std::int32_t, void**);
  static const GetStream get = [torch] {
    void* const library = dlopen(torch, RTLD_LAZY | RTLD_NOLOAD);
    void* const found = library == nullptr ? nullptr : dlsym(library, "aoti_torch_get_current_cuda_stream");
    return reinterpret_cast<GetStream>(found);
  }();
  if (get == nullptr) {
    return kept(std::string("no ") + torch + " with a current stream is loaded in this process");
  }
  return get(device, &stream) == 0 ? nullptr : kept("torch did not return its current stream");
}

}  // namespace anyaccel
