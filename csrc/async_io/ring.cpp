#include "ring.h"

#if defined(__linux__) && __has_include(<linux/io_uring.h>)
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace anyaccel::async_io {
namespace {

int enter(int file, unsigned to_start, unsigned to_end) {
  return static_cast<int>(
      syscall(__NR_io_uring_enter, file, to_start, to_end, IORING_ENTER_GETEVENTS, nullptr, std::size_t{0}));
}

unsigned* at(void* begin, unsigned offset) { return reinterpret_cast<unsigned*>(static_cast<char*>(begin) + offset); }

}  // namespace

std::unique_ptr<Ring> Ring::open(unsigned depth) {
  io_uring_params asked{};
  const int file = static_cast<int>(syscall(__NR_io_uring_setup, depth, &asked));
  if (file < 0) {
    return nullptr;
  }
  std::unique_ptr<Ring> ring(new Ring);
  ring->file_ = file;
  constexpr unsigned kNeeded = IORING_FEAT_SINGLE_MMAP | IORING_FEAT_NODROP | IORING_FEAT_RW_CUR_POS;  // Linux 5.6
  if ((asked.features & kNeeded) != kNeeded) {
    return nullptr;
  }
  const auto mapped = [&](std::size_t bytes, off_t what) {
    void* const begin = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, what);
    return begin == MAP_FAILED ? Mapping{} : Mapping{begin, bytes};
  };
  const std::size_t submitted = asked.sq_off.array + asked.sq_entries * sizeof(unsigned);
  const std::size_t done = asked.cq_off.cqes + asked.cq_entries * sizeof(io_uring_cqe);
  ring->queues_ = mapped(submitted > done ? submitted : done, IORING_OFF_SQ_RING);
  ring->entries_ = mapped(asked.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES);
  void* const queues = ring->queues_.begin;
  if (queues == nullptr || ring->entries_.begin == nullptr) {
    return nullptr;
  }
  ring->submitted_tail_ = at(queues, asked.sq_off.tail);
  ring->submitted_mask_ = at(queues, asked.sq_off.ring_mask);
  ring->submitted_numbers_ = at(queues, asked.sq_off.array);
  ring->done_head_ = at(queues, asked.cq_off.head);
  ring->done_tail_ = at(queues, asked.cq_off.tail);
  ring->done_mask_ = at(queues, asked.cq_off.ring_mask);
  ring->done_ = at(queues, asked.cq_off.cqes);
  return ring;
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

}  // namespace anyaccel::async_io

#else

namespace anyaccel::async_io {

std::unique_ptr<Ring> Ring::open(unsigned) { return nullptr; }
Ring::~Ring() = default;
void Ring::add(const Transfer&) {}
bool Ring::wait() { return false; }
bool Ring::take(Result&) { return false; }

}  // namespace anyaccel::async_io

#endif
