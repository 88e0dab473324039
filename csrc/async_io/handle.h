// Reads and writes between memory and files, split into blocks that threads process, each with its own kernel queue.

#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

namespace anyaccel::async_io {

// The alignment that O_DIRECT requires of addresses, offsets and sizes: no device has larger logical blocks.
inline constexpr std::int64_t kAlignment = 4096;

// The first error of an operation.
struct Failure {
  std::int64_t operation;
  std::int64_t error;  // errno; 0 if the file ended
  std::int64_t offset;
  std::int64_t asked;  // the size of the operation in bytes
  std::int64_t moved;  // bytes transferred, at any position
};

// `best` takes the first of the others that works here.
enum class Backend : std::int32_t { best, io_uring, kernel_aio, threads };

// One read or write; it lives until every block of it has ended.
struct Operation {
  std::int64_t number;
  bool is_read;
  int direct;    // a file opened with O_DIRECT; -1 if there is none. Threads change it at any time
  int buffered;  // the same file, opened without O_DIRECT
  char* memory;
  std::int64_t bytes;
  std::int64_t offset;
  std::int64_t memory_alignment = kAlignment;  // the address alignment for O_DIRECT
  std::int64_t blocks_left = 0;
  std::int64_t moved = 0;
  std::int64_t failed_at =
      std::numeric_limits<std::int64_t>::max();  // the beginning of the first block that has failed
};

struct Block {
  Operation* operation;
  std::int64_t begin;  // the offset in the operation
  std::int64_t bytes;
};

class Handle {
 public:
  Handle(std::int64_t block_bytes, int depth, int threads, Backend backend);
  ~Handle();  // waits for operations in flight
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  // The backend in use: the requested one, or threads if the kernel does not offer it.
  Backend backend() const { return backend_; }

  // Starts an operation; the memory and the files must stay valid until it has ended.
  void start(const Operation& operation);

  // Waits for every operation; returns the number that have ended since the last call, including failed ones.
  std::int64_t wait();

  // Takes the failure of an ended operation; false when there is none.
  bool take(Failure& failure);

 private:
  friend class Worker;

  // Called by the threads, without a lock.
  bool next(Block& block, bool may_wait);
  void end(const Block& block, std::int64_t moved, std::int64_t error, bool has_failed);
  bool is_wanted(const Block& block);

  void close();

  std::mutex guard_;
  std::condition_variable has_work_, has_ended_;
  std::deque<Block> waiting_;
  std::deque<Failure> failures_;
  std::int64_t under_way_ = 0;
  std::int64_t ended_ = 0;
  std::int64_t block_bytes_;
  bool is_closing_ = false;
  Backend backend_ = Backend::threads;
  std::vector<std::thread> threads_;
};

}  // namespace anyaccel::async_io
