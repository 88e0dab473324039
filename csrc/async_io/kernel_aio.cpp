#include "queue.h"

#if defined(__linux__) && __has_include(<linux/aio_abi.h>)
#include <linux/aio_abi.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

namespace anyaccel::async_io {
namespace {

// Asynchronous with O_DIRECT only: what goes through the page cache has ended when it was submitted.
class KernelAio final : public Queue {
 public:
  KernelAio() = default;
  ~KernelAio() override {
    if (context_ != 0) {
      syscall(__NR_io_destroy, context_);  // waits for what is under way
    }
  }

  bool open(unsigned depth) {
    added_.reserve(depth);
    ended_.reserve(depth);
    places_.reserve(depth);
    events_.resize(depth);
    return syscall(__NR_io_setup, depth, &context_) == 0;
  }

  void add(const Transfer& transfer) override {
    iocb one{};
    one.aio_data = transfer.tag;
    one.aio_lio_opcode = transfer.is_read ? IOCB_CMD_PREAD : IOCB_CMD_PWRITE;
    one.aio_fildes = static_cast<std::uint32_t>(transfer.file);
    one.aio_buf = reinterpret_cast<std::uint64_t>(transfer.memory);
    one.aio_nbytes = transfer.bytes;
    one.aio_offset = transfer.offset;
    added_.push_back(one);
  }

  bool wait() override {
    submit();
    while (ended_.empty()) {
      if (under_way_ == 0) {
        sched_yield();  // not even the first was taken
        submit();
        continue;
      }
      const long count =
          syscall(__NR_io_getevents, context_, 1L, static_cast<long>(events_.size()), events_.data(), nullptr);
      if (count < 0 && errno != EINTR) {
        return false;
      }
      for (long i = 0; i < count; ++i) {
        ended_.push_back({events_[static_cast<std::size_t>(i)].data, events_[static_cast<std::size_t>(i)].res});
      }
      under_way_ -= count > 0 ? count : 0;
    }
    return true;
  }

  bool take(Result& result) override {
    if (ended_.empty()) {
      return false;
    }
    result = ended_.back();
    ended_.pop_back();
    return true;
  }

 private:
  void submit() {
    while (!added_.empty()) {
      places_.clear();
      for (iocb& one : added_) {
        places_.push_back(&one);
      }
      const long started = syscall(__NR_io_submit, context_, static_cast<long>(places_.size()), places_.data());
      if (started < 0 && errno == EAGAIN) {
        return;  // it has no memory for another one now
      }
      if (started < 0) {  // the first is refused
        ended_.push_back({added_.front().aio_data, -static_cast<std::int64_t>(errno)});
        added_.erase(added_.begin());
        continue;
      }
      under_way_ += started;
      added_.erase(added_.begin(), added_.begin() + started);
    }
  }

  aio_context_t context_ = 0;
  std::vector<iocb> added_;
  std::vector<iocb*> places_;
  std::vector<io_event> events_;
  std::vector<Result> ended_;
  long under_way_ = 0;
};

}  // namespace

std::unique_ptr<Queue> open_kernel_aio(unsigned depth) {
  auto queue = std::make_unique<KernelAio>();
  return queue->open(depth) ? std::move(queue) : nullptr;
}

}  // namespace anyaccel::async_io

#else

namespace anyaccel::async_io {

std::unique_ptr<Queue> open_kernel_aio(unsigned) { return nullptr; }

}  // namespace anyaccel::async_io

#endif
