// Keeps threads from touching Python's objects while Python ends.
//
// Our threads release tensors and run callbacks, for which they take Python's lock. Once Python ends, taking it ends
// the thread, which ends the process if that happens inside a destructor.

#pragma once

#include <atomic>
#include <thread>

#include "clock.h"

namespace anyaccel::comm {

class ExitGate {
 public:
  static ExitGate& instance();

  // In the lifetime of this object, a thread may touch Python's objects. Once the gate is closed, the constructor never
  // returns, except to the thread that closed it, so the thread must hold no lock.
  class Inside {
   public:
    Inside() : gate_(instance()) { gate_.enter(); }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
    ~Inside() { --gate_.inside_; }

   private:
    ExitGate& gate_;
  };

  // Around a wait that Python called: once the gate is closed, no other thread than the one that closed it goes back to
  // Python, which would end it in the middle of a destructor.
  class Leaving {
   public:
    Leaving() = default;
    Leaving(const Leaving&) = delete;
    Leaving& operator=(const Leaving&) = delete;
    ~Leaving();
  };
  // Called by a thread that Python did not start: its waits end as before.
  static void keep_going();

  // Waits until no thread is inside, and lets none in any more. Gives up waiting after some time.
  void close(milliseconds patience);
  bool is_closed() const { return is_closed_; }

 private:
  void enter();

  std::atomic<std::thread::id> closer_;
  std::atomic<int> inside_ = 0;
  std::atomic<bool> is_closed_ = false;
};

}  // namespace anyaccel::comm
