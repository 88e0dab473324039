#include "shm_work.h"

#include <c10/util/Exception.h>
#include <pybind11/gil.h>

#include <algorithm>
#include <optional>

#include "exit_gate.h"
#include "progress.h"

namespace anyaccel::comm {

std::function<void()> interrupt;

void throw_backend_error(const std::string& text) { C10_THROW_ERROR(DistBackendError, text); }

std::exception_ptr failure_of(const Group& group) {
  try {
    group.require_usable();
    return nullptr;
  } catch (const CommError&) {
    return as_backend_error(std::current_exception());
  }
}

void require_own_process(const Group& group) {
  try {
    group.require_own_process();
  } catch (const CommError& error) {
    throw_backend_error(error.what());
  }
}

std::exception_ptr as_backend_error(std::exception_ptr error) {
  try {
    try {
      std::rethrow_exception(error);
    } catch (const CommError& known) {
      throw_backend_error(known.what());
    }
  } catch (...) {
    return std::current_exception();
  }
}

std::string reason_of(const std::exception& error) {
  const auto* torchs = dynamic_cast<const c10::Error*>(&error);
  return torchs == nullptr ? error.what() : torchs->what_without_backtrace();
}

namespace {

void complete(c10::ivalue::Future& future, const std::vector<at::Tensor>& value, const std::exception_ptr& error) {
  if (error) {
    future.setError(error);
  } else {
    future.markCompleted(c10::IValue(value));
  }
}

// Torch's bindings of is_completed() and get_future() keep the interpreter's lock, which callbacks and other threads
// need.
class WithoutGil {
 public:
  WithoutGil() {
    if (PyGILState_Check() == 1) released_.emplace();
  }

