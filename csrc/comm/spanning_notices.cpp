#include "spanning_notices.h"

#include <algorithm>

#include "spanning_checks.h"

namespace anyaccel::comm {

// The announcement of a receive arrives during the operations before it: one may be over in half the time of a round
// trip.
constexpr std::size_t kPostedAhead = 4;

void Notices::post_receives(int64_t bytes) {
  for (std::size_t host = 0; host < coming_.size(); ++host) {
    while (static_cast<int>(host) != own_ && coming_[host].size() < kPostedAhead) {
      Tensors place{at::empty({bytes}, at::kByte)};
      coming_[host].push_back({place[0], leaders_.recv(place, static_cast<int>(host), 0)});
    }
  }
}

void Notices::send(const at::Tensor& notice) {
  post_receives(notice.numel());
  Tensors bytes{notice};
  for (std::size_t host = 0; host < coming_.size(); ++host) {
    if (static_cast<int>(host) != own_) sent_.push_back(leaders_.send(bytes, static_cast<int>(host), 0));
  }
}

void Notices::receive(const at::Tensor& rows, milliseconds timeout) {
  timeout = std::min(timeout, kForever);
  for (std::size_t host = 0; host < coming_.size(); ++host) {
    if (static_cast<int>(host) == own_) continue;
    const Message next = coming_[host].front();
    next.work->wait(timeout);
    coming_[host].pop_front();
    rows[static_cast<int64_t>(host)].view(-1).copy_(next.bytes);
  }
  post_receives(rows[0].numel());
  for (const WorkPtr& work : sent_) work->wait(timeout);
  sent_.clear();
}

}  // namespace anyaccel::comm
