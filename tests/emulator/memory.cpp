// Allocations by torch on the CPU are placed where their bounds are known, and filled with ones, which are NaN. This
// library must be preloaded. Other allocations are unchanged.

#include "memory.h"

#include <link.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <string_view>

extern "C" void __libc_free(void* pointer);
extern "C" void* __libc_memalign(std::size_t alignment, std::size_t bytes);

namespace emulator::memory {
namespace {

constexpr std::uintptr_t kPage = 4096;
constexpr std::uintptr_t kArenaBytes = std::uintptr_t{1} << 40;  // of address space; addresses are not reused

// The tensor that owns a page; a tensor's memory begins on its own page.
struct Page {
  std::uintptr_t begin;
  std::uintptr_t end;
};

std::uintptr_t arena = 0;
std::uintptr_t next = 0;
Page* pages = nullptr;
std::mutex mutex;

void* reserve(std::size_t bytes) {
  void* const found = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return found == MAP_FAILED ? nullptr : found;
}

struct Range {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;
};

int find_allocator(dl_phdr_info* info, std::size_t, void* result) {
  const std::string_view name = info->dlpi_name;
  if (name.find("/libc10.so") == std::string_view::npos) {
    return 0;
  }
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr) & header = info->dlpi_phdr[i];
    if (header.p_type == PT_LOAD && (header.p_flags & PF_X) != 0) {
      const std::uintptr_t begin = info->dlpi_addr + header.p_vaddr;
      *static_cast<Range*>(result) = {begin, begin + header.p_memsz};
    }
  }
  return 1;
}

bool is_from_torch(const void* caller) {
  static Range torch;
  if (torch.begin == 0) {
    dl_iterate_phdr(&find_allocator, &torch);
  }
  const auto at = reinterpret_cast<std::uintptr_t>(caller);
  return at >= torch.begin && at < torch.end;
}

void* in_arena(std::size_t alignment, std::size_t bytes) {
  const std::lock_guard lock(mutex);
  if (arena == 0) {
    pages = static_cast<Page*>(reserve(kArenaBytes / kPage * sizeof(Page)));
    arena = pages == nullptr ? 0 : reinterpret_cast<std::uintptr_t>(reserve(kArenaBytes));
    next = arena;
  }
  // aligned exactly as requested, not more
  const std::uintptr_t begin = next + alignment;
  const std::uintptr_t after = (begin + bytes) / kPage * kPage + 2 * kPage;
  if (arena == 0 || alignment >= kPage || after > arena + kArenaBytes) {
    return nullptr;
  }
  for (std::uintptr_t page = next; page < after; page += kPage) {
    pages[(page - arena) / kPage] = {begin, begin + bytes};
  }
  next = after;
  void* const memory = reinterpret_cast<void*>(begin);
  std::memset(memory, 0xff, bytes);
  return memory;
}

void retire(std::uintptr_t at) {
  const std::lock_guard lock(mutex);
  const std::uintptr_t first = (at - arena) / kPage;
  const std::uintptr_t last = (pages[first].end - arena) / kPage + 1;
  for (std::uintptr_t page = first; page <= last; ++page) {
    pages[page] = {};
  }
  madvise(reinterpret_cast<void*>(arena + first * kPage), (last - first) * kPage, MADV_DONTNEED);
}

bool is_in_arena(std::uintptr_t at) { return arena != 0 && at - arena < kArenaBytes; }

}  // namespace

bool is_in_tensor(std::uintptr_t at, std::size_t bytes) {
  if (!is_in_arena(at)) {
    return false;
  }
  const Page& page = pages[(at - arena) / kPage];
  return at >= page.begin && at + bytes <= page.end;
}

}  // namespace emulator::memory

extern "C" int posix_memalign(void** result, std::size_t alignment, std::size_t bytes) {
  using namespace emulator::memory;
  void* found = is_from_torch(__builtin_return_address(0)) ? in_arena(alignment, bytes) : nullptr;
  found = found == nullptr ? __libc_memalign(alignment, bytes) : found;
  *result = found;
  return found == nullptr ? ENOMEM : 0;
}

extern "C" void free(void* pointer) {
  const auto at = reinterpret_cast<std::uintptr_t>(pointer);
  if (emulator::memory::is_in_arena(at)) {
    emulator::memory::retire(at);
  } else {
    __libc_free(pointer);
  }
}
