// An object of which each process has one. A forked child gets a new one.

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
