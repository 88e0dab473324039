// A queue of reads and writes that the kernel processes in parallel: io_uring through system calls, without liburing.

#pragma once

#include <cstdint>
#include <memory>

namespace anyaccel::async_io {

// A request to the kernel; `tag` is returned with the result.
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
  // Returns null if the kernel does not have io_uring, or does not allow it.
  static std::unique_ptr<Ring> open(unsigned depth);

  ~Ring();
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

  // Queues a transfer for the next `wait`; at most `depth` may be in flight.
  void add(const Transfer& transfer);

  // Starts the queued transfers, and returns when at least one has ended; false if the kernel returns an error.
  bool wait();

  // Takes the result of an ended transfer; false when there is none.
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
