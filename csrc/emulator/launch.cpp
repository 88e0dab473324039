// The functions that anyaccel.op_builder.cpu.emulator calls through ctypes.

#include <pthread.h>

#include <atomic>
#include <cstdio>
#include <mutex>
#include <string>

#include "accesses.h"
#include "scheduler.h"
#include "tensors.h"

extern "C" __attribute__((weak)) void* __tsan_get_current_fiber();

namespace {

std::mutex& launches() {
  static std::mutex* const one = [] {
    auto* const made = new std::mutex;  // never destroyed, like the scheduler
    pthread_atfork([] { launches().lock(); }, [] { launches().unlock(); }, [] { launches().unlock(); });
    return made;
  }();
  return *one;
}

}  // namespace

struct Request {
  const emulator::Kernel* kernel;
  emulator::Launch launch;
  const emulator::Tensor* tensors;
  std::size_t tensor_count;
};

static std::atomic<const Request*> running{nullptr};

// Runs a launch. Returns the error, valid until this thread's next call, or null.
extern "C" EMULATOR_EXPORT const char* emulator_run(const Request* request) {
  static thread_local std::string problem;
  if (__tsan_get_current_fiber != nullptr) {
    return "ThreadSanitizer is in this process and would replace the emulator's checks";
  }
  const std::lock_guard lock(launches());
  emulator::set_tensors(request->tensors, request->tensor_count);
  running = request;
  problem = emulator::run(*request->kernel, request->launch);
  running = nullptr;
  std::fflush(stdout);  // like a GPU, whose printf appears when the host waits for the kernel
  return problem.empty() ? nullptr : problem.c_str();
}

// Ends a launch at its next memory access, if it has begun.
extern "C" EMULATOR_EXPORT void emulator_interrupt(const Request* request) {
  if (running == request) {
    emulator::accesses::interrupt();
  }
}
