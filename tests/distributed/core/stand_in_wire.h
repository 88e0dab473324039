// A wire between threads, with gloo's rules: the nth message of two ranks and a tag meets their nth receive.

#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <set>
#include <tuple>

#include "support.h"
#include "wire.h"

namespace fuzz {

// What all ranks share.
class Cable {
 public:
  class Plug;

  // `own` is the timeout of messages that are waited for without one; a test that sets none expects that none passes.
  explicit Cable(comm::milliseconds own = kPatience) : timeout_(own) {}

  // Returns how many messages and receives wait for their other side.
  std::size_t left() {
    const std::lock_guard lock(mutex_);
    std::size_t count = 0;
    for (const auto& [route, side] : sends_) count += side.size();
    for (const auto& [route, side] : receives_) count += side.size();
    return count;
  }

 private:
  using Route = std::tuple<int, int, int>;  // from, to, tag
  struct Message;
  using Side = std::map<Route, std::deque<Message*>>;

  bool is_cut(const Route& route) const {
    return gone_.contains(std::get<0>(route)) || gone_.contains(std::get<1>(route));
  }

  const comm::milliseconds timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  Side sends_, receives_;  // without those that have met
  std::set<int> gone_;     // ranks that have left
};

struct Cable::Message final : comm::Wire::Message {
  Message(Cable& on, Side& own, Side& others, Route where, unsigned char* data, std::int64_t bytes)
      : cable(on), side(own), route(where), memory(data), length(bytes) {
    const std::lock_guard lock(cable.mutex_);
    if (cable.is_cut(route)) throw comm::CommError("the other rank has left");
    std::deque<Message*>& waiting = others[route];
    if (waiting.empty()) {
      side[route].push_back(this);
      return;
    }
    Message& other = *waiting.front();
    waiting.pop_front();
    require(other.length == length, "a message met a receive of another length");
    const bool is_sent = &side == &cable.sends_;
    std::copy_n(is_sent ? memory : other.memory, length, is_sent ? other.memory : memory);
    has_met = other.has_met = true;
    cable.changed_.notify_all();
  }
  ~Message() override {
    const std::lock_guard lock(cable.mutex_);
    if (!has_met) std::erase(side[route], this);
  }
  void wait(comm::milliseconds timeout) override {
    std::unique_lock lock(cable.mutex_);
    const auto until = comm::Clock::now() + (timeout == timeout.zero() ? cable.timeout_ : timeout);
    if (cable.changed_.wait_until(lock, until, [this] { return has_met || cable.is_cut(route); })) {
      if (has_met) return;
      throw comm::CommError("the other rank has left");
    }
    require(timeout != timeout.zero() || cable.timeout_ != kPatience,
            "a message that nobody receives, or a receive of what nobody sends");
    throw comm::CommError("too late");
  }

  Cable& cable;
  Side& side;
  const Route route;
  unsigned char* const memory;
  const std::int64_t length;
  bool has_met = false;
};

// A rank's end of it.
class Cable::Plug final : public comm::Wire {
 public:
  Plug(Cable& cable, int rank) : cable_(cable), rank_(rank) {}
  MessagePtr send(const unsigned char* data, std::int64_t bytes, int to, int tag) override {
    return std::make_unique<Cable::Message>(cable_, cable_.sends_, cable_.receives_, Route{rank_, to, tag},
                                            const_cast<unsigned char*>(data), bytes);
  }
  MessagePtr receive(unsigned char* data, std::int64_t bytes, int from, int tag) override {
    return std::make_unique<Cable::Message>(cable_, cable_.receives_, cable_.sends_, Route{from, rank_, tag}, data,
                                            bytes);
  }
  // Ends the connections, as the end of a process does: nothing new begins, and what has not met its other side fails.
  void leave() {
    const std::lock_guard lock(cable_.mutex_);
    cable_.gone_.insert(rank_);
    cable_.changed_.notify_all();
  }

 private:
  Cable& cable_;
  const int rank_;
};

}  // namespace fuzz
