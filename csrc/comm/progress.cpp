#include "progress.h"

#include <pthread.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "callbacks.h"
#include "exit_gate.h"
#include "process_wide.h"
#include "start_thread.h"

namespace anyaccel::comm {
namespace {

constexpr int kDriverSpins = 50;
constexpr std::size_t kMostFutexes = 128;  // the kernel's limit for one futex_waitv
constexpr std::chrono::microseconds kWithoutWaitv{500};
constexpr std::chrono::seconds kSweep{1};

struct Waiter {  // struct futex_waitv of Linux 5.16
  std::uint64_t value;
  std::uint64_t address;
  std::uint32_t flags;
  std::uint32_t reserved;
};
constexpr long kSysFutexWaitv = 449;
constexpr std::uint32_t kFutex32 = 2;

thread_local bool drives_groups = false;

}  // namespace

Progress& Progress::instance() { return process_wide<Progress>(); }

bool Progress::is_this_thread() { return drives_groups; }

void Progress::attend(const GroupPtr& group) {
  Callbacks::instance().require_thread();  // a callback on a thread of this class could wait for what that has to move
  const std::lock_guard lock(mutex_);
  for (const auto& driver : drivers_) {
    if (driver->attends(group)) return driver->nudge();
  }
  for (const auto& driver : drivers_) {
    if (driver->attend(group)) return;
  }
  drivers_.push_back(std::make_unique<Driver>());
  drivers_.back()->attend(group);
}

void Progress::sweep(const GroupPtr& group) {
  Callbacks::instance().require_thread();
  const std::lock_guard lock(mutex_);
  if (drivers_.empty()) drivers_.push_back(std::make_unique<Driver>());
  drivers_[0]->sweep(group);
}

void Progress::nudge() {
  const std::lock_guard lock(mutex_);
  for (const auto& driver : drivers_) driver->nudge();
}

bool Progress::Driver::attends(const GroupPtr& group) {
  const std::lock_guard lock(mutex_);
  return std::find(attended_.begin(), attended_.end(), group) != attended_.end();
}

bool Progress::Driver::attend(const GroupPtr& group) {
  {
    const std::lock_guard lock(mutex_);
    if (attended_.size() + 1 >= kMostFutexes) return false;
    start();
    attended_.push_back(group);
  }
  nudge();
  return true;
}

void Progress::Driver::sweep(const GroupPtr& group) {
  {
    const std::lock_guard lock(mutex_);
    start();
    if (swept_.empty()) next_sweep_ = Clock::now() + kSweep;
    swept_.push_back(group);
  }
  nudge();
}

bool Progress::Driver::has_to_sweep() {
  const std::lock_guard lock(mutex_);
  return !swept_.empty();
}

void Progress::Driver::start() {
  if (is_running_) return;
  start_thread([this] { run(); });
  is_running_ = true;
}

// A group that was used since the last sweep keeps its memory.
void Progress::Driver::sweep_all() {
  const ExitGate::Inside inside;
  std::vector<std::weak_ptr<Group>> all;
  {
    const std::lock_guard lock(mutex_);
    if (swept_.empty() || Clock::now() < next_sweep_) return;
    next_sweep_ = Clock::now() + kSweep;
    all.swap(swept_);
  }
  std::erase_if(all, [](const std::weak_ptr<Group>& one) {
    const GroupPtr group = one.lock();
    return !group || group->give_back();
  });
  const std::lock_guard lock(mutex_);
  swept_.insert(swept_.end(), all.begin(), all.end());
}

void Progress::Driver::run() {
  pthread_setname_np(pthread_self(), "anyaccel-shm");
  drives_groups = true;
  int idle_turns = 0;
  for (;;) {
    {
      const ExitGate::Inside inside;
      std::vector<GroupPtr> idle;
      idle_turns = advance(idle) ? 0 : idle_turns + 1;
      idle.clear();  // outside the lock, as this may release the last reference to a group
    }
    if (idle_turns <= kDriverSpins) continue;
    sleep();
    sweep_all();
  }
}

// Advances every group that no other thread drives, and drops those with nothing to do.
bool Progress::Driver::advance(std::vector<GroupPtr>& idle) {
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

void Progress::Driver::sleep() {
  struct Announced {
    Doorbell* bell;
    std::uint32_t heard;
  };
  std::vector<Announced> bells{{&bell_, bell_.announce()}};
  const bool has_left_over = Callbacks::instance().run_left_over();
  bool moved = false;
  {
    const ExitGate::Inside inside;
    std::vector<GroupPtr> idle;
    moved = advance(idle);
    idle.clear();
    for (const GroupPtr& group : driven_) {
      if (group->is_driven_in_foreground()) continue;
      bells.push_back({&group->bell(), group->bell().announce()});
      moved |= group->progress(true);
    }
  }
  if (!moved) {
    std::vector<Waiter> waiters;
    for (const Announced& one : bells) {
      waiters.push_back({one.heard, reinterpret_cast<std::uint64_t>(one.bell->word()), kFutex32, 0});
    }
    timespec until = {};
    clock_gettime(CLOCK_MONOTONIC, &until);
    until = to_timespec(std::chrono::seconds(until.tv_sec) + std::chrono::nanoseconds(until.tv_nsec) + kSupervision);
    if (driven_.empty()) {
      const milliseconds limit = has_to_sweep() ? milliseconds(kSweep) : std::chrono::hours(1);
      bell_.sleep(bells[0].heard, has_left_over ? kSupervision : limit);
    } else if (syscall(kSysFutexWaitv, waiters.data(), waiters.size(), 0, &until, CLOCK_MONOTONIC) < 0 &&
               errno != EAGAIN && errno != EINTR && errno != ETIMEDOUT) {  // an older kernel, or a seccomp filter
      bells.back().bell->sleep(bells.back().heard, kWithoutWaitv);
    }
  }
  for (const Announced& one : bells) one.bell->leave();
}

}  // namespace anyaccel::comm
