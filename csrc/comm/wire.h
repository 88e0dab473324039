// What carries messages of bytes between ranks that share no memory. Free of torch, like the code that uses it.
//
// A message meets the receive of the same ranks and tag, in the order of issue. It is sent once its receive was posted,
// so that only both sides together end what one has begun.

#pragma once

#include <cstdint>
#include <memory>

#include "clock.h"

namespace anyaccel::comm {

constexpr milliseconds kForever = std::chrono::hours(24 * 365 * 10);  // gloo cannot add longer ones to a clock

class Wire {
 public:
  // A message on its way. Its memory has to outlive it.
  class Message {
   public:
    virtual ~Message() = default;
    // Throws at the timeout; 0 is the wire's own.
    virtual void wait(milliseconds timeout) = 0;
  };
  using MessagePtr = std::unique_ptr<Message>;

  virtual ~Wire() = default;
  virtual MessagePtr send(const unsigned char* data, std::int64_t bytes, int to, int tag) = 0;
  virtual MessagePtr receive(unsigned char* data, std::int64_t bytes, int from, int tag) = 0;
};

// A message with memory of its own, which it leaves before that is freed.
struct OwnedMessage {
  explicit OwnedMessage(std::int64_t bytes) : memory(new unsigned char[bytes]) {}

  std::unique_ptr<unsigned char[]> memory;
  Wire::MessagePtr message;
};

}  // namespace anyaccel::comm
