#include "callbacks.h"

#include <pthread.h>

#include <thread>

#include "process_wide.h"

namespace anyaccel::comm {
Callbacks& Callbacks::instance() { return process_wide<Callbacks>(); }

void Callbacks::add(std::function<void()> callback) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(callback));
  if (!is_running_) {
    is_running_ = true;
    std::thread([this] { run(); }).detach();
  }
  changed_.notify_one();
}

void Callbacks::run() {
  pthread_setname_np(pthread_self(), "anyaccel-future");
  for (;;) {
    std::function<void()> next;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !queue_.empty(); });
      next = std::move(queue_.front());
      queue_.pop_front();
    }
    next();
  }
}

}  // namespace anyaccel::comm
