#include "handle.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
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
  auto owned = std::make_unique<Operation>(operation);
  owned->memory_alignment = memory_alignment_of(owned->direct);
  std::vector<Block> blocks;
  for (std::int64_t begin = 0; begin < owned->bytes;) {
    // Blocks end at block boundaries of the file: all but the first and the last are aligned, and no two share a page.
    const std::int64_t place = owned->offset + begin;
    const std::int64_t unaligned = place % kAlignment;
    const std::int64_t left = owned->bytes - begin;
    std::int64_t bytes = unaligned == 0 ? block_bytes_ : kAlignment - unaligned;
    if (left < bytes) {
      bytes = unaligned == 0 && left > kAlignment ? left / kAlignment * kAlignment : left;
    }
    blocks.push_back({owned.get(), begin, bytes});
    begin += bytes;
  }
  const std::lock_guard lock(guard_);
  if (blocks.empty()) {
    ++ended_;
    return;
  }
  owned->blocks_left = static_cast<std::int64_t>(blocks.size());
  waiting_.insert(waiting_.end(), blocks.begin(), blocks.end());
  ++under_way_;
  static_cast<void>(owned.release());  // the end of its last block deletes it
  has_work_.notify_all();
}

std::int64_t Handle::wait() {
  std::unique_lock lock(guard_);
  has_ended_.wait(lock, [this] { return under_way_ == 0; });
  const std::int64_t ended = ended_;
  ended_ = 0;
  return ended;
}

bool Handle::take(Failure& failure) {
  const std::lock_guard lock(guard_);
  if (failures_.empty()) {
    return false;
  }
  failure = failures_.front();
  failures_.pop_front();
  return true;
}

bool Handle::next(Block& block, bool may_wait) {
  std::unique_lock lock(guard_);
  if (may_wait) {
    has_work_.wait(lock, [this] { return is_closing_ || !waiting_.empty(); });
  }
  if (waiting_.empty()) {
    return false;
  }
  block = waiting_.front();
  waiting_.pop_front();
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
  operation.moved += moved;
  if (has_failed && block.begin < operation.failed_at) {
    operation.failed_at = block.begin;
    std::erase_if(failures_, [&](const Failure& failure) { return failure.operation == operation.number; });
    failures_.push_back({operation.number, error, operation.offset + block.begin + moved, operation.bytes, 0});
  }
  if (--operation.blocks_left > 0) {
    return;
  }
  for (Failure& failure : failures_) {
    if (failure.operation == operation.number) {
      failure.moved = operation.moved;
    }
  }
  delete &operation;
  ++ended_;
  if (--under_way_ == 0) {
    has_ended_.notify_all();
  }
}

}  // namespace anyaccel::async_io
