// A futex in shared memory. One rank sleeps on it, and its peers wake it.

#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdint>
#include <ctime>

namespace anyaccel::comm {

inline timespec to_timespec(std::chrono::nanoseconds duration) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(duration);
  return {seconds.count(), (duration - seconds).count()};
}

// No wake-up is lost: the ringing rank checks for sleepers after it has published what they wait for, and a sleeper
// checks for that after it has announced itself, both with sequential consistency. System calls happen only if a rank
// sleeps.
class Doorbell {
 public:
  void ring() {
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_relaxed) != 0) {
      rings_.fetch_add(1, std::memory_order_release);
      syscall(SYS_futex, word(), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    }
  }

  // Announces a sleeper. The caller must then check its condition again, and sleep only if the bell has not rung since.
  std::uint32_t announce() {
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    const std::uint32_t heard = rings_.load(std::memory_order_acquire);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return heard;
  }

  // Returns false if a signal ended the sleep.
  bool sleep(std::uint32_t heard, std::chrono::nanoseconds at_most) {
    const timespec timeout = to_timespec(at_most);
    return syscall(SYS_futex, word(), FUTEX_WAIT, heard, &timeout, nullptr, 0) == 0 || errno != EINTR;
  }

  void leave() { sleepers_.fetch_sub(1, std::memory_order_relaxed); }

  std::uint32_t* word() { return reinterpret_cast<std::uint32_t*>(&rings_); }

 private:
  std::atomic<std::uint32_t> rings_;
  std::atomic<std::uint32_t> sleepers_;
};

static_assert(std::atomic<std::uint32_t>::is_always_lock_free && sizeof(std::atomic<std::uint32_t>) == 4);

}  // namespace anyaccel::comm
