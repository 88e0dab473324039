#include "segment.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "errors.h"

namespace anyaccel::comm {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::size_t padded(std::size_t bytes, std::size_t unit) { return (bytes + unit - 1) / unit * unit; }

std::uint64_t new_token() { return random_number() | 1u; }

std::atomic<std::uint64_t>& token() {
  static std::atomic<std::uint64_t> value = [] {
    pthread_atfork(nullptr, nullptr, [] { token().store(new_token(), std::memory_order_relaxed); });
    return new_token();
  }();
  return value;
}

[[noreturn]] void throw_foreign(const Layout& layout) {
  throw CommError(
      "shm failed: got shared memory that another user, program or version made; expected sealed memory of this user, "
      "of version " +
      std::to_string(kVersion) + " and " + std::to_string(layout.total) + " bytes for " + std::to_string(layout.world) +
      " ranks. Fix: run every rank as one user, with one anyaccel.");
}

struct flock presence_of(int rank) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

}  // namespace

void throw_errno(const std::string& what) { throw CommError(what + ": " + std::strerror(errno)); }

std::uint64_t random_number() {
  std::uint64_t value = 0;
  if (getrandom(&value, sizeof(value), 0) != sizeof(value)) throw_errno("shm failed: getrandom");
  return value;
}

std::uint64_t process_token() { return token().load(std::memory_order_relaxed); }

Layout::Layout(int ranks) : world(ranks) {
  const std::size_t n = static_cast<std::size_t>(ranks);
  table_bytes = padded(2 * n * sizeof(std::int64_t), kLine);
  letters_bytes = padded(sizeof(Letters), kPage);
  states = sizeof(Header);
  links = padded(states + n * sizeof(RankState), kLine);
  tables = padded(links + n * n * sizeof(Link), kLine);
  small_slots = padded(tables + 2 * n * table_bytes, kPage);
  slots = padded(small_slots + 2 * n * kSmallBytes, kPage);
  allocated_at_once = slots;
  letters = slots + 4 * n * kSlotBytes;
  streams = letters + n * n * letters_bytes;
  total = streams + n * n * 2 * kStreamBytes;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) close(fd_);
}

Descriptor Segment::create(int world) {
  const Layout layout(world);
  Descriptor file(memfd_create("anyaccel-shm", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (file.get() < 0) throw_errno("shm failed: memfd_create");
  const Identity identity = layout.identity();
  if (fchmod(file.get(), 0600) != 0 || ftruncate(file.get(), static_cast<off_t>(layout.total)) != 0 ||
      fallocate(file.get(), 0, 0, static_cast<off_t>(layout.allocated_at_once)) != 0 ||
      pwrite(file.get(), &identity, sizeof(identity), 0) != sizeof(identity) ||
      fcntl(file.get(), F_ADD_SEALS, kSeals) != 0) {
    throw_errno("shm failed: making " + std::to_string(layout.allocated_at_once >> 10) + " KiB of shared memory");
  }
  return file;
}

Segment::Segment(Descriptor file, int world) : layout(world), file_(std::move(file)), maker_(process_token()) {
  struct stat status = {};
  if (fstat(file_.get(), &status) != 0) throw_errno("shm failed: fstat");
  const int seals = fcntl(file_.get(), F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals || status.st_uid != geteuid() || (status.st_mode & 077) != 0 ||
      static_cast<std::size_t>(status.st_size) != layout.total) {
    throw_foreign(layout);
  }
  void* mapped = mmap(nullptr, layout.total, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file_.get(), 0);
  if (mapped == MAP_FAILED) throw_errno("shm failed: mmap");
  base_ = static_cast<unsigned char*>(mapped);
  madvise(base_, layout.total, MADV_DONTFORK);  // so that children do not keep it
  if (!(header().identity == layout.identity())) {
    munmap(base_, layout.total);
    throw_foreign(layout);
  }
}

Segment::~Segment() {
  if (maker_ == process_token()) munmap(base_, layout.total);  // a forked child has no mapping, or another one there
}

void Segment::allocate(std::size_t offset, std::size_t bytes, const char* what) {
  while (fallocate(file_.get(), 0, static_cast<off_t>(offset), static_cast<off_t>(bytes)) != 0) {
    if (errno != EINTR) {
      throw_errno(std::string("shm failed: no memory for ") + what + " of " + std::to_string(bytes >> 10) + " KiB");
    }
  }
}

void Segment::mark_presence(int rank) {
  struct flock lock = presence_of(rank);
  if (fcntl(file_.get(), F_SETLK, &lock) != 0) throw_errno("shm failed: locking this rank's place");
}

bool Segment::is_present(int rank) const {
  if (state(rank).process.load(std::memory_order_relaxed) == process_token())
    return true;  // a lock is never in its own process's way
  struct flock lock = presence_of(rank);
  return fcntl(file_.get(), F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

}  // namespace anyaccel::comm
