// The background threads of a process. They drive groups whose operations nobody waits for, and free the memory of
// idle groups. One thread serves as many groups as the kernel lets it wait for at a time.

#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "group.h"

namespace anyaccel::comm {

class Progress {
 public:
  static Progress& instance();

  // Drives a group until it has nothing pending. Throws a CommError if the process may have no thread for that.
  void attend(const GroupPtr& group);
  // Returns whether this is one of these threads: while it runs a callback, it drives nothing.
  static bool is_this_thread();
  // Checks groups again that a waiting thread has driven in the meantime.
  void nudge();
  // Calls give_back() of a group regularly, until there is nothing left to free. Throws like attend().
  void sweep(const GroupPtr& group);

 private:
  // A thread, started when it is first needed.
  class Driver {
   public:
    bool attends(const GroupPtr& group);
    bool attend(const GroupPtr& group);  // returns false if it cannot wait for more groups
    void sweep(const GroupPtr& group);
    void nudge() { bell_.ring(); }

   private:
    void start();
    void run();
    bool advance(std::vector<GroupPtr>& idle);
    void sleep();
    void sweep_all();
    bool has_to_sweep();

    std::mutex mutex_;
    std::vector<GroupPtr> attended_;
    std::vector<GroupPtr> driven_;  // the thread's own copy
    std::vector<std::weak_ptr<Group>> swept_;
    Clock::time_point next_sweep_{};
    bool is_running_ = false;
    Doorbell bell_{};
  };

  std::mutex mutex_;
  std::vector<std::unique_ptr<Driver>> drivers_;
};

}  // namespace anyaccel::comm
