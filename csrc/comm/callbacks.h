// The thread that completes futures: what users hang on them may block, and must not hold up any group.

#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>

namespace anyaccel::comm {

class Callbacks {
 public:
  static Callbacks& instance();

  // Calls it on the thread, in the order of these calls; the thread is started when it is first needed.
  void add(std::function<void()> callback);

 private:
  void run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> queue_;
  bool is_running_ = false;
};

}  // namespace anyaccel::comm
