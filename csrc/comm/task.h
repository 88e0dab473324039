// A coroutine that one driver at a time advances. It never blocks; it suspends with the condition that it waits for.
//
// An operation between ranks is written as sequential code, and suspends where it waits for a peer. The driver of its
// group checks the condition regularly and resumes the coroutine, so one thread can drive any number of operations.

#pragma once

#include <coroutine>
#include <exception>
#include <utility>

namespace anyaccel::comm {

struct Condition {
  virtual bool holds() = 0;

 protected:
  ~Condition() = default;
};

// The place where a chain of tasks that await each other is suspended.
struct Suspension {
  std::coroutine_handle<> leaf;
  Condition* condition = nullptr;
};

class [[nodiscard]] Task {
 public:
  struct promise_type {
    Suspension* suspension = nullptr;
    std::coroutine_handle<> caller;
    std::exception_ptr error;

    struct ReturnToCaller {
      bool await_ready() noexcept { return false; }
      std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> self) noexcept {
        const std::coroutine_handle<> caller = self.promise().caller;
        return caller ? caller : std::noop_coroutine();
      }
      void await_resume() noexcept {}
    };

    Task get_return_object() { return Task(std::coroutine_handle<promise_type>::from_promise(*this)); }
    std::suspend_always initial_suspend() noexcept { return {}; }
    ReturnToCaller final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { error = std::current_exception(); }
  };

  Task() = default;
  Task(Task&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Task() {
    if (handle_) handle_.destroy();
  }

  // Runs until the task ends or waits. Returns whether it made progress.
  bool advance(Suspension& suspension) {
    if (suspension.condition == nullptr) {
      handle_.promise().suspension = &suspension;
      handle_.resume();
      return true;
    }
    if (!suspension.condition->holds()) return false;
    suspension.condition = nullptr;
    std::exchange(suspension.leaf, nullptr).resume();
    return true;
  }

  bool is_done() const { return handle_.done(); }
  std::exception_ptr error() const { return handle_.promise().error; }

  // Awaiting a task runs it to its end, as a call does.
  bool await_ready() { return false; }
  std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> caller) {
    handle_.promise().suspension = caller.promise().suspension;
    handle_.promise().caller = caller;
    return handle_;
  }
  void await_resume() {
    if (error()) std::rethrow_exception(error());
  }

 private:
  explicit Task(std::coroutine_handle<promise_type> handle) : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

// co_await until([&] { return peers_are_there(); });
template <typename Predicate>
class Until final : public Condition {
 public:
  explicit Until(Predicate predicate) : predicate_(std::move(predicate)) {}
  bool holds() override {
    try {
      return predicate_();
    } catch (...) {  // the error belongs to the task, not to its driver
      error_ = std::current_exception();
      return true;
    }
  }
  bool await_ready() { return predicate_(); }
  void await_suspend(std::coroutine_handle<Task::promise_type> self) { *self.promise().suspension = {self, this}; }
  void await_resume() {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  Predicate predicate_;
  std::exception_ptr error_;
};

template <typename Predicate>
Until<Predicate> until(Predicate predicate) {
  return Until<Predicate>(std::move(predicate));
}

}  // namespace anyaccel::comm
