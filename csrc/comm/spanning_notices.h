// What the first ranks of the hosts tell each other before each operation: messages of one length, one from each to
// each other. Gloo sends a message only once its receive has been posted and announced. So receives are posted ahead,
// and a notice crosses the cable in one direction instead of waiting for an announcement in the other.

#pragma once

#include <cstddef>
#include <deque>
#include <vector>

#include "wire.h"

namespace anyaccel::comm {

class Notices {
 public:
  // `own` is this rank's host.
  Notices(Wire& leaders, int own, std::size_t hosts) : leaders_(leaders), own_(own), coming_(hosts) {}

  // Tells all others, who all have to receive it. Its length is that of every notice.
  void send(const unsigned char* notice, std::int64_t bytes);
  // Tells those that can be told within the timeout. Throws nothing: it is the last notice of a group that has failed.
  void tell(const unsigned char* notice, std::int64_t bytes, milliseconds timeout) noexcept;
  // Receives a notice from each other host into its row. The timeout is explicit, because gloo's own for messages
  // cannot be changed.
  void receive(unsigned char* rows, std::int64_t bytes, milliseconds timeout);

 private:
  void post_receives(std::int64_t bytes, int host);
  void post_ahead(std::int64_t bytes);
  // Sends a copy of a notice.
  OwnedMessage begin(const unsigned char* notice, std::int64_t bytes, int host);

  Wire& leaders_;
  const int own_;
  std::vector<std::deque<OwnedMessage>> coming_;  // by host
  std::vector<OwnedMessage> sent_;
};

}  // namespace anyaccel::comm
