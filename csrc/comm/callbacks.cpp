#include "callbacks.h"

#include <pthread.h>

#include <algorithm>
#include <thread>

#include "clock.h"
#include "exit_gate.h"
#include "process_wide.h"
#include "progress.h"
#include "start_thread.h"

namespace anyaccel::comm {
namespace {

constexpr std::chrono::milliseconds kCallbackPatience{50};  // before others overtake a callback that does nothing
constexpr std::chrono::seconds kLeftOverPatience{1};        // of who could go on, while others run callbacks
constexpr std::chrono::seconds kLinger{2};                  // before a further thread with nothing to do ends

thread_local Callbacks::RunningPtr running_on_this_thread;

std::int64_t nanoseconds_of(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return now.tv_sec * std::int64_t{1'000'000'000} + now.tv_nsec;
}

// A callback that waits for anything but its own operations may be waiting for a future that comes after it.
bool is_stuck(Callbacks::Running& running) {
  const auto now = Clock::now();
  if (now - running.looked_at < kCallbackPatience) return running.is_overtaken;
  running.looked_at = now;
  const std::int64_t spent = nanoseconds_of(running.processor_time);
  return std::exchange(running.spent, spent) == spent && running.operations == 0;
}

int depth_of(const Callbacks::RunningPtr& issuer) { return issuer ? issuer->depth + 1 : 0; }

}  // namespace

Callbacks& Callbacks::instance() { return process_wide<Callbacks>(); }

const Callbacks::RunningPtr& Callbacks::running_here() { return running_on_this_thread; }

void Callbacks::add(const void* group, const RunningPtr& issuer, std::function<void()> callback) {
  const std::lock_guard lock(mutex_);
  lanes_[{group, depth_of(issuer)}].waiting.push_back(std::move(callback));
  require_spare_thread();
  changed_.notify_all();  // also wait_for_left_over() waits, and would run nothing
}

void Callbacks::require_thread() {
  if (is_started_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex_);
  if (!is_started_) start();
}

void Callbacks::start() {
  start_thread([this] { run(); });
  ++spare_;
  is_started_.store(true, std::memory_order_release);
  lacks_thread_.store(false, std::memory_order_release);
}

bool Callbacks::run_left_over() {
  if (!lacks_thread()) return false;
  std::unique_lock lock(mutex_);
  while (spare_ == 0 && anyone_waits()) {
    if (next_ready() == lanes_.end()) look_for_stuck();
    const auto ready = next_ready();
    if (ready == lanes_.end()) return true;
    ++spare_;  // this thread
    run_next(ready, lock);
    --spare_;
  }
  return false;
}

void Callbacks::wait_for_left_over() {
  const auto until = end_of(kLeftOverPatience);
  while (run_left_over() && !running_on_this_thread && Clock::now() < until) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, kCallbackPatience);
  }
}

bool Callbacks::is_idle(const void* group, const RunningPtr& issuer) {
  const std::lock_guard lock(mutex_);
  return !lanes_.contains({group, depth_of(issuer)});
}

void Callbacks::finish(milliseconds patience) {
  const auto until = end_of(patience);
  std::unique_lock lock(mutex_);
  while (!lanes_.empty() && Clock::now() < until) {
    lock.unlock();
    std::this_thread::sleep_for(milliseconds(1));
    lock.lock();
  }
}

// While callbacks wait, one thread is idle: it takes those that may run, and looks for callbacks that are stuck.
void Callbacks::require_spare_thread() {
  if (spare_ > 0) return;
  try {
    start();
  } catch (const CommError&) {  // run_left_over(), or the thread that is busy now, runs what waits
    lacks_thread_.store(true, std::memory_order_release);
    Progress::instance().nudge();
  }
}

Callbacks::Lanes::iterator Callbacks::next_ready() {
  return std::find_if(lanes_.begin(), lanes_.end(), [](const auto& entry) {
    const Lane& lane = entry.second;
    return !lane.waiting.empty() && (!lane.running || lane.running->is_overtaken);
  });
}

bool Callbacks::anyone_waits() const {
  return std::any_of(lanes_.begin(), lanes_.end(), [](const auto& entry) { return !entry.second.waiting.empty(); });
}

void Callbacks::look_for_stuck() {
  for (auto& [key, lane] : lanes_) {
    if (lane.running && !lane.waiting.empty()) lane.running->is_overtaken = is_stuck(*lane.running);
  }
}

void Callbacks::run() {
  pthread_setname_np(pthread_self(), "anyaccel-future");
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto ready = next_ready();
    if (ready != lanes_.end()) {
      run_next(ready, lock);
    } else if (anyone_waits()) {
      if (changed_.wait_for(lock, kCallbackPatience) == std::cv_status::timeout) look_for_stuck();
    } else if (spare_ == 1) {  // the last one stays
      changed_.wait(lock);
    } else if (changed_.wait_for(lock, kLinger) == std::cv_status::timeout && !anyone_waits() && spare_ > 1) {
      break;
    }
  }
  --spare_;
}

void Callbacks::run_next(Lanes::iterator lane, std::unique_lock<std::mutex>& lock) {
  const auto key = lane->first;
  const auto own = std::make_shared<Running>();
  own->depth = key.second;
  own->looked_at = Clock::now();
  pthread_getcpuclockid(pthread_self(), &own->processor_time);
  auto callback = std::move(lane->second.waiting.front());
  lane->second.waiting.pop_front();
  lane->second.running = own;
  --spare_;
  if (anyone_waits()) require_spare_thread();
  lock.unlock();
  const auto outer = std::exchange(running_on_this_thread, own);  // a callback that waits may run others here
  {
    const ExitGate::Inside inside;
    callback();
    callback = nullptr;  // outside the lock, as this may release the last reference to a group
  }
  running_on_this_thread = outer;
  lock.lock();
  ++spare_;
  const auto after = lanes_.find(key);
  if (after == lanes_.end()) return;
  if (after->second.running == own) after->second.running = nullptr;
  if (!after->second.running && after->second.waiting.empty()) lanes_.erase(after);
}

}  // namespace anyaccel::comm
