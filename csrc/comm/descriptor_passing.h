// Passes a file descriptor from one process to another, over a Unix socket with an abstract name.

#pragma once

#include <chrono>
#include <string>

#include "segment.h"

namespace anyaccel::comm {

class Listener {
 public:
  explicit Listener(const std::string& name);

  // Serves one connection, if there is one in time: sends the descriptor to a process of this user that knows the
  // secret. Returns the rank that it reports, or -1 if nobody connected or the connection was rejected.
  int serve(const Descriptor& handed, const std::string& secret, std::chrono::milliseconds patience) const;

 private:
  Descriptor socket_;
};

// A connection to a Listener, to receive its descriptor.
class Connection {
 public:
  explicit Connection(const std::string& name);
  bool is_open() const { return is_open_; }

  // Waits for the descriptor. Returns an empty one if it does not arrive in time.
  Descriptor receive(const std::string& secret, int rank, std::chrono::milliseconds patience);

 private:
  Descriptor socket_;
  bool is_open_;
  bool has_greeted_ = false;
};

}  // namespace anyaccel::comm