 private:
  std::optional<pybind11::gil_scoped_release> released_;
};

}  // namespace

LazyFuture::LazyFuture(const Group& group, std::vector<at::Tensor> value)
    : lane_(&group), value_(std::move(value)), issuer_(Callbacks::running_here()) {
  if (issuer_) ++issuer_->operations;
}

void LazyFuture::end_for_issuer() {
  if (issuer_ && !has_ended_.exchange(true)) --issuer_->operations;
}

// A callback that waits for this future is not stuck while the future waits for its turn: the operation counts until
// then.
void LazyFuture::complete_in_turn() {
  if (issuer_) ++issuer_->operations;
  Callbacks::instance().add(lane_, issuer_, [future = future_, value = value_, error = error_, issuer = issuer_] {
    if (issuer) --issuer->operations;  // before users' callbacks, which run in `complete` and may block
    complete(*future, value, error);
  });
}

LazyFuture::FuturePtr LazyFuture::get() {
  {
    const std::lock_guard lock(mutex_);
    if (future_) return future_;
    future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
    if (!is_settled_) return future_;
  }
  if (Callbacks::instance().is_idle(lane_, issuer_)) {
    complete(*future_, value_, error_);
  } else {
    complete_in_turn();  // after the callbacks of operations before this one
    if (Callbacks::instance().lacks_thread()) {
      const WithoutGil released;
      Callbacks::instance().wait_for_left_over();
    }
  }
  return future_;
}

void LazyFuture::settle(std::exception_ptr error) {
  bool is_asked_for = false;
  {
    const std::lock_guard lock(mutex_);
    is_settled_ = true;
    error_ = error;
    is_asked_for = future_.defined();
  }
  if (is_asked_for) complete_in_turn();
  end_for_issuer();
}

bool attend_if_possible(const GroupPtr& group) {
  try {
    Progress::instance().attend(group);
    return !Progress::is_this_thread();  // its callback may wait for the operation's future
  } catch (const CommError& error) {
    TORCH_WARN_ONCE(error.what(),
                    " Until then, operations move only while a thread waits for them, or asks whether they "
                    "are completed, and get_future() waits for them.");
    return false;
  }
}

ShmWork::ShmWork(GroupPtr group, int rank, c10d::OpType type, const char* title,
                 std::optional<std::vector<at::Tensor>> profiled, Staging staging, std::vector<at::Tensor> outputs)
    : Work(rank, type, title, profiled),
      group_(std::move(group)),
      operation_(std::make_shared<Operation>()),
      staging_(std::move(staging)),
      future_(*group_, std::move(outputs)) {}

void ShmWork::start(const c10::intrusive_ptr<ShmWork>& work, const OperationFacts& facts, Task task, bool is_async) {
  const ExitGate::Leaving at_the_end;
  Operation& operation = *work->operation_;
  static_cast<OperationFacts&>(operation) = facts;
  operation.task = std::move(task);
  operation.finish = [work](std::exception_ptr error) { work->finish_with(error); };
  try {
    work->group_->submit(work->operation_);
    if (is_async) {
      if (facts.is_transfer && work->group_->spin_briefly(operation)) return;
      if (!operation.is_finished) work->is_attended_ = attend_if_possible(work->group_);
    } else if (!operation.is_finished) {
      work->group_->drive(operation, Clock::time_point::max(), interrupt);
    }
  } catch (const CommError& error) {
    operation.finish = nullptr;
    throw_backend_error(error.what());
  } catch (...) {  // an interrupt: the operation continues without its caller
    work->is_attended_ = attend_if_possible(work->group_);
    throw;
  }
}

bool ShmWork::is_left_alone() {
  if (is_attended_ || group_->is_forked() || operation_->is_finished.load(std::memory_order_acquire)) return false;
  is_attended_ = attend_if_possible(group_);  // there may be a thread by now
  return !is_attended_;
}

bool ShmWork::isCompleted() {
  if (is_left_alone()) {
    const WithoutGil released;
    const ExitGate::Leaving at_the_end;
    group_->progress();  // else a thread that asks again and again would wait for none
    group_->supervise();
  }
  return Work::isCompleted();
}

c10::intrusive_ptr<c10::ivalue::Future> ShmWork::getFuture() {
  // Who waits for a future would move nothing. A message may need what its caller does next: waits move it.
  if (!operation_->is_transfer && is_left_alone()) {
    const WithoutGil released;
    try {
      wait(kNoTimeout);
    } catch (const c10::Error&) {  // the future has it
    }
  }
  return future_.get();
}

bool ShmWork::wait(std::chrono::milliseconds timeout) {
  const ExitGate::Leaving at_the_end;
  if (!operation_->is_finished.load(std::memory_order_acquire)) {
    const bool is_limited = timeout != kNoTimeout;
    // a collective ends by itself; a message has no deadline while nobody waits for it
    const auto patience = operation_->is_transfer ? operation_->timeout : milliseconds::max();
    const auto until = end_of(is_limited ? timeout : patience);
    bool is_over = false;
    try {
      is_over = group_->drive(*operation_, until, interrupt);
    } catch (const CommError& error) {
      throw_backend_error(error.what());
    }
    if (!is_over && !is_limited) {
      const std::string text = group_->lateness_of(*operation_);
      group_->give_up(operation_, text);
      throw_backend_error(text);
    }
    if (!is_over) {
      throw_backend_error("shm " + operation_->title() + ": wait timed out after " + std::to_string(timeout.count()) +
                          " ms; the operation continues. Fix: call wait() again, with a longer timeout.");
    }
  }
  const std::exception_ptr error = exception();
  if (error) std::rethrow_exception(error);
  return true;
}

void ShmWork::abort() {
  if (group_->is_forked()) return;
  group_->fail("shm " + operation_->title() + " was aborted by " + group_->name_of_rank(rank_));
}

void ShmWork::finish_with(std::exception_ptr error) {
  try {
    if (error) std::rethrow_exception(as_backend_error(error));
    staging_.copy_back();
  } catch (...) {
    error = std::current_exception();
  }
  staging_.release();
  finish(error);
  future_.settle(error);
}

}  // namespace anyaccel::comm
