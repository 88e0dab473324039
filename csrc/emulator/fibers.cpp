// glibc's checked longjmp reports a jump to another stack as an error.
#undef _FORTIFY_SOURCE

#include "fibers.h"

#include <sys/mman.h>

extern "C" {
__attribute__((weak)) void* __tsan_get_current_fiber();
__attribute__((weak)) void* __tsan_create_fiber(unsigned flags);
__attribute__((weak)) void __tsan_switch_to_fiber(void* fiber, unsigned flags);
__attribute__((weak)) void __tsan_acquire(void* address);
__attribute__((weak)) void __tsan_release(void* address);
}

namespace emulator {
namespace {

constexpr std::size_t kGuardBytes = 16 * 1024;  // at the end of each stack; a write there is a fault

}  // namespace

Fibers::Fibers(unsigned count, void (*enter)()) : fibers_(count), enter_(enter) {
  const std::size_t bytes = count * kStackBytes;
  void* const found = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) {
    return;
  }
  stacks_ = static_cast<char*>(found);
  for (unsigned number = 0; number < count; ++number) {
    mprotect(stacks_ + number * kStackBytes, kGuardBytes, PROT_NONE);
  }
}

void Fibers::prepare(unsigned number) {
  Fiber& fiber = fibers_[number];
  if (__tsan_create_fiber != nullptr && fiber.in_sanitizer == nullptr) {
    fiber.in_sanitizer = __tsan_create_fiber(0);
  }
  if (fiber.has_begun) {
    return;
  }
  getcontext(&fiber.context);
  fiber.context.uc_stack.ss_sp = stacks_ + number * kStackBytes;
  fiber.context.uc_stack.ss_size = kStackBytes;
  fiber.context.uc_link = nullptr;
  makecontext(&fiber.context, enter_, 0);
}

void Fibers::resume(unsigned number) {
  current_ = number;
  Fiber& fiber = fibers_[number];
  if (__tsan_switch_to_fiber != nullptr) {
    resumer_in_sanitizer_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(fiber.in_sanitizer, 1);  // 1: the switch itself does not order accesses
  }
  if (_setjmp(resumer_) != 0) {
    return;
  }
  if (fiber.has_begun) {
    _longjmp(fiber.jump, 1);
  }
  fiber.has_begun = true;
  setcontext(&fiber.context);
}

void Fibers::leave() {
  Fiber& fiber = fibers_[current_];
  if (__tsan_switch_to_fiber != nullptr) {
    __tsan_switch_to_fiber(resumer_in_sanitizer_, 1);
  }
  if (_setjmp(fiber.jump) == 0) {
    _longjmp(resumer_, 1);
  }
}

void Fibers::abandon() {
  for (Fiber& fiber : fibers_) {
    fiber.has_begun = false;
  }
}

void Fibers::release(void* meeting) {
  if (__tsan_release != nullptr) {
    __tsan_release(meeting);
  }
}

void Fibers::acquire(void* meeting) {
  if (__tsan_acquire != nullptr) {
    __tsan_acquire(meeting);
  }
}

}  // namespace emulator
