#include "progress.h"

#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "process_wide.h"

namespace anyaccel::comm {
namespace {

constexpr int kSpins = 50;
constexpr std::size_t kMostFutexes = 128;  // of one futex_waitv
constexpr std::chrono::microseconds kWithoutWaitv{500};

struct Waiter {  // struct futex_waitv of Linux 5.16
  std::uint64_t value;
  std::uint64_t address;
  std::uint32_t flags;
  std::uint32_t reserved;
};
constexpr long kSysFutexWaitv = 449;
constexpr std::uint32_t kFutex32 = 2;

}  // namespace

Progress& Progress::instance() { return process_wide<Progress>(); }

void Progress::attend(const GroupPtr& group) {
  {
    const std::lock_guard lock(mutex_);
    if (std::find(attended_.begin(), attended_.end(), group) == attended_.end()) attended_.push_back(group);
    if (!is_running_) {
      is_running_ = true;
      std::thread([this] { run(); }).detach();
    }
  }
  nudge();
}

void Progress::nudge() { bell_.ring(); }

void Progress::run() {
  pthread_setname_np(pthread_self(), "anyaccel-shm");
  int idle_turns = 0;
  for (;;) {
    std::vector<GroupPtr> idle;
    idle_turns = advance(idle) ? 0 : idle_turns + 1;
    idle.clear();  // the last reference to a group may go here, outside of the lock
    if (idle_turns > kSpins) sleep();
  }
}

// Advances every group that nobody else drives, and lets go of those with nothing to do.
bool Progress::advance(std::vector<GroupPtr>& idle) {
  {
    const std::lock_guard lock(mutex_);
    const auto is_done = [](const GroupPtr& group) { return !group->has_pending(); };
    std::copy_if(attended_.begin(), attended_.end(), std::back_inserter(idle), is_done);
    attended_.erase(std::remove_if(attended_.begin(), attended_.end(), is_done), attended_.end());
    driven_ = attended_;
  }
  bool moved = false;
  for (const GroupPtr& group : driven_) {
    if (!group->is_driven_in_foreground() && group->progress()) moved = true;
    group->supervise();
  }
  return moved;
}

void Progress::sleep() {
  struct Announced {
    Doorbell* bell;
    std::uint32_t heard;
  };
  std::vector<Announced> bells{{&bell_, bell_.announce()}};
  bool moved = false;
  {
    std::vector<GroupPtr> idle;
    moved = advance(idle);
  }
  for (const GroupPtr& group : driven_) {
    if (group->is_driven_in_foreground() || bells.size() == kMostFutexes) continue;
    bells.push_back({&group->bell(), group->bell().announce()});
    moved |= group->progress(true);
  }
  if (!moved) {
    std::vector<Waiter> waiters;
    for (const Announced& one : bells) {
      waiters.push_back({one.heard, reinterpret_cast<std::uint64_t>(one.bell->word()), kFutex32, 0});
    }
    const bool is_complete = bells.size() < kMostFutexes;
    timespec until = {};
    clock_gettime(CLOCK_MONOTONIC, &until);
    const auto at_most = is_complete ? std::chrono::nanoseconds(kSupervision) : std::chrono::nanoseconds(kWithoutWaitv);
    until = to_timespec(std::chrono::seconds(until.tv_sec) + std::chrono::nanoseconds(until.tv_nsec) + at_most);
    if (driven_.empty()) {
      bell_.sleep(bells[0].heard, std::chrono::hours(1));
    } else if (syscall(kSysFutexWaitv, waiters.data(), waiters.size(), 0, &until, CLOCK_MONOTONIC) < 0 &&
               errno != EAGAIN && errno != EINTR &&
               errno != ETIMEDOUT) {  // an older kernel, or a filter of system calls
      bells.back().bell->sleep(bells.back().heard, kWithoutWaitv);
    }
  }
  for (const Announced& one : bells) one.bell->leave();
}

}  // namespace anyaccel::comm
