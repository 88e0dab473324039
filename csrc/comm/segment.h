// The shared memory of the ranks of one host: an anonymous file (memfd). It has no name, is not limited by the size of
// /dev/shm, and is freed when the last process that uses it ends.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "layout.h"

namespace anyaccel::comm {

// Owns a file descriptor, and closes it.
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

// The memory's file, reopened by this process. Locks belong to this open file: closing another descriptor of the memory
// does not release them. The kernel releases them when the process ends in any way, and forked children close the file.
class OwnFile {
 public:
  OwnFile() = default;
  explicit OwnFile(Descriptor handed);
  ~OwnFile();
  OwnFile(const OwnFile&) = delete;
  OwnFile& operator=(const OwnFile&) = delete;

  int get() const { return fd_; }  // -1 if there is none, and in a forked child
  // Locks a byte of the file. Without /proc, the lock lasts until the process closes any of its descriptors of the
  // file.
  void lock(int place);
  bool is_locked_by_another(int place) const;

 private:
  friend class OwnFilesOfProcess;
  int fd_ = -1;
  bool is_reopened_ = false;
};

class Segment {
 public:
  // Memory for a single rank, not shared.
  static std::unique_ptr<Segment> alone();

  // Creates the memory for a number of ranks, filled with zeros.
  static Descriptor create(int world);

  // Maps the memory, after checking that create() made it: it is sealed against shrinking, has the right size, and
  // belongs to this user.
  Segment(Descriptor file, int world);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  // Allocates a part. Otherwise, if memory is short, the first write would end the process with SIGBUS.
  void allocate(std::size_t offset, std::size_t bytes, const char* what);

  // Frees a part. It then reads as zeros, and must be allocated again before it is written.
  void release(std::size_t offset, std::size_t bytes);

  // Shows the other ranks that this process is alive.
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

  OwnFile file_;  // empty for a single rank
  std::uint64_t maker_;
  unsigned char* base_;
};

// A random number from the kernel.
std::uint64_t random_number();

// Identifies this process: equal in all its threads, different in every other process, including forked children.
std::uint64_t process_token();

}  // namespace anyaccel::comm
