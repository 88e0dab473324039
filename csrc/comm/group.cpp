#include "group.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "callbacks.h"
#include "progress.h"

namespace anyaccel::comm {
namespace {

constexpr milliseconds kInterrupt{100};  // between checks for signals; a check may wait long for Python's lock
constexpr int kSpins = 2000;             // some tens of microseconds
constexpr int kSpinsBeforeHandingOver = 200;
constexpr int kSpinsOversubscribed = 4;               // each yields, as the awaited rank may need the core
constexpr std::chrono::microseconds kLateYield{500};  // a thread that computes has had the core
constexpr int kWaitsWithoutYield = 64;  // after that: who sleeps gets the core back sooner than who yields

int available_cores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  return sched_getaffinity(0, sizeof(cores), &cores) == 0 ? CPU_COUNT(&cores) : 1;
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

std::exception_ptr error_of(const std::string& text) { return std::make_exception_ptr(CommError(text)); }

}  // namespace

std::string Operation::title() const {
  return std::string(name) + (is_transfer ? "" : " #" + std::to_string(sequence));
}

void Group::start_clock(Operation& operation) {
  if (operation.deadline != Clock::time_point::max()) return;
  operation.deadline = end_of(operation.timeout);
  operation.rounds_before = round_;
}

Group::Group(std::shared_ptr<Segment> segment, int rank, int global_rank)
    : segment_(std::move(segment)),
      rank_(rank),
      maker_(process_token()),
      mailbox_(*this, segment_->layout.world),
      spins_(segment_->layout.world > available_cores() ? kSpinsOversubscribed : kSpins) {
  RankState& own = segment_->state(rank);
  own.pid = getpid();
  own.global_rank = global_rank;
  segment_->mark_presence(rank);
  own.process.store(maker_, std::memory_order_release);
}

void Group::wait_for_all(milliseconds timeout, const std::function<void()>& interrupt) {
  const Clock::time_point until = end_of(timeout);
  for (int rank = 0; rank < world(); ++rank) {
    while (segment_->state(rank).process.load(std::memory_order_acquire) == 0) {
      if (Clock::now() >= until) {
        throw CommError("shm init_process_group timed out: rank " + std::to_string(rank) +
                        " of this host did not map the shared memory. Fix: look for the error in that rank's log.");
      }
      if (interrupt) interrupt();
      std::this_thread::sleep_for(milliseconds(1));
    }
  }
}

Group::~Group() {
  if (!is_forked()) leave("");
}

void Group::submit(const OperationPtr& operation) {
  require_own_process();  // in a forked child, a thread that it does not have may hold the lock
  Finished finished;
  bool moved = false;
  {
    const std::lock_guard lock(mutex_);
    require_usable();
    if (operation->is_transfer) {
      if (!advance(operation, finished, moved)) transfers_.push_back(operation);
      seen_activity_.reset();  // it may have taken in what is for another
    } else if (!collectives_.empty() || !advance(operation, finished, moved)) {
      collectives_.push_back(operation);
    }
  }
  settle(finished);
}

// Advances one operation as far as it goes; true when it has ended.
bool Group::advance(const OperationPtr& operation, Finished& finished, bool& moved) {
  if (!operation->is_transfer) start_clock(*operation);
  while (!operation->task.is_done()) {
    if (!operation->task.advance(operation->suspension)) return false;
    moved = true;
  }
  if (!operation->is_transfer) segment_->state(rank_).read.store(round_, std::memory_order_release);
  finished.emplace_back(operation, operation->task.error());
  if (operation->task.error()) fail_unless_agreed(*operation);
  return true;
}

bool Group::advance_all(Finished& finished) {
  bool moved = false;
  while (!collectives_.empty() && advance(collectives_.front(), finished, moved)) collectives_.pop_front();
  advance_transfers(finished, moved);
  return moved;
}

// Again after one has taken in a letter or an answer for another: a thread that sees nothing move goes to sleep.
//
// Any number of transfers may wait, and a waiting thread comes here all the time, so many of them are looked at only if
// there is something new for one. That is asked of every link: fewer transfers than ranks are looked at as soon.
void Group::advance_transfers(Finished& finished, bool& moved) {
  if (transfers_.empty()) return;
  const bool are_many = transfers_.size() > static_cast<std::size_t>(world());
  const std::uint64_t activity = are_many ? mailbox_.activity() : 0;
  if (are_many && activity == seen_activity_) return;
  bool has_moved = false;
  do {
    for (auto one = transfers_.begin(); one != transfers_.end();) {
      one = advance(*one, finished, has_moved) ? transfers_.erase(one) : std::next(one);
    }
  } while (mailbox_.has_news());
  moved |= has_moved;
  seen_activity_ = activity;
  if (has_moved || !are_many) seen_activity_.reset();  // one may have made way for another
}

bool Group::progress(bool waits) {
  Finished finished;
  bool moved = false;
  {
    std::unique_lock lock(mutex_, std::defer_lock);
    if (waits) {
      lock.lock();
    } else {
      lock.try_lock();
    }
    if (!lock.owns_lock()) return false;
    moved = advance_all(finished);
  }
  settle(finished);
  return moved;
}

bool Group::give_up(const OperationPtr& operation, const std::string& text) {
  Finished finished;
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::find(transfers_.begin(), transfers_.end(), operation);
    if (found == transfers_.end() || operation->source == nullptr || *operation->source >= 0) return false;
    operation->task = Task();  // this withdraws it from the mailbox
    transfers_.erase(found);
    finished.emplace_back(operation, error_of(text));
  }
  settle(finished);
  return true;
}

