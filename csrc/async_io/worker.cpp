#include "worker.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

namespace anyaccel::async_io {
namespace {

constexpr std::int64_t kMostAtOnce = std::int64_t{1} << 30;  // a system call transfers 2 GiB - 4 KiB at most

bool is_aligned(std::int64_t value) { return value % kAlignment == 0; }

std::int64_t moved_at_once(const Transfer& transfer) {
  const ssize_t moved = transfer.is_read ? pread(transfer.file, transfer.memory, transfer.bytes, transfer.offset)
                                         : pwrite(transfer.file, transfer.memory, transfer.bytes, transfer.offset);
  return moved < 0 ? -static_cast<std::int64_t>(errno) : moved;
}

}  // namespace

Worker::Worker(Handle& handle, std::unique_ptr<Queue> queue, int depth)
    : handle_(handle), queue_(std::move(queue)), slots_(queue_ == nullptr ? 1 : static_cast<std::size_t>(depth)) {}

void Worker::run() {
  for (;;) {
    for (Slot& slot : slots_) {
      Block block{};
      if (slot.is_used) {
        continue;
      }
      if (!handle_.next(block, used_ == 0)) {
        if (used_ == 0) {
          return;  // the handle is closing
        }
        break;
      }
      begin(slot, block);
    }
    if (used_ == 0) {
      continue;  // every block ended immediately
    }
    if (!queue_->wait()) {
      fail_all(errno);
      continue;
    }
    for (Result result{}; queue_->take(result);) {
      Slot& slot = slots_[result.tag];
      if (receive(slot, result.moved)) {
        go_on(slot);
      }
    }
  }
}

void Worker::begin(Slot& slot, const Block& block) {
  slot.block = block;
  slot.moved = 0;
  slot.is_refused = false;
  slot.is_used = true;
  ++used_;
  if (!handle_.is_wanted(block)) {
    finish(slot, 0, false);
    return;
  }
  go_on(slot);
}

void Worker::go_on(Slot& slot) {
  for (;;) {
    const Transfer transfer = next_transfer(slot);
    if (transfer.memory == nullptr) {
      finish(slot, ENOMEM, true);
      return;
    }
    if (queue_ != nullptr && !slot.is_refused) {
      queue_->add(transfer);
      return;
    }
    if (!receive(slot, moved_at_once(transfer))) {
      return;
    }
  }
}

Transfer Worker::next_transfer(Slot& slot) {
  const Operation& operation = *slot.block.operation;
  char* memory = operation.memory + slot.block.begin + slot.moved;
  const std::int64_t offset = operation.offset + slot.block.begin + slot.moved;
  const std::int64_t bytes = std::min(slot.block.bytes - slot.moved, kMostAtOnce);
  const int direct = std::atomic_ref(slot.block.operation->direct).load(std::memory_order_relaxed);
  slot.is_direct = direct >= 0 && is_aligned(offset) && is_aligned(bytes);
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  slot.is_bounced = slot.is_direct && address % static_cast<std::uintptr_t>(operation.memory_alignment) != 0;
  slot.asked = static_cast<std::uint32_t>(bytes);
  if (slot.is_bounced) {
    if (slot.bounce_bytes < bytes) {
      slot.bounce.reset(static_cast<char*>(std::aligned_alloc(kAlignment, static_cast<std::size_t>(bytes))));
      slot.bounce_bytes = slot.bounce == nullptr ? 0 : bytes;
    }
    if (slot.bounce != nullptr && !operation.is_read) {
      std::memcpy(slot.bounce.get(), memory, static_cast<std::size_t>(bytes));
    }
    memory = slot.bounce.get();
  }
  const int file = slot.is_direct ? direct : operation.buffered;
  return {operation.is_read, file, memory, slot.asked, offset, static_cast<std::uint64_t>(&slot - slots_.data())};
}

bool Worker::receive(Slot& slot, std::int64_t moved) {
  Operation& operation = *slot.block.operation;
  if (moved == -EINTR || moved == -EAGAIN) {
    return true;
  }
  if (moved == -EINVAL && slot.is_direct) {
    std::atomic_ref(operation.direct).store(-1, std::memory_order_relaxed);  // open took the flag, I/O rejects it
    return true;
  }
  if ((moved == -EINVAL || moved == -EOPNOTSUPP) && queue_ != nullptr && !slot.is_refused) {
    slot.is_refused = true;  // a file that the queue does not serve, such as a device
    return true;
  }
  if (moved <= 0) {
    finish(slot, moved == 0 && !operation.is_read ? ENOSPC : -moved, true);
    return false;
  }
  if (slot.is_bounced && operation.is_read) {
    std::memcpy(operation.memory + slot.block.begin + slot.moved, slot.bounce.get(), static_cast<std::size_t>(moved));
  }
  slot.moved += moved;
  if (slot.moved < slot.block.bytes) {
    return true;
  }
  finish(slot, 0, false);
  return false;
}

void Worker::finish(Slot& slot, std::int64_t error, bool has_failed) {
  slot.is_used = false;
  --used_;
  handle_.end(slot.block, slot.moved, error, has_failed);
}

void Worker::fail_all(std::int64_t error) {
  for (Slot& slot : slots_) {
    if (slot.is_used) {
      finish(slot, error, true);
    }
  }
}

}  // namespace anyaccel::async_io
