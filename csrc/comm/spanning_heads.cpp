#include "spanning_heads.h"

#include <algorithm>
#include <cstring>

namespace anyaccel::comm {

std::int64_t Heads::length(std::int64_t count, std::int64_t item_bytes) {
  return std::min(std::clamp(count, std::int64_t{0}, kMost) * item_bytes, kMost);
}

void Heads::send_to(int rank, const unsigned char* data, std::int64_t bytes) {
  sent_.push_back(everyone_.send(data, bytes, rank, kFirstTag + static_cast<int>(bytes)));
}

const unsigned char* Heads::receive_from(int rank, std::int64_t bytes) {
  OwnedMessage one(bytes);
  one.message = everyone_.receive(one.memory.get(), bytes, rank, kFirstTag + static_cast<int>(bytes));
  received_.push_back(std::move(one));
  return received_.back().memory.get();
}

// Each rank begins with another one, so that none gets everything at once.
void Heads::begin(const Blocks& sends, const Blocks& receives) {
  const int size = static_cast<int>(is_here_.size());
  arriving_.resize(size);
  for (int distance = 1; distance < size; ++distance) {
    const int from = next(size - distance);
    if (is_here_[from]) continue;
    begun_[from].received = length(receives[from].count, 1);
    if (begun_[from].received > 0) arriving_[from] = receive_from(from, begun_[from].received);
  }
  for (int distance = 1; distance < size; ++distance) {
    const int to = next(distance);
    if (is_here_[to]) continue;
    begun_[to].sent = length(sends[to].count, 1);
    if (begun_[to].sent > 0) send_to(to, sends[to].data, begun_[to].sent);
  }
}

void Heads::wait() {
  for (const OwnedMessage& one : received_) one.message->wait(timeout_);
  for (const Wire::MessagePtr& one : sent_) one->wait(timeout_);
  sent_.clear();
}

void Heads::finish(const Blocks& receives) {
  wait();
  for (std::size_t rank = 0; rank < arriving_.size(); ++rank) {
    if (arriving_[rank] != nullptr) std::memcpy(receives[rank].data, arriving_[rank], begun_[rank].received);
  }
  received_.clear();
}

void Heads::settle(const std::vector<Lengths>& others) {
  static unsigned char zeros[kMost];  // which messages may read after an error here
  for (int rank = 0; rank < static_cast<int>(others.size()); ++rank) {
    if (is_here_[rank]) continue;
    const Lengths &own = begun_[rank], &other = others[rank];
    if (other.sent > 0 && other.sent != own.received) receive_from(rank, other.sent);
    if (other.received > 0 && other.received != own.sent) send_to(rank, zeros, other.received);
  }
  wait();
  received_.clear();
}

}  // namespace anyaccel::comm
