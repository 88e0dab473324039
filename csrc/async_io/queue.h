// A queue of reads and writes that the kernel processes concurrently. It uses system calls directly and needs no
// library.

#pragma once

#include <cstdint>
#include <memory>

namespace anyaccel::async_io {

// What is asked of the kernel; `tag` comes back with the result.
struct Transfer {
  bool is_read;
  int file;
  void* memory;
  std::uint32_t bytes;
  std::int64_t offset;
  std::uint64_t tag;
};

struct Result {
  std::uint64_t tag;
  std::int64_t moved;  // bytes, or a negative error number
};

class Queue {
 public:
  virtual ~Queue() = default;
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  // Adds a transfer to those of the next `wait`; there are never more than the depth under way.
  virtual void add(const Transfer& transfer) = 0;

  // Starts what was added, and returns when one transfer or more has ended; false where the kernel refuses.
  virtual bool wait() = 0;

  // Takes the result of a transfer that has ended; false when there is none.
  virtual bool take(Result& result) = 0;

 protected:
  Queue() = default;
};

// Each returns null where the kernel has no such queue, or does not allow it.
std::unique_ptr<Queue> open_io_uring(unsigned depth);
std::unique_ptr<Queue> open_kernel_aio(unsigned depth);

}  // namespace anyaccel::async_io
