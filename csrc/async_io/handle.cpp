#include "handle.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "queue.h"
#include "worker.h"

namespace anyaccel::async_io {
namespace {

constexpr std::int64_t kMostUnderWay = std::int64_t{32} << 20;  // bytes per thread, which may need as much memory
constexpr int kThreadsInPlaceOfAQueue = 8;

// Blocks signals in new threads: the program's own threads handle them.
class NoSignals {
 public:
  NoSignals() {
    sigset_t every;
    sigfillset(&every);
    pthread_sigmask(SIG_SETMASK, &every, &before_);
  }
  ~NoSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_{};
};

// The address alignment that the file system requires for O_DIRECT, if the kernel reports it (Linux 6.1).
std::int64_t memory_alignment_of(int direct) {
#ifdef STATX_DIOALIGN
  struct statx known{};
  if (direct >= 0 && statx(direct, "", AT_EMPTY_PATH, STATX_DIOALIGN, &known) == 0 &&
      (known.stx_mask & STATX_DIOALIGN) != 0 && known.stx_dio_mem_align > 0) {
    return known.stx_dio_mem_align;
  }
#endif
  return direct >= 0 ? kAlignment : 1;
}

std::pair<std::uint64_t, std::uint64_t> identity_of(int file) {
  struct stat found{};
  return fstat(file, &found) == 0 ? std::pair<std::uint64_t, std::uint64_t>{found.st_dev, found.st_ino}
                                  : std::pair<std::uint64_t, std::uint64_t>{};
}

bool overlap(std::uintptr_t first, std::uintptr_t second, std::int64_t first_bytes, std::int64_t second_bytes) {
  return first < second + static_cast<std::uintptr_t>(second_bytes) &&
         second < first + static_cast<std::uintptr_t>(first_bytes);
}

// Whether it matters which of two operations comes first: a write changes the file, and a read the memory.
bool have_one_order(const Operation& first, const Operation& second) {
  const bool changes_file = first.file == second.file && !(first.is_read && second.is_read);
  const bool changes_memory = first.is_read || second.is_read;
  return (changes_file && overlap(static_cast<std::uintptr_t>(first.offset), static_cast<std::uintptr_t>(second.offset),
                                  first.bytes, second.bytes)) ||
         (changes_memory && overlap(reinterpret_cast<std::uintptr_t>(first.memory),
                                    reinterpret_cast<std::uintptr_t>(second.memory), first.bytes, second.bytes));
}

using Open = std::unique_ptr<Queue> (*)(unsigned depth);

constexpr std::pair<Backend, Open> kQueues[] = {{Backend::io_uring, open_io_uring},
                                                {Backend::kernel_aio, open_kernel_aio}};

// Opens a queue for each thread; returns none where one of them cannot be had.
std::vector<std::unique_ptr<Queue>> one_for_each(int threads, Open open, unsigned depth) {
  std::vector<std::unique_ptr<Queue>> queues;
  for (int i = 0; i < threads; ++i) {
    queues.push_back(open(depth));
    if (queues.back() == nullptr) {
      return {};
    }
  }
  return queues;
}

}  // namespace

bool OperationOutcome::has_ended() const {
  return std::atomic_ref(const_cast<std::int64_t&>(state)).load(std::memory_order_acquire) == kEnded;
}

Handle::Handle(std::int64_t block_bytes, int depth, int threads, Backend backend)
    : block_bytes_((block_bytes + kAlignment - 1) / kAlignment * kAlignment) {
  const int fitting = static_cast<int>(std::clamp<std::int64_t>(kMostUnderWay / block_bytes_, 2, 4096));
  const int slots = std::min(depth, fitting);
  std::vector<std::unique_ptr<Queue>> queues;
  for (const auto& [kind, open] : kQueues) {
    if (queues.empty() && (backend == kind || backend == Backend::best)) {
      queues = one_for_each(threads, open, static_cast<unsigned>(slots));
      backend_ = queues.empty() ? Backend::threads : kind;
    }
  }
  if (queues.empty()) {
    queues.resize(static_cast<std::size_t>(std::max(threads, std::min(slots, kThreadsInPlaceOfAQueue))));
  }
  const NoSignals blocked;
  try {
    for (std::unique_ptr<Queue>& queue : queues) {
      auto worker = std::make_shared<Worker>(*this, std::move(queue), slots);
      threads_.emplace_back([worker] { worker->run(); });
    }
  } catch (...) {
    close();
    throw;
  }
}

Handle::~Handle() {
  wait();
  close();
}

void Handle::close() {
  {
    const std::lock_guard lock(guard_);
    is_closing_ = true;
  }
  has_work_.notify_all();
  for (std::thread& thread : threads_) {
    thread.join();
  }
}

void Handle::start(const Operation& operation) {
  std::list<std::unique_ptr<Operation>> one;
  one.push_back(std::make_unique<Operation>(operation));
  Operation& started = *one.front();
  started.place = one.begin();
  started.memory_alignment = memory_alignment_of(started.direct);
  started.file = identity_of(started.buffered);
  const std::lock_guard lock(guard_);
  std::vector<Operation*> earlier;
  for (const std::unique_ptr<Operation>& other : under_way_) {
    if (have_one_order(*other, started)) {
      earlier.push_back(other.get());
      other->followers.reserve(other->followers.size() + 1);
    }
  }
  std::atomic_ref(started.outcome->state).store(OperationOutcome::kBegun, std::memory_order_relaxed);
  if (started.bytes == 0) {
    std::atomic_ref(started.outcome->state).store(OperationOutcome::kEnded, std::memory_order_release);
    return;
  }
  for (Operation* other : earlier) {
    other->followers.push_back(&started);  // there is room
    ++started.earlier;
  }
  under_way_.splice(under_way_.end(), one);
  if (started.earlier == 0) {
    make_ready(started);
  }
}

void Handle::wait() {
  std::unique_lock lock(guard_);
  has_ended_.wait(lock, [this] { return under_way_.empty(); });
}

void Handle::make_ready(Operation& operation) {
  (last_ready_ == nullptr ? first_ready_ : last_ready_->next_ready) = &operation;
  last_ready_ = &operation;
  has_work_.notify_all();
}

// Blocks end at block boundaries of the file: all but the first and the last are aligned, and no two share a page.
Block Handle::next_block(Operation& operation) const {
  const std::int64_t unaligned = (operation.offset + operation.begun) % kAlignment;
  const std::int64_t left = operation.bytes - operation.begun;
  std::int64_t bytes = unaligned == 0 ? block_bytes_ : kAlignment - unaligned;
  if (left < bytes) {
    bytes = unaligned == 0 && left > kAlignment ? left / kAlignment * kAlignment : left;
  }
  return {&operation, operation.begun, bytes};
}

bool Handle::next(Block& block, bool may_wait) {
  std::unique_lock lock(guard_);
  if (may_wait) {
    has_work_.wait(lock, [this] { return is_closing_ || first_ready_ != nullptr; });
  }
  if (first_ready_ == nullptr) {
    return false;
  }
  Operation& operation = *first_ready_;
  block = next_block(operation);
  operation.begun += block.bytes;
  if (operation.begun == operation.bytes) {
    first_ready_ = operation.next_ready;
    last_ready_ = first_ready_ == nullptr ? nullptr : last_ready_;
  }
  return true;
}

// Everything before the first failure is transferred, in whatever order the threads come to it.
bool Handle::is_wanted(const Block& block) {
  const std::lock_guard lock(guard_);
  return block.begin < block.operation->failed_at;
}

void Handle::end(const Block& block, std::int64_t moved, std::int64_t error, bool has_failed) {
  const std::lock_guard lock(guard_);
  Operation& operation = *block.operation;
  OperationOutcome& outcome = *operation.outcome;
  outcome.moved += moved;
  if (has_failed && block.begin < operation.failed_at) {
    operation.failed_at = block.begin;
    outcome.has_failed = 1;
    outcome.error = error;
    outcome.offset = operation.offset + block.begin + moved;
  }
  operation.ended += block.bytes;
  if (operation.ended < operation.bytes) {
    return;
  }
  for (Operation* follower : operation.followers) {
    if (--follower->earlier == 0) {
      make_ready(*follower);
    }
  }
  under_way_.erase(operation.place);
  std::atomic_ref(outcome.state).store(OperationOutcome::kEnded, std::memory_order_release);
  if (under_way_.empty()) {
    has_ended_.notify_all();
  }
}

}  // namespace anyaccel::async_io
