#include "spanning_heads.h"

#include <algorithm>

#include "spanning_checks.h"

namespace anyaccel::comm {

int64_t Heads::length(int64_t count, int64_t item_bytes) {
  return std::min(std::clamp(count, int64_t{0}, kMost) * item_bytes, kMost);
}

void Heads::send_to(int rank, const at::Tensor& head) {
  Tensors bytes{head};
  works_.push_back(everyone_.send(bytes, rank, kFirstHeadTag + static_cast<int>(head.numel())));
}

void Heads::receive_from(int rank, const at::Tensor& head) {
  Tensors bytes{head};
  works_.push_back(everyone_.recv(bytes, rank, kFirstHeadTag + static_cast<int>(head.numel())));
}

// Each rank begins with another one, so that none gets everything at once.
void Heads::begin(const Tensors& sends, const Tensors& receives) {
  const int size = static_cast<int>(is_here_.size());
  arriving_.resize(size);
  for (int distance = 1; distance < size; ++distance) {
    const int from = next(size - distance);
    if (is_here_[from]) continue;
    begun_[from].received = length(receives[from].numel(), receives[from].element_size());
    arriving_[from] = at::empty({begun_[from].received}, at::kByte);
    if (begun_[from].received > 0) receive_from(from, arriving_[from]);
  }
  for (int distance = 1; distance < size; ++distance) {
    const int to = next(distance);
    if (is_here_[to]) continue;
    begun_[to].sent = length(sends[to].numel(), sends[to].element_size());
    if (begun_[to].sent > 0) send_to(to, as_bytes(sends[to]).narrow(0, 0, begun_[to].sent));
  }
}

void Heads::wait() {
  for (const WorkPtr& work : works_) comm::finish(work);
  works_.clear();
}

void Heads::finish(const Tensors& receives) {
  wait();
  for (std::size_t rank = 0; rank < arriving_.size(); ++rank) {
    if (begun_[rank].received > 0) as_bytes(receives[rank]).narrow(0, 0, begun_[rank].received).copy_(arriving_[rank]);
  }
}

void Heads::settle(const std::vector<Lengths>& others) {
  for (int rank = 0; rank < static_cast<int>(others.size()); ++rank) {
    if (is_here_[rank]) continue;
    const Lengths &own = begun_[rank], &other = others[rank];
    if (other.sent > 0 && other.sent != own.received) receive_from(rank, at::empty({other.sent}, at::kByte));
    if (other.received > 0 && other.received != own.sent) send_to(rank, at::zeros({other.received}, at::kByte));
  }
  wait();
}

}  // namespace anyaccel::comm
