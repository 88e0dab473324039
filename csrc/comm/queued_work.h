// c10d::Work for an operation that runs whole on a thread of its backend.

#pragma once

#include <ATen/core/LegacyTypeDispatch.h>

#include "shm_backend.h"

namespace anyaccel::comm {

class QueuedWork : public c10d::Work {
 public:
  QueuedWork(int rank, OpType type, const char* title, const Tensors& inputs, Tensors outputs)
      : Work(rank, type, title, inputs),
        outputs_(std::move(outputs)),
        future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {}

  void run(const std::function<void()>& operation) {
    std::exception_ptr error;
    try {
      const at::AutoDispatchBelowADInplaceOrView without_autograd;
      operation();
    } catch (...) {
      error = std::current_exception();
    }
    finish(error);
    if (error) {
      future_->setError(error);
    } else {
      future_->markCompleted(c10::IValue(outputs_));
    }
  }

  bool wait(std::chrono::milliseconds timeout) override {
    const auto until = Clock::now() + timeout;
    std::unique_lock lock(mutex_);
    while (!cv_.wait_for(lock, kSupervision, [this] { return completed_; })) {
      lock.unlock();
      if (interrupt) interrupt();
      if (timeout != kNoTimeout && Clock::now() >= until) {
        throw_backend_error("shm failed: wait timed out after " + std::to_string(timeout.count()) +
                            " ms; the operation goes on. Fix: wait again, or longer.");
      }
      lock.lock();
    }
    if (exception_) std::rethrow_exception(exception_);
    return true;
  }
  void synchronize() override { wait(kNoTimeout); }
  Tensors result() override { return outputs_; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  const Tensors outputs_;
  const c10::intrusive_ptr<c10::ivalue::Future> future_;
};

}  // namespace anyaccel::comm
