// A stack for each thread of a block, and switches between them and the scheduler. ThreadSanitizer, if it is in the
// process, sees each fiber as a thread.

#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>
#include <vector>

namespace emulator {

class Fibers {
 public:
  static constexpr std::size_t kStackBytes = 256 * 1024;

  // Every fiber runs `enter`, which never returns.
  Fibers(unsigned count, void (*enter)());

  bool have_memory() const { return stacks_ != nullptr; }
  const void* stacks() const { return stacks_; }

  // Prepares a fiber for resume(): it starts at `enter`, or continues where it left.
  void prepare(unsigned number);

  // Runs a fiber until it calls leave().
  void resume(unsigned number);

  // Returns to the caller of resume().
  void leave();

  // Restarts every fiber: the next resume() begins at `enter`.
  void abandon();

  // For ThreadSanitizer: accesses before a release happen before those after an acquire of the same `meeting`.
  static void release(void* meeting);
  static void acquire(void* meeting);

 private:
  struct Fiber {
    ucontext_t context;
    jmp_buf jump;
    bool has_begun = false;
    void* in_sanitizer = nullptr;
  };

  std::vector<Fiber> fibers_;
  void (*enter_)();
  char* stacks_ = nullptr;
  unsigned current_ = 0;
  jmp_buf resumer_{};
  void* resumer_in_sanitizer_ = nullptr;
};

}  // namespace emulator
