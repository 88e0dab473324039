// A file descriptor on its way from one process to another, over a Unix socket with an abstract name.

#pragma once

#include <chrono>
#include <string>

#include "segment.h"

namespace anyaccel::comm {

class Listener {
 public:
  explicit Listener(const std::string& name);

  // Serves one connection, if one comes in time: hands the descriptor to a process of this user that knows the secret.
  // Returns the rank that it says it is, -1 when nobody came or whoever came was turned away.
  int serve(const Descriptor& handed, const std::string& secret, std::chrono::milliseconds patience) const;

 private:
  Descriptor socket_;
};

// A connection to a Listener, from which to fetch what it hands out.
class Connection {
 public:
  explicit Connection(const std::string& name);
  bool is_open() const { return is_open_; }

  // Waits for the descriptor; none when it has not come in time.
  Descriptor receive(const std::string& secret, int rank, std::chrono::milliseconds patience);

 private:
  Descriptor socket_;
  bool is_open_;
  bool has_greeted_ = false;
};

}  // namespace anyaccel::comm
