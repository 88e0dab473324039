// What the first ranks of the hosts tell each other before each operation: messages of one length, one from each to
// each other. Gloo sends a message only once its receive has been posted and announced. So receives are posted ahead,
// and a notice crosses the cable in one direction instead of waiting for an announcement in the other.

#pragma once

#include <deque>
#include <vector>

#include "shm_backend.h"

namespace anyaccel::comm {

class Notices {
 public:
  // `own` is this rank's host.
  Notices(c10d::Backend& leaders, int own, std::size_t hosts) : leaders_(leaders), own_(own), coming_(hosts) {}

  // Tells all others, who all have to receive it.
  void send(const at::Tensor& notice);
  // Receives a row from each other host. The timeout is explicit, because gloo's own for messages cannot be changed.
  void receive(const at::Tensor& rows, milliseconds timeout);

 private:
  struct Message {
    at::Tensor bytes;
    WorkPtr work;
  };

  void post_receives(int64_t bytes);

  c10d::Backend& leaders_;
  const int own_;
  std::vector<std::deque<Message>> coming_;  // by host
  std::vector<WorkPtr> sent_;
};

}  // namespace anyaccel::comm
