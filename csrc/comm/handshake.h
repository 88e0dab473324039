// How the ranks of a host come to share memory.
//
// Ranks tell one another through the store which host they are on. The first rank of each host makes the memory and
// hands its descriptor over a Unix socket, whose abstract name is random and leaves no file. Both ends check the user
// at the other end, and whoever connects must know a secret that only the store tells; others are turned away.

#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "segment.h"

namespace anyaccel::comm {

// What is needed of a store: c10d's, or another for tests.
struct KeyValues {
  virtual ~KeyValues() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  virtual std::string get(const std::string& key) = 0;  // waits, and throws when the store's time is over
};

struct Newcomer {
  int rank;
  int world;
  std::string host;  // of this rank: where it is equal, memory can be shared
};

// What names this host: its boot, the network namespace, which bounds abstract sockets, and the user, whose alone the
// memory is.
std::string host_identity();

// The ranks of each host that could share memory, in the order of ranks; every rank returns the same.
struct Meeting {
  std::vector<std::vector<int>> hosts;
  std::vector<std::string> identities;  // of the ranks
  std::unique_ptr<Segment> segment;     // of this rank's host
  std::string problem;                  // why this rank could make no memory for its host; empty when it could
};

Meeting meet(KeyValues& store, const Newcomer& self, std::chrono::milliseconds timeout,
             const std::function<void()>& interrupt);

}  // namespace anyaccel::comm
