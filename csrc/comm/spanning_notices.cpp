#include "spanning_notices.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <utility>

namespace anyaccel::comm {

namespace {

// The announcement of a receive arrives during the operations before it: one may be over in half the time of a round
// trip.
constexpr std::size_t kPostedAhead = 4;
constexpr int kNoticeTag = 0;

}  // namespace

void Notices::post_receives(std::int64_t bytes, int host) {
  while (host != own_ && coming_[host].size() < kPostedAhead) {
    OwnedMessage one(bytes);
    one.message = leaders_.receive(one.memory.get(), bytes, host, kNoticeTag);
    coming_[host].push_back(std::move(one));
  }
}

OwnedMessage Notices::begin(const unsigned char* notice, std::int64_t bytes, int host) {
  OwnedMessage one(bytes);
  std::memcpy(one.memory.get(), notice, bytes);
  one.message = leaders_.send(one.memory.get(), bytes, host, kNoticeTag);
  return one;
}

void Notices::send(const unsigned char* notice, std::int64_t bytes) {
  for (std::size_t host = 0; host < coming_.size(); ++host) post_receives(bytes, static_cast<int>(host));
  for (std::size_t host = 0; host < coming_.size(); ++host) {
    if (static_cast<int>(host) == own_) continue;
    sent_.push_back(begin(notice, bytes, static_cast<int>(host)));
  }
}

void Notices::tell(const unsigned char* notice, std::int64_t bytes, milliseconds timeout) noexcept {
  std::vector<OwnedMessage> told;
  for (std::size_t host = 0; host < coming_.size(); ++host) {
    try {
      if (static_cast<int>(host) == own_) continue;
      told.push_back(begin(notice, bytes, static_cast<int>(host)));
    } catch (const std::exception&) {
      continue;
    }
  }
  for (const OwnedMessage& one : told) {
    try {
      one.message->wait(timeout);
    } catch (const std::exception&) {
      continue;
    }
  }
}

void Notices::receive(unsigned char* rows, std::int64_t bytes, milliseconds timeout) {
  timeout = std::min(timeout, kForever);
  for (std::size_t host = 0; host < coming_.size(); ++host) {
    if (static_cast<int>(host) == own_) continue;
    const OwnedMessage& next = coming_[host].front();
    next.message->wait(timeout);
    std::memcpy(rows + static_cast<std::int64_t>(host) * bytes, next.memory.get(), bytes);
    coming_[host].pop_front();
  }
  post_ahead(bytes);
  for (const OwnedMessage& one : sent_) one.message->wait(timeout);
  sent_.clear();
}

// This operation is complete, after which any other rank may end its process. Who sends it the next notice is told so.
void Notices::post_ahead(std::int64_t bytes) {
  for (std::size_t host = 0; host < coming_.size(); ++host) {
    try {
      post_receives(bytes, static_cast<int>(host));
    } catch (const std::exception&) {
      continue;
    }
  }
}

}  // namespace anyaccel::comm
