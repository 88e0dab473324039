// The threads that complete futures: what users hang on them may block, and must not hold up any group.
//
// Completing a future runs its callbacks. Those of one group run one after the other, in the order of its operations,
// so that operations that they issue come in one order on every rank. What a callback issues itself has a lane of its
// own, in which futures complete while the callback waits for them. A callback that waits for anything else is
// overtaken by those behind it.

#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <ctime>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace anyaccel::comm {

class Callbacks {
 public:
  // A callback that runs, and what is known of it to operations that it issues.
  struct Running {
    int depth = 0;
    std::atomic<int> operations{0};  // that it has issued and that have not ended
    clockid_t processor_time{};      // of its thread
    std::int64_t spent = -1;         // processor time when it was last looked at
    std::chrono::steady_clock::time_point looked_at;
    bool is_overtaken = false;
  };
  using RunningPtr = std::shared_ptr<Running>;

  static Callbacks& instance();

  // The callback that this thread runs; null outside of one.
  static const RunningPtr& running_here();

  // Runs a callback on one of the threads, after those added to the same lane before: that of a group, for operations
  // that were issued outside of callbacks, in callbacks, in callbacks of those, and so on.
  void add(const void* group, const RunningPtr& issuer, std::function<void()> callback);

  // Whether a lane has nothing to do: whatever came before has run.
  bool is_idle(const void* group, const RunningPtr& issuer);

 private:
  struct Lane {
    std::deque<std::function<void()>> waiting;
    RunningPtr running;
  };
  using Key = std::pair<const void*, int>;
  using Lanes = std::map<Key, Lane>;

  void run();
  void run_next(Lanes::iterator lane, std::unique_lock<std::mutex>& lock);
  void look_for_stuck();
  bool anyone_waits() const;
  void require_spare_thread();

  std::mutex mutex_;
  std::condition_variable changed_;
  Lanes lanes_;  // that have something to do
  int spare_ = 0;
};

}  // namespace anyaccel::comm
