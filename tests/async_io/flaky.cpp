// Replaces the kernel's queues and two system calls: a kernel that moves fewer bytes than requested, is interrupted,
// sometimes rejects O_DIRECT or a block, and ends transfers in any order.

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <memory>
#include <random>
#include <vector>

#include "queue.h"

namespace {

std::atomic<unsigned> seeds{1};
thread_local std::minstd_rand numbers{seeds++};

bool one_in(unsigned count) { return numbers() % count == 0; }

std::size_t shortened(int file, std::size_t bytes) {
  const bool is_direct = (fcntl(file, F_GETFL) & O_DIRECT) != 0;
  const std::size_t unit = is_direct ? 512 : 1;
  return bytes > unit && one_in(3) ? (1 + numbers() % (bytes / unit)) * unit : bytes;
}

// The error to return instead of a transfer, or 0.
int error_for(int file) {
  if (one_in(8)) {
    return one_in(2) ? EINTR : EAGAIN;
  }
  return (fcntl(file, F_GETFL) & O_DIRECT) != 0 && one_in(50) ? EINVAL : 0;
}

}  // namespace

extern "C" ssize_t flaky_pread(int file, void* memory, std::size_t bytes, off_t offset) {
  errno = error_for(file);
  return errno != 0 ? -1 : pread(file, memory, shortened(file, bytes), offset);
}

extern "C" ssize_t flaky_pwrite(int file, const void* memory, std::size_t bytes, off_t offset) {
  errno = error_for(file);
  return errno != 0 ? -1 : pwrite(file, memory, shortened(file, bytes), offset);
}

namespace anyaccel::async_io {
namespace {

class FlakyQueue final : public Queue {
 public:
  void add(const Transfer& transfer) override { added_.push_back(transfer); }

  bool wait() override {
    while (done_.empty()) {
      std::size_t place = numbers() % added_.size();
      const Transfer one = added_[place];
      added_.erase(added_.begin() + static_cast<std::ptrdiff_t>(place));
      if (one_in(50)) {  // as the kernel's AIO does with files of some drivers
        done_.push_back({one.tag, -EINVAL});
        continue;
      }
      const ssize_t moved = one.is_read ? flaky_pread(one.file, one.memory, one.bytes, one.offset)
                                        : flaky_pwrite(one.file, one.memory, one.bytes, one.offset);
      done_.push_back({one.tag, moved < 0 ? -static_cast<std::int64_t>(errno) : moved});
    }
    return true;
  }

  bool take(Result& result) override {
    if (done_.empty()) {
      return false;
    }
    result = done_.back();
    done_.pop_back();
    return true;
  }

 private:
  std::vector<Transfer> added_;
  std::vector<Result> done_;
};

}  // namespace

std::unique_ptr<Queue> open_io_uring(unsigned) { return std::make_unique<FlakyQueue>(); }
std::unique_ptr<Queue> open_kernel_aio(unsigned) { return nullptr; }

}  // namespace anyaccel::async_io
