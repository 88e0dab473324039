// A queue of reads and writes that the kernel works on at once: io_uring by its system calls, without liburing.

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

class Ring {
 public:
  // Returns null where the kernel has no io_uring, or does not allow it.
  static std::unique_ptr<Ring> open(unsigned depth);

  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // Adds a transfer to those of the next `wait`; there are never more than `depth` under way.
  void add(const Transfer& transfer);

  // Starts what was added, and returns when one transfer or more has ended; false where the kernel refuses.
  bool wait();

  // Takes the result of a transfer that has ended; false when there is none.
  bool take(Result& result);

 private:
  Ring() = default;

  struct Mapping {
    void* begin = nullptr;
    std::size_t bytes = 0;
  };

  int file_ = -1;
  Mapping queues_, entries_;
  unsigned* submitted_tail_ = nullptr;
  unsigned* submitted_mask_ = nullptr;
  unsigned* submitted_numbers_ = nullptr;
  unsigned* done_head_ = nullptr;
  unsigned* done_tail_ = nullptr;
  unsigned* done_mask_ = nullptr;
  void* done_ = nullptr;
  unsigned added_ = 0;
};

}  // namespace anyaccel::async_io
