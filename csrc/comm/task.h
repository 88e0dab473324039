// A coroutine that one driver at a time advances: it never blocks, it says what it waits for.
//
// An operation between ranks is written as straight code, and suspends where it needs a peer. Whoever drives its group
// asks now and then whether the condition holds, and resumes it. One thread so drives any number of operations.

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

// Where a chain of tasks that await one another has stopped.
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

  // Goes on until the task ends or has to wait; true when it moved at all.
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
    } catch (...) {  // for the task, not for whoever drives it
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
