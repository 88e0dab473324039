// The one object of a kind that a process has, and a forked child anew.

#pragma once

#include <pthread.h>

#include <atomic>

namespace anyaccel::comm {

// Never destroyed: threads may use it until the process ends.
template <typename T>
T& process_wide() {
  static std::atomic<T*> current{nullptr};
  static const bool is_made = [] {
    current = new T;
    return pthread_atfork(nullptr, nullptr, [] { current = new T; }) == 0;
  }();
  (void)is_made;
  return *current;
}

}  // namespace anyaccel::comm
