// The one background thread of a process: it drives groups whose operations nobody waits for.

#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "group.h"

namespace anyaccel::comm {

class Progress {
 public:
  static Progress& instance();

  // Drives a group until it has nothing pending.
  void attend(const GroupPtr& group);
  // Looks again at groups that a waiting thread has driven meanwhile.
  void nudge();

 private:
  void run();
  bool advance(std::vector<GroupPtr>& idle);
  void sleep();

  std::mutex mutex_;
  std::vector<GroupPtr> attended_;
  std::vector<GroupPtr> driven_;  // the thread's own copy
  bool is_running_ = false;
  Doorbell bell_{};
};

}  // namespace anyaccel::comm
