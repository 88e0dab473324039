// The c10d::Work of an operation that runs entirely on a thread of its backend.

#pragma once

#include <ATen/core/LegacyTypeDispatch.h>

#include <atomic>

#include "callbacks.h"
#include "exit_gate.h"
#include "shm_backend.h"

namespace anyaccel::comm {

// Throws once Python is ending: the backend's threads let go of no tensor any more.
inline void require_running_python() {
  if (!ExitGate::instance().is_closed()) return;
  throw_backend_error(
      "shm failed: Python is ending, and operations between hosts have stopped. Fix: call them before.");
}

class QueuedWork : public c10d::Work {
 public:
  QueuedWork(GroupPtr group, int rank, OpType type, const char* title, const Tensors& inputs, Tensors outputs)
      : Work(rank, type, title, inputs), group_(std::move(group)), future_(*group_, std::move(outputs)) {}

  // Called on a thread of the backend.
  void run(const std::function<void()>& operation) {
    std::exception_ptr error;
    try {
      const at::AutoDispatchBelowADInplaceOrView without_autograd;
      operation();
    } catch (...) {
      error = std::current_exception();
    }
    const ExitGate::Inside inside;
    complete(error);
  }

  // Ends an operation that has not been run.
  void drop(const std::string& text) { complete(as_backend_error(std::make_exception_ptr(CommError(text)))); }

  bool wait(std::chrono::milliseconds timeout) override {
    const ExitGate::Leaving at_the_end;
    if (!is_over_) require_own_process(*group_);  // whose threads a forked child lacks
    const auto until = end_of(timeout);
    std::unique_lock lock(mutex_);
    while (!cv_.wait_for(lock, kSupervision, [this] { return completed_; })) {
      lock.unlock();
      if (interrupt) interrupt();
      require_running_python();
      if (timeout != kNoTimeout && Clock::now() >= until) {
        throw_backend_error("shm failed: wait timed out after " + std::to_string(timeout.count()) +
                            " ms; the operation continues. Fix: call wait() again, with a longer timeout.");
      }
      lock.lock();
    }
    if (exception_) std::rethrow_exception(exception_);
    return true;
  }
  void synchronize() override { wait(kNoTimeout); }
  // Ends the wait, and the group. The thread may go on to wait for another host; what it finds then is dropped.
  void abort() override {
    group_->fail("shm failed: an operation was aborted by " + group_->name_of_rank(group_->rank()));
    complete(failure_of(*group_));
  }
  Tensors result() override { return future_.value(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_.get(); }

 private:
  void complete(const std::exception_ptr& error) {
    if (is_over_.exchange(true)) return;
    finish(error);
    future_.settle(error);
    Callbacks::instance().run_left_over();
  }

  std::atomic<bool> is_over_ = false;
  const GroupPtr group_;
  LazyFuture future_;
};

}  // namespace anyaccel::comm
