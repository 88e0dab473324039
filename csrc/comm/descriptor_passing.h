// Passes a file descriptor from one process to another, over a Unix socket with an abstract name.

#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "segment.h"

namespace anyaccel::comm {

class Listener {
 public:
  explicit Listener(const std::string& name);

  // Takes connections, and greetings from them, for some time. Sends the descriptor to a process of this user that
  // knows the secret, and returns the rank that it reports; -1 if there was none in time.
  int serve(const Descriptor& handed, const std::string& secret, std::chrono::milliseconds patience);

 private:
  void accept_one();
  int greeted(int descriptor, const Descriptor& handed, const std::string& secret);

  Descriptor socket_;
  std::vector<Descriptor> silent_;  // connections that have not greeted yet
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