// Ends all operations. An operation succeeds if its peers have done their part: they may have completed it, and then
// failed or left in the next one. No operation starts after this.
void Group::end_all(const std::string& text, Finished& finished) {
  bool moved = false;
  if (!collectives_.empty() && advance(collectives_.front(), finished, moved)) collectives_.pop_front();
  advance_transfers(finished, moved);
  const auto end = [&](const OperationPtr& one) {
    one->task = Task();  // under the lock, as a receive withdraws from the mailbox
    finished.emplace_back(one, error_of(text));
  };
  std::for_each(collectives_.begin(), collectives_.end(), end);
  std::for_each(transfers_.begin(), transfers_.end(), end);
  collectives_.clear();
  transfers_.clear();
}

void Group::settle(Finished& finished) {
  for (auto& [operation, error] : finished) {
    const auto finish = std::exchange(operation->finish, nullptr);  // keeps the operation's owner alive
    if (finish) finish(error);
    operation->is_finished.store(true, std::memory_order_release);
  }
  if (!finished.empty()) {
    bell().ring();  // other threads of this rank may wait for them
    Callbacks::instance().run_left_over();
  }
  if (wants_sweep_.load(std::memory_order_relaxed) && wants_sweep_.exchange(false)) {
    try {
      if (const GroupPtr self = weak_from_this().lock()) Progress::instance().sweep(self);
    } catch (const CommError&) {  // no thread: the memory stays until there is one
      sweep_later();
    }
  }
}

bool Group::spin_briefly(const Operation& operation) {
  return spin(operation, std::min(spins_, kSpinsBeforeHandingOver));
}

bool Group::yields() {
  if (waits_without_yield_ > 0) {
    --waits_without_yield_;
    return false;
  }
  const Clock::time_point before = Clock::now();
  sched_yield();
  if (Clock::now() - before < kLateYield) return true;
  waits_without_yield_ = kWaitsWithoutYield;
  return false;
}

bool Group::spin(const Operation& operation, int turns) {
  for (int turn = 0; turn < turns; ++turn) {
    if (progress()) turn = 0;
    if (operation.is_finished.load(std::memory_order_acquire)) return true;
    if (spins_ == kSpinsOversubscribed) {
      if (!yields()) return false;
    } else {
      relax();
    }
  }
  return false;
}

bool Group::drive(const Operation& operation, Clock::time_point until, const std::function<void()>& interrupt) {
  require_own_process();
  struct InForeground {
    explicit InForeground(Group& driven) : group(driven) { group.drivers_.fetch_add(1); }
    ~InForeground() {
      if (group.drivers_.fetch_sub(1) == 1 && group.has_pending()) Progress::instance().nudge();
    }
    Group& group;
  } const in_foreground(*this);
  struct Aside {  // while this thread may wait for Python's lock, another has to move the group
    explicit Aside(Group& left) : group(left) {
      if (group.drivers_.fetch_sub(1) == 1) Progress::instance().nudge();
    }
    ~Aside() { group.drivers_.fetch_add(1); }
    Group& group;
  };

  auto next_interrupt = Clock::time_point::max();
  while (!spin(operation, spins_)) {
    const Clock::time_point now = Clock::now();
    if (now >= until) return false;
    if (next_interrupt == Clock::time_point::max()) next_interrupt = now + kInterrupt;
    const std::uint32_t heard = bell().announce();
    struct Awake {
      Doorbell& bell;
      ~Awake() { bell.leave(); }
    } const awake{bell()};
    if (!progress(true) && !operation.is_finished.load(std::memory_order_acquire)) {
      const auto at_most = std::min<std::chrono::nanoseconds>(kSupervision, until - Clock::now());
      if (at_most.count() > 0 && !bell().sleep(heard, at_most)) next_interrupt = now;
    }
    supervise();
    if (interrupt && Clock::now() >= next_interrupt) {
      {
        const Aside aside(*this);
        interrupt();
      }
      next_interrupt = Clock::now() + kInterrupt;
    }
  }
  return true;
}

void Group::finish_collectives(const std::function<void()>& interrupt) {
  OperationPtr last;
  {
    const std::lock_guard lock(mutex_);
    const auto is_wanted = [](const OperationPtr& one) { return !one->is_refusal; };
    const auto found = std::find_if(collectives_.rbegin(), collectives_.rend(), is_wanted);
    if (found != collectives_.rend()) last = *found;
  }
  if (last) drive(*last, Clock::time_point::max(), interrupt);
}

bool Group::has_pending() {
  const std::lock_guard lock(mutex_);
  return !collectives_.empty() || !transfers_.empty();
}

void Group::post() {
  segment_->state(rank_).posted.store(++round_, std::memory_order_release);
  for (int rank = 0; rank < world(); ++rank) {
    if (rank != rank_) ring(rank);
  }
}

bool Group::everyone_posted() const {
  for (int rank = 0; rank < world(); ++rank) {
    if (segment_->state(rank).posted.load(std::memory_order_acquire) < round_) return false;
  }
  return true;
}

void Group::allocate_slots() {
  if (has_slots_) return;
  segment_->allocate(segment_->layout.slot(rank_, 0), 4 * kSlotBytes, "a slot");
  has_slots_ = true;
  sweep_later();
}

bool Group::give_back() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock() || !collectives_.empty()) return false;
  if (has_left_ || has_failed()) return true;
  bool is_read = swept_round_ == round_;
  swept_round_ = round_;
  for (int rank = 0; rank < world(); ++rank) {
    is_read = is_read && segment_->state(rank).read.load(std::memory_order_acquire) >= round_;
  }
  if (is_read && has_slots_) {
    segment_->release(segment_->layout.slot(rank_, 0), 4 * kSlotBytes);
    has_slots_ = false;
  }
  return mailbox_.give_back() && !has_slots_;
}

}  // namespace anyaccel::comm
