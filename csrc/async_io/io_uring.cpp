#include "queue.h"

#if defined(__linux__) && __has_include(<linux/io_uring.h>)
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace anyaccel::async_io {
namespace {

int enter(int file, unsigned to_start, unsigned to_end) {
  return static_cast<int>(
      syscall(__NR_io_uring_enter, file, to_start, to_end, IORING_ENTER_GETEVENTS, nullptr, std::size_t{0}));
}

unsigned* at(void* begin, unsigned offset) { return reinterpret_cast<unsigned*>(static_cast<char*>(begin) + offset); }

class Ring final : public Queue {
 public:
  Ring() = default;
  ~Ring() override;

  bool open(unsigned depth);
  void add(const Transfer& transfer) override;
  bool wait() override;
  bool take(Result& result) override;

 private:
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

bool Ring::open(unsigned depth) {
  io_uring_params asked{};
  file_ = static_cast<int>(syscall(__NR_io_uring_setup, depth, &asked));
  if (file_ < 0) {
    return false;
  }
  constexpr unsigned kNeeded = IORING_FEAT_SINGLE_MMAP | IORING_FEAT_NODROP | IORING_FEAT_RW_CUR_POS;  // Linux 5.6
  if ((asked.features & kNeeded) != kNeeded) {
    return false;
  }
  const auto mapped = [&](std::size_t bytes, off_t what) {
    void* const begin = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file_, what);
    return begin == MAP_FAILED ? Mapping{} : Mapping{begin, bytes};
  };
  const std::size_t submitted = asked.sq_off.array + asked.sq_entries * sizeof(unsigned);
  const std::size_t done = asked.cq_off.cqes + asked.cq_entries * sizeof(io_uring_cqe);
  queues_ = mapped(submitted > done ? submitted : done, IORING_OFF_SQ_RING);
  entries_ = mapped(asked.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES);
  void* const queues = queues_.begin;
  if (queues == nullptr || entries_.begin == nullptr) {
    return false;
  }
  submitted_tail_ = at(queues, asked.sq_off.tail);
  submitted_mask_ = at(queues, asked.sq_off.ring_mask);
  submitted_numbers_ = at(queues, asked.sq_off.array);
  done_head_ = at(queues, asked.cq_off.head);
  done_tail_ = at(queues, asked.cq_off.tail);
  done_mask_ = at(queues, asked.cq_off.ring_mask);
  done_ = at(queues, asked.cq_off.cqes);
  return true;
}

Ring::~Ring() {
  for (const Mapping& mapping : {queues_, entries_}) {
    if (mapping.begin != nullptr) {
      munmap(mapping.begin, mapping.bytes);
    }
  }
  if (file_ >= 0) {
    close(file_);
  }
}

void Ring::add(const Transfer& transfer) {
  const unsigned tail = *submitted_tail_;  // only this thread writes it
  const unsigned number = tail & *submitted_mask_;
  io_uring_sqe& entry = static_cast<io_uring_sqe*>(entries_.begin)[number];
  std::memset(&entry, 0, sizeof(entry));
  entry.opcode = transfer.is_read ? IORING_OP_READ : IORING_OP_WRITE;
  entry.fd = transfer.file;
  entry.addr = reinterpret_cast<std::uint64_t>(transfer.memory);
  entry.len = transfer.bytes;
  entry.off = static_cast<std::uint64_t>(transfer.offset);
  entry.user_data = transfer.tag;
  submitted_numbers_[number] = number;
  __atomic_store_n(submitted_tail_, tail + 1, __ATOMIC_RELEASE);
  ++added_;
}

bool Ring::wait() {
  while (added_ > 0 || *done_head_ == __atomic_load_n(done_tail_, __ATOMIC_ACQUIRE)) {
    const int started = enter(file_, added_, 1);
    if (started >= 0) {
      added_ -= static_cast<unsigned>(started);
    } else if (errno != EINTR && errno != EAGAIN && errno != EBUSY) {
      return false;
    }
  }
  return true;
}

bool Ring::take(Result& result) {
  const unsigned head = *done_head_;
  if (head == __atomic_load_n(done_tail_, __ATOMIC_ACQUIRE)) {
    return false;
  }
  const io_uring_cqe& entry = static_cast<const io_uring_cqe*>(done_)[head & *done_mask_];
  result = {entry.user_data, entry.res};
  __atomic_store_n(done_head_, head + 1, __ATOMIC_RELEASE);
  return true;
}

}  // namespace

std::unique_ptr<Queue> open_io_uring(unsigned depth) {
  auto ring = std::make_unique<Ring>();
  return ring->open(depth) ? std::move(ring) : nullptr;
}

}  // namespace anyaccel::async_io

#else

namespace anyaccel::async_io {

std::unique_ptr<Queue> open_io_uring(unsigned) { return nullptr; }

}  // namespace anyaccel::async_io

#endif
