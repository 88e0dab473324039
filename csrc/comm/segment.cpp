#include "segment.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>
#include <vector>

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
      " ranks. Fix: run every rank as one user, with the same version of anyaccel.");
}

struct flock presence_of(int rank) {
  struct flock lock = {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  lock.l_start = rank;
  lock.l_len = 1;
  return lock;
}

// Allocates memory for a part of a file that nobody has written to. Returns 0, or -1 with errno.
int reserve(int file, std::size_t offset, std::size_t bytes) {
  int result = 0;
  do {
    result = fallocate(file, 0, static_cast<off_t>(offset), static_cast<off_t>(bytes));
  } while (result != 0 && errno == EINTR);
  if (result == 0 || (errno != EPERM && errno != EACCES && errno != ENOSYS && errno != EOPNOTSUPP)) return result;
  const std::vector<char> zeros(std::min(bytes, std::size_t{1} << 20));  // a seccomp filter refuses fallocate
  for (std::size_t done = 0; done < bytes;) {
    const ssize_t written =
        pwrite(file, zeros.data(), std::min(zeros.size(), bytes - done), static_cast<off_t>(offset + done));
    if (written < 0 && errno != EINTR) return -1;
    done += static_cast<std::size_t>(std::max<ssize_t>(written, 0));
  }
  return 0;
}

}  // namespace

// The files that a forked child closes, so that the parent's death is detected while the child lives.
class OwnFilesOfProcess {
 public:
  static OwnFilesOfProcess& instance() {
    static OwnFilesOfProcess* const all = [] {
      pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                     [] { instance().close_in_child(); });
      return new OwnFilesOfProcess;
    }();
    return *all;
  }

  void add(OwnFile* one, int fd) {
    const std::lock_guard lock(mutex_);
    one->fd_ = fd;
    all_.insert(one);
  }
  void remove(OwnFile* one) {
    const std::lock_guard lock(mutex_);
    all_.erase(one);
    if (one->fd_ >= 0) close(std::exchange(one->fd_, -1));
  }

 private:
  void close_in_child() {
    for (OwnFile* one : all_) close(std::exchange(one->fd_, -1));
    all_.clear();
    mutex_.unlock();
  }

  std::mutex mutex_;
  std::set<OwnFile*> all_;
};

OwnFile::OwnFile(Descriptor handed) {
  const std::string path = "/proc/self/fd/" + std::to_string(handed.get());
  const int reopened = open(path.c_str(), O_RDWR | O_CLOEXEC);
  is_reopened_ = reopened >= 0;
  OwnFilesOfProcess::instance().add(this, is_reopened_ ? reopened : handed.release());
}

OwnFile::~OwnFile() { OwnFilesOfProcess::instance().remove(this); }

void OwnFile::lock(int place) {
  struct flock lock = presence_of(place);
  if (fcntl(fd_, is_reopened_ ? F_OFD_SETLK : F_SETLK, &lock) != 0)
    throw_errno("shm failed: locking this rank's place");
}

bool OwnFile::is_locked_by_another(int place) const {
  struct flock lock = presence_of(place);
  return fcntl(fd_, is_reopened_ ? F_OFD_GETLK : F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

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
      reserve(file.get(), 0, layout.allocated_at_once) != 0 ||
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
  madvise(base_, layout.total, MADV_DONTFORK);  // so that forked children do not keep the memory
  if (!(header().identity == layout.identity())) {
    munmap(base_, layout.total);
    throw_foreign(layout);
  }
}

Segment::Segment() : layout(1), maker_(process_token()) {
  void* mapped =
      mmap(nullptr, layout.total, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) throw_errno("shm failed: mmap");
  base_ = static_cast<unsigned char*>(mapped);
  header().identity = layout.identity();
}

std::unique_ptr<Segment> Segment::alone() { return std::unique_ptr<Segment>(new Segment); }

Segment::~Segment() {
  if (maker_ == process_token()) munmap(base_, layout.total);  // a forked child has no mapping here, or another one
}

void Segment::allocate(std::size_t offset, std::size_t bytes, const char* what) {
  if (file_.get() < 0 || reserve(file_.get(), offset, bytes) == 0) return;
  throw_errno(std::string("shm failed: no memory for ") + what + " of " + std::to_string(bytes >> 10) + " KiB");
}

void Segment::release(std::size_t offset, std::size_t bytes) {
  if (file_.get() < 0) {
    madvise(base_ + offset, bytes, MADV_DONTNEED);
  } else {
    fallocate(file_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
              static_cast<off_t>(bytes));  // if this is not allowed, the memory is kept
  }
}

void Segment::mark_presence(int rank) {
  if (file_.get() >= 0) file_.lock(rank);
}

bool Segment::is_present(int rank) const {
  if (state(rank).process.load(std::memory_order_relaxed) == process_token())
    return true;  // a process does not see its own lock
  return file_.is_locked_by_another(rank);
}

}  // namespace anyaccel::comm
