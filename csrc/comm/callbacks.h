// The threads that complete futures. Users' callbacks may block, and must not delay any group.
//
// Completing a future runs its callbacks. Callbacks of one group run one at a time, in the order of its operations, so
// the operations that they issue have the same order on every rank. Operations that a callback issues use a separate
// lane, so their futures can complete while the callback waits for them. If a callback waits for anything else, later
// callbacks overtake it.

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
  // A running callback, as seen by the operations that it issues.
  struct Running {
    int depth = 0;
    std::atomic<int> operations{0};  // issued by it and not finished
    clockid_t processor_time{};      // the clock of its thread
    std::int64_t spent = -1;         // processor time at the last check
    std::chrono::steady_clock::time_point looked_at;
    bool is_overtaken = false;
  };
  using RunningPtr = std::shared_ptr<Running>;

  static Callbacks& instance();

  // Returns the callback that this thread is running, or null.
  static const RunningPtr& running_here();

  // Runs a callback on one of the threads, after the earlier ones of its lane. A group has one lane for operations
  // issued outside of callbacks, one for those issued in callbacks, one for those issued in their callbacks, and so on.
  // Whoever adds one calls run_left_over() afterwards, when the operation counts as finished and no lock is held.
  void add(const void* group, const RunningPtr& issuer, std::function<void()> callback);

  // Starts the first thread, which stays. Throws a CommError if the process may have none.
  void require_thread();

  // Returns whether the process could start no thread when one was last needed.
  bool lacks_thread() const { return lacks_thread_.load(std::memory_order_acquire); }

  // In a process that may have no more threads, runs the callbacks that no thread will run. Never waits.
  // Returns whether some still have to wait for others: it is to be called again, soon.
  bool run_left_over();

  // The same, and waits for a while: for who goes on to wait for a future, and can run nothing any more.
  void wait_for_left_over();

  // Returns whether all callbacks of a lane have run.
  bool is_idle(const void* group, const RunningPtr& issuer);

  // Waits until all callbacks have run. Gives up after some time.
  void finish(std::chrono::milliseconds patience);

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
  void start();
  Lanes::iterator next_ready();

  std::mutex mutex_;
  std::condition_variable changed_;
  Lanes lanes_;  // lanes with work
  int spare_ = 0;
  std::atomic<bool> is_started_ = false;
  std::atomic<bool> lacks_thread_ = false;
};

}  // namespace anyaccel::comm
