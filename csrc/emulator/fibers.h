// Stacks, one for each thread of a block, and jumps between them and the scheduler. To ThreadSanitizer, where it is in
// the process, each fiber is a thread.

#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cstddef>
#include <vector>

namespace emulator {

class Fibers {
 public:
  static constexpr std::size_t kStackBytes = 256 * 1024;

  // `enter` is what every fiber runs, and never returns.
  Fibers(unsigned count, void (*enter)());

  bool have_memory() const { return stacks_ != nullptr; }
  const void* stacks() const { return stacks_; }

  // Prepares a fiber to be resumed: from `enter` on, or where it left before.
  void prepare(unsigned number);

  // Runs a fiber until it leaves.
  void resume(unsigned number);

  // Goes back to who resumed the current fiber.
  void leave();

  // Forgets where each fiber is: it begins anew.
  void abandon();

  // For ThreadSanitizer: what comes before is ordered before what comes after, at the same `meeting`.
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
