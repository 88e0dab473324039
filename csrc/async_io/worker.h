// A thread of a Handle: it takes blocks, keeps several of them in flight, and completes partial transfers.

#pragma once

#include <cstdlib>
#include <memory>
#include <vector>

#include "handle.h"
#include "queue.h"

namespace anyaccel::async_io {

class Worker {
 public:
  Worker(Handle& handle, std::unique_ptr<Queue> queue, int depth);

  // Returns when the handle is closing and no work is left.
  void run();

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };

  // A block in flight.
  struct Slot {
    Block block{};
    std::int64_t moved = 0;
    std::uint32_t asked = 0;
    bool is_direct = false;
    bool is_bounced = false;
    bool is_refused = false;  // by the queue: a system call moves the block
    bool is_used = false;
    std::unique_ptr<char, Free> bounce;  // an aligned buffer, if the memory is not aligned
    std::int64_t bounce_bytes = 0;
  };

  void begin(Slot& slot, const Block& block);
  // Requests the rest of a slot's block, from the kernel's queue or directly.
  void go_on(Slot& slot);
  Transfer next_transfer(Slot& slot);
  // Records the transferred bytes, or an error; false when the block has ended.
  bool receive(Slot& slot, std::int64_t moved);
  void finish(Slot& slot, std::int64_t error, bool has_failed);
  void fail_all(std::int64_t error);

  Handle& handle_;
  std::unique_ptr<Queue> queue_;
  std::vector<Slot> slots_;
  int used_ = 0;
};

}  // namespace anyaccel::async_io
