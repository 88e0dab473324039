// The c10d::Work of an operation, which torch holds.

#pragma once

#include <ATen/core/ivalue.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <torch/csrc/distributed/c10d/Work.hpp>
#include <vector>

#include "callbacks.h"
#include "group.h"
#include "staging.h"

namespace anyaccel::comm {

// Called while a thread waits; raises Python's pending KeyboardInterrupt. Set once, when the module is loaded.
extern std::function<void()> interrupt;

// Lets a background thread drive a group, and returns whether there is one; warns once where the process may have none.
bool attend_if_possible(const GroupPtr& group);

// The same error as torch's own backends raise: torch.distributed.DistBackendError, a RuntimeError.
[[noreturn]] void throw_backend_error(const std::string& text);
// Why a group is unusable, as torch's exception; null if it is usable.
std::exception_ptr failure_of(const Group& group);
// Throws in a forked child, as a DistBackendError.
void require_own_process(const Group& group);
std::exception_ptr as_backend_error(std::exception_ptr error);

// The text of an error without torch's backtrace.
std::string reason_of(const std::exception& error);

// The future of an operation. It is created on the first request, and completed on a separate thread (callbacks.h).
class LazyFuture {
 public:
  using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

  LazyFuture(const Group& group, std::vector<at::Tensor> value);
  LazyFuture(const LazyFuture&) = delete;
  LazyFuture& operator=(const LazyFuture&) = delete;
  ~LazyFuture() { end_for_issuer(); }

  const std::vector<at::Tensor>& value() const { return value_; }
  FuturePtr get();

  // The operation has ended; null is for success.
  void settle(std::exception_ptr error);

 private:
  void end_for_issuer();
  void complete_in_turn();

  const void* const lane_;
  const std::vector<at::Tensor> value_;
  const Callbacks::RunningPtr issuer_;
  std::mutex mutex_;
  FuturePtr future_;
  std::exception_ptr error_;
  bool is_settled_ = false;  // from now on, the thread that creates the future completes it
  std::atomic<bool> has_ended_ = false;
};

class ShmWork : public c10d::Work {
 public:
  // `profiled` are shown by torch's profiler beside the title.
  ShmWork(GroupPtr group, int rank, c10d::OpType type, const char* title,
          std::optional<std::vector<at::Tensor>> profiled, Staging staging, std::vector<at::Tensor> outputs);

  // Queues the operation, and drives it to its end unless `is_async` is set.
  static void start(const c10::intrusive_ptr<ShmWork>& work, const OperationFacts& facts, Task task, bool is_async);

  bool isCompleted() override;
  bool wait(std::chrono::milliseconds timeout) override;
  void synchronize() override { wait(kNoTimeout); }
  void abort() override;
  int sourceRank() const override { return source_ < 0 ? c10d::Work::sourceRank() : source_; }  // which throws
  std::vector<at::Tensor> result() override { return future_.value(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
  uint64_t getSequencenumber() const override { return operation_->sequence; }

  int* source() { return &source_; }

 private:
  void finish_with(std::exception_ptr error);
  bool is_left_alone();  // nothing moves the operation while nobody waits for it

  std::atomic<bool> is_attended_ = true;
  const GroupPtr group_;
  const OperationPtr operation_;
  Staging staging_;
  LazyFuture future_;
  int source_ = -1;
};

}  // namespace anyaccel::comm
