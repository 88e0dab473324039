// How the ranks of a host get shared memory.
//
// Ranks publish in the store which host they are on. The first rank of each host creates the memory and sends its
// descriptor over a Unix socket, whose abstract name is random and leaves no file. Both ends check the user at the
// other end. A connecting rank must also know a secret from the store; other connections are rejected.

#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "segment.h"

namespace anyaccel::comm {

// The part of a store's interface that is needed. Implemented by c10d's store, and by another one in tests.
struct KeyValues {
  virtual ~KeyValues() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  virtual std::string get(const std::string& key) = 0;  // waits for the key, and throws at the store's timeout
  virtual bool has(const std::string& key) = 0;
};

struct Newcomer {
  int rank;
  int world;
  std::string host;  // of this rank; ranks with the same host can share memory
};

// Identifies this host by its boot, the network namespace, to which abstract sockets are limited, and the user, who
// alone has access to the memory.
std::string host_identity();

// The ranks of each host that can share memory, in rank order. The same on every rank.
struct Meeting {
  std::vector<std::vector<int>> hosts;
  std::vector<std::string> identities;  // one per rank
  std::unique_ptr<Segment> segment;     // the memory of this rank's host
  std::string problem;                  // why this rank could not create memory for its host; empty if it could
};

// Throws if one of these ranks has told that it cannot share the memory of its host.
void require_success(KeyValues& store, const std::vector<int>& ranks);

Meeting meet(KeyValues& store, const Newcomer& self, std::chrono::milliseconds timeout,
             const std::function<void()>& interrupt);

}  // namespace anyaccel::comm
