// Reads and writes between memory and files, split into blocks that threads process, each with its own kernel queue.

#pragma once

#include <condition_variable>
#include <cstdint>
#include <limits>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace anyaccel::async_io {

// The alignment that O_DIRECT requires of addresses, offsets and sizes: no device has larger logical blocks.
inline constexpr std::int64_t kAlignment = 4096;

// How an operation went. Its owner keeps it until the operation has ended.
struct OperationOutcome {
  std::int64_t state = 0;  // kBegun once the operation will end, then kEnded; threads change it at any time
  std::int64_t has_failed = 0;
  std::int64_t error = 0;   // of the first block that failed: errno; 0 if the file ended
  std::int64_t offset = 0;  // where it failed, in the file
  std::int64_t moved = 0;   // bytes transferred, at any position

  static constexpr std::int64_t kBegun = 1, kEnded = 2;
  // What the operation has written to its memory and to this is visible when this is true.
  bool has_ended() const;
};

// `best` takes the first of the others that works here.
enum class Backend : std::int32_t { best, io_uring, kernel_aio, threads };

// One read or write; it lives until every block of it has ended.
struct Operation {
  OperationOutcome* outcome;
  bool is_read;
  int direct;    // a file opened with O_DIRECT; -1 if there is none. Threads change it at any time
  int buffered;  // the same file, opened without O_DIRECT
  char* memory;
  std::int64_t bytes;
  std::int64_t offset;

  // Of the handle:
  std::int64_t memory_alignment = kAlignment;                         // the address alignment for O_DIRECT
  std::pair<std::uint64_t, std::uint64_t> file = {};                  // its device and number
  std::int64_t begun = 0;                                             // bytes of blocks that a thread has taken
  std::int64_t ended = 0;                                             // bytes of blocks that have ended
  std::int64_t failed_at = std::numeric_limits<std::int64_t>::max();  // the first block that has failed
  int earlier = 0;                                                    // operations that must end before this one begins
  std::vector<Operation*> followers = {};                             // operations that this one is an earlier one of
  Operation* next_ready = nullptr;
  std::list<std::unique_ptr<Operation>>::iterator place = {};
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

  // Starts an operation; the memory, the files and the outcome must stay valid until it has ended. It begins when all
  // operations that were started before have ended that move the same bytes of a file or of the memory, unless none of
  // them changes these bytes.
  void start(const Operation& operation);

  // Waits for every operation.
  void wait();

 private:
  friend class Worker;

  // Called by the threads, without a lock.
  bool next(Block& block, bool may_wait);
  void end(const Block& block, std::int64_t moved, std::int64_t error, bool has_failed);
  bool is_wanted(const Block& block);

  void make_ready(Operation& operation);
  Block next_block(Operation& operation) const;
  void close();

  std::mutex guard_;
  std::condition_variable has_work_, has_ended_;
  std::list<std::unique_ptr<Operation>> under_way_;
  Operation* first_ready_ = nullptr;  // operations with blocks that no thread has taken
  Operation* last_ready_ = nullptr;
  std::int64_t block_bytes_;
  bool is_closing_ = false;
  Backend backend_ = Backend::threads;
  std::vector<std::thread> threads_;
};

}  // namespace anyaccel::async_io
