// The c10d::Work of a message between hosts, which gloo carries.

#pragma once

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <set>
#include <utility>

#include "exit_gate.h"
#include "shm_backend.h"
#include "wire.h"

namespace anyaccel::comm {

// Gloo's messages of a group that someone may wait for, so that an abort wakes them.
class OpenMessages {
 public:
  void add(const WorkPtr& message) {
    const std::lock_guard lock(mutex_);
    if (is_aborted_) message->abort();
    open_.insert(message.get());
  }
  void remove(const WorkPtr& message) {
    const std::lock_guard lock(mutex_);
    open_.erase(message.get());
  }
  void abort() {
    const std::lock_guard lock(mutex_);
    is_aborted_ = true;
    for (c10d::Work* const one : open_) one->abort();
  }

 private:
  std::mutex mutex_;
  std::set<c10d::Work*> open_;
  bool is_aborted_ = false;
};

// Waits for another thread that waits for the same message: gloo tells of an arrival only once.
inline std::unique_lock<std::timed_mutex> lock_in_time(std::timed_mutex& mutex, milliseconds timeout) {
  const auto until = end_of(timeout);
  std::unique_lock lock(mutex, std::defer_lock);
  while (!lock.try_lock_until(std::min(until, Clock::now() + kSupervision))) {
    if (interrupt) interrupt();
    if (Clock::now() < until) continue;
    throw_backend_error("shm failed: wait timed out after " + std::to_string(timeout.count()) +
                        " ms, while another thread waits; the operation continues. Fix: call wait() again, with a "
                        "longer timeout.");
  }
  return lock;
}

// What arrives in memory of its own is copied to where it belongs when someone has waited for it.
class MessageWork : public c10d::Work {
 public:
  // Without a timeout, a wait takes the given one: gloo's own is that of the group's start.
  MessageWork(OpType type, GroupPtr group, std::shared_ptr<OpenMessages> open, WorkPtr message, milliseconds timeout,
              at::Tensor arrived = {}, at::Tensor output = {})
      : Work(-1, type),
        group_(std::move(group)),
        open_(std::move(open)),
        message_(std::move(message)),
        timeout_(std::min(timeout, kForever)),
        arrived_(std::move(arrived)),
        output_(std::move(output)) {
    open_->add(message_);
  }
  ~MessageWork() override { open_->remove(message_); }

  bool wait(std::chrono::milliseconds timeout) override {
    const ExitGate::Leaving at_the_end;
    require_own_process(*group_);
    const std::unique_lock one_at_a_time = lock_in_time(waiting_, timeout == kNoTimeout ? timeout_ : timeout);
    if (isCompleted()) {
      if (const std::exception_ptr error = exception()) std::rethrow_exception(error);
      return true;
    }
    try {
      const bool has_come = message_->wait(timeout == kNoTimeout ? timeout_ : timeout);
      if (!has_come) throw_aborted();
      const at::AutoDispatchBelowADInplaceOrView without_autograd;
      if (!arrived_.is_same(output_)) output_.copy_(arrived_);
    } catch (...) {
      finish(std::current_exception());
      throw;
    }
    finish(nullptr);
    return true;
  }
  void synchronize() override { wait(kNoTimeout); }
  void abort() override { message_->abort(); }
  int sourceRank() const override { return message_->sourceRank(); }
  Tensors result() override { return {output_}; }

 private:
  [[noreturn]] void throw_aborted() const {
    if (const std::exception_ptr failure = failure_of(*group_)) std::rethrow_exception(failure);
    throw_backend_error("shm failed: a message was aborted by " + group_->name_of_rank(group_->rank()));
  }

  const GroupPtr group_;
  const std::shared_ptr<OpenMessages> open_;
  const WorkPtr message_;
  const milliseconds timeout_;
  const at::Tensor arrived_, output_;
  std::timed_mutex waiting_;
};

}  // namespace anyaccel::comm
