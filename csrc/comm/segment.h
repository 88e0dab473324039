// Memory that ranks of one host share: an anonymous file (memfd), which has no name anywhere, is not limited by the
// size of /dev/shm, and goes with the last process that has it.

#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "layout.h"

namespace anyaccel::comm {

// A descriptor that is closed with its owner.
class Descriptor {
 public:
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Descriptor();
  int get() const { return fd_; }

 private:
  int fd_;
};

class Segment {
 public:
  // Makes the memory for a number of ranks; its pages read zero.
  static Descriptor create(int world);

  // Maps it, after checking that it is what create() makes: sealed against shrinking, of the right size, ours alone.
  Segment(Descriptor file, int world);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // Makes sure that a part has memory behind it. Without, the first store could end the process with SIGBUS.
  void allocate(std::size_t offset, std::size_t bytes, const char* what);

  // Shows that this process lives: a lock that the kernel drops when it ends, however it ends, and that no child
  // inherits.
  void mark_presence(int rank);
  bool is_present(int rank) const;

  Header& header() const { return *at<Header>(0); }
  RankState& state(int rank) const { return at<RankState>(layout.states)[rank]; }
  Link& link(int from, int to) const { return *at<Link>(layout.link(from, to)); }
  template <typename T>
  T* at(std::size_t offset) const {
    return reinterpret_cast<T*>(base_ + offset);
  }

  const Layout layout;

 private:
  Descriptor file_;
  std::uint64_t maker_;
  unsigned char* base_;
};

// A random number from the kernel.
std::uint64_t random_number();

// The same in every thread of a process, different in every other process, forked children included.
std::uint64_t process_token();

}  // namespace anyaccel::comm
