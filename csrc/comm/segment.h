// Memory that ranks of one host share: an anonymous file (memfd), which has no name anywhere, is not limited by the
// size of /dev/shm, and goes with the last process that has it.

#pragma once

#include <cstdint>
#include <memory>
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
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// The memory's file, opened anew by this process. Its locks belong to this opening: closing another descriptor of the
// memory drops none, the kernel drops them when the process ends, however it ends, and forked children close theirs.
class OwnFile {
 public:
  OwnFile() = default;
  explicit OwnFile(Descriptor handed);
  ~OwnFile();
  OwnFile(const OwnFile&) = delete;
  OwnFile& operator=(const OwnFile&) = delete;

  int get() const { return fd_; }  // -1 when there is none, and in a forked child
  // Locks a place of the file; without /proc for as long as the process keeps all its descriptors of it.
  void lock(int place);
  bool is_locked_by_another(int place) const;

 private:
  friend class OwnFilesOfProcess;
  int fd_ = -1;
  bool is_anew_ = false;
};

class Segment {
 public:
  // Memory for one rank that shares it with nobody.
  static std::unique_ptr<Segment> alone();

  // Makes the memory for a number of ranks; its pages read zero.
  static Descriptor create(int world);

  // Maps it, after checking that it is what create() makes: sealed against shrinking, of the right size, ours alone.
  Segment(Descriptor file, int world);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // Makes sure that a part has memory behind it. Without, the first store could end the process with SIGBUS.
  void allocate(std::size_t offset, std::size_t bytes, const char* what);

  // Gives the memory of a part back; it reads zero, and has to be allocated again.
  void release(std::size_t offset, std::size_t bytes);

  // Shows to the others that this process lives.
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
  Segment();

  OwnFile file_;  // none when alone
  std::uint64_t maker_;
  unsigned char* base_;
};

// A random number from the kernel.
std::uint64_t random_number();

// The same in every thread of a process, different in every other process, forked children included.
std::uint64_t process_token();

}  // namespace anyaccel::comm
