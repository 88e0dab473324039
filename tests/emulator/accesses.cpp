// Checks every access of a kernel compiled with -fsanitize=thread: instead of that sanitizer's library, the functions
// that its code calls are defined here.
//
// An access must lie in a tensor, in shared memory or on the thread's own stack, be aligned to its size, and read no
// shared memory that the block has not written. Two threads must not access one byte, one of them to write it, without
// a barrier in between; threads of two blocks must not at all. Unlike ThreadSanitizer, this detects races among blocks,
// and knows what a tensor is (memory.cpp).

#include "accesses.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "block.h"
#include "memory.h"

namespace emulator::accesses {
namespace {

using Address = std::uintptr_t;

constexpr Address kPage = 1024;

// A byte's accesses in this launch.
struct Cell {
  std::uint32_t write_block;
  std::uint32_t write_epoch;
  std::uint32_t read_block;
  std::uint32_t read_epoch;
  std::uint16_t writer;
  std::uint16_t reader;
  bool is_written;
  bool is_read;
  bool is_read_by_threads;  // by several since the last barrier
  bool is_read_by_blocks;
};

struct Page {
  Cell cells[kPage];
  std::uint32_t unit;  // the size of all accesses so far
};

struct Segment {
  Address begin;
  Address end;
  bool is_writable;
};

struct State {
  std::unordered_map<Address, std::unique_ptr<Page>> pages;
  std::vector<std::unique_ptr<Page>> unused;
  Address last_number = 0;
  Page* last_page = nullptr;
  std::vector<Segment> modules;  // of kernels: shared memory and constants
  Surroundings around{};
  Address own_stack = 0;
  std::uint32_t block = 0;
  std::uint32_t epoch = 0;
  std::uint16_t thread = 0;
  std::string fault;
};

State& state() {
  static State* const one = new State;
  return *one;
}

Page* page_of(State& now, Address number) {
  if (number == now.last_number) {
    return now.last_page;
  }
  std::unique_ptr<Page>& page = now.pages[number];
  if (page == nullptr && !now.unused.empty()) {
    page = std::move(now.unused.back());
    now.unused.pop_back();
    std::memset(page.get(), 0, sizeof(Page));
  } else if (page == nullptr) {
    page = std::make_unique<Page>();
  }
  now.last_number = number;
  now.last_page = page.get();
  return page.get();
}

// Whether the first cell of an access represents all of its bytes; after a page has seen a second size, none does.
bool is_one_cell(Page& page, Address at, std::size_t bytes) {
  if (page.unit == 0 && kPage % bytes == 0) {
    page.unit = static_cast<std::uint32_t>(bytes);
  }
  if (page.unit == bytes && at % bytes == 0) {
    return true;
  }
  for (Address unit = 0; page.unit > 1 && unit < kPage; unit += page.unit) {
    std::fill_n(page.cells + unit + 1, page.unit - 1, page.cells[unit]);
  }
  page.unit = 1;
  return false;
}

// The source line of a kernel's instruction, from binutils' addr2line if it is installed.
std::string line_of(const void* pc) {
  Dl_info info{};
  if (dladdr(pc, &info) == 0) {
    return "an unknown line";
  }
  char command[600];
  const Address offset = reinterpret_cast<Address>(pc) - reinterpret_cast<Address>(info.dli_fbase) - 1;
  std::snprintf(command, sizeof(command), "addr2line -s -e '%s' 0x%lx 2>/dev/null", info.dli_fname, offset);
  FILE* const answer = popen(command, "r");
  char line[256] = "";
  const bool is_known = answer != nullptr && std::fgets(line, sizeof(line), answer) != nullptr;
  if (answer != nullptr) {
    pclose(answer);
  }
  line[std::strcspn(line, " \n")] = '\0';
  return is_known ? line : "an unknown line";
}

void report(State& now, const std::string& what, Address at, std::size_t bytes, bool is_write, const void* pc) {
  if (!now.fault.empty()) {
    return;
  }
  char where[64];
  std::snprintf(where, sizeof(where), "0x%lx", at);
  now.fault = what + ": " + std::to_string(bytes) + " bytes " + (is_write ? "written" : "read") + " at " + where +
              " by thread " + std::to_string(now.thread) + " of block " + std::to_string(now.block) + ", at " +
              line_of(pc);
}

enum class Kind { Tensor, Shared, Constant, Stack, Coordinates, Unknown };

Kind kind_of(const State& now, Address at, std::size_t bytes) {
  if (memory::is_in_tensor(at, bytes)) {
    return Kind::Tensor;
  }
  if (at - now.own_stack < now.around.stack_bytes) {
    return Kind::Stack;
  }
  const auto argument = reinterpret_cast<Address>(now.around.argument);
  if (at >= argument && at + bytes <= argument + now.around.argument_bytes) {
    return Kind::Constant;
  }
  for (const Segment& segment : now.modules) {
    if (at >= segment.begin && at + bytes <= segment.end) {
      return segment.is_writable ? Kind::Shared : Kind::Constant;
    }
  }
  for (const Coordinates* known : {&thread_index, &block_index, &block_size, &grid_size}) {
    if (at - reinterpret_cast<Address>(known) < sizeof(Coordinates)) {
      return Kind::Coordinates;
    }
  }
  return Kind::Unknown;
}

const char* note_read(const State& now, Cell& cell, bool is_shared) {
  const bool is_here = cell.is_written && cell.write_block == now.block;
  if (is_shared && !is_here) {
    return "uninitialised shared memory";
  }
  const bool is_other = cell.writer != now.thread && cell.write_epoch == now.epoch;
  const char* const fault = cell.is_written && (!is_here || is_other) ? "race" : nullptr;
  if (!cell.is_read || (cell.read_block == now.block && cell.read_epoch != now.epoch)) {
    cell.is_read_by_threads = false;
  } else if (cell.read_block != now.block) {
    cell.is_read_by_blocks = true;
  } else if (cell.reader != now.thread) {
    cell.is_read_by_threads = true;
  }
  cell.is_read = true;
  cell.read_block = now.block;
  cell.read_epoch = now.epoch;
  cell.reader = now.thread;
  return fault;
}

const char* note_write(const State& now, Cell& cell, bool is_shared) {
  if (is_shared) {  // each block has its own
    cell.is_written = cell.is_written && cell.write_block == now.block;
    cell.is_read = cell.is_read && cell.read_block == now.block;
    cell.is_read_by_blocks = false;
  }
  const bool after_write = cell.is_written && (cell.write_block != now.block ||
                                               (cell.write_epoch == now.epoch && cell.writer != now.thread));
  const bool after_read =
      cell.is_read && (cell.is_read_by_blocks || cell.read_block != now.block ||
                       (cell.read_epoch == now.epoch && (cell.is_read_by_threads || cell.reader != now.thread)));
  cell.is_written = true;
  cell.write_block = now.block;
  cell.write_epoch = now.epoch;
  cell.writer = now.thread;
  return after_write || after_read ? "race" : nullptr;
}

void access(Address at, std::size_t bytes, std::size_t alignment, bool is_write, const void* pc) {
  State& now = state();
  const Kind kind = kind_of(now, at, bytes);
  if (kind == Kind::Stack || kind == Kind::Coordinates) {
    return;
  }
  if (kind == Kind::Unknown || (kind == Kind::Constant && is_write)) {
    report(now, "access out of bounds", at, bytes, is_write, pc);
    return;
  }
  if (at % alignment != 0) {
    report(now, "misaligned access", at, bytes, is_write, pc);
  }
  if (kind == Kind::Constant) {
    return;
  }
  const bool is_shared = kind == Kind::Shared;
  const Address last = is_one_cell(*page_of(now, at / kPage), at, bytes) ? at + 1 : at + bytes;
  for (Address byte = at; byte < last; ++byte) {
    Page* const page = page_of(now, byte / kPage);
    if (byte != at && byte % kPage == 0) {
      is_one_cell(*page, byte, 1);
    }
    Cell& cell = page->cells[byte % kPage];
    const char* const fault = is_write ? note_write(now, cell, is_shared) : note_read(now, cell, is_shared);
    if (fault != nullptr) {
      report(now, fault, at, bytes, is_write, pc);
    }
  }
}

// An access that may race with other atomic accesses; only its location is checked.
void atomic_access(Address at, std::size_t bytes, const void* pc) {
  State& now = state();
  const Kind kind = kind_of(now, at, bytes);
  if (kind != Kind::Tensor && kind != Kind::Shared) {
    report(now, "access out of bounds", at, bytes, true, pc);
  } else if (at % bytes != 0) {
    report(now, "misaligned access", at, bytes, true, pc);
  }
}

int add_segments(dl_phdr_info* info, std::size_t, void* wanted) {
  const auto inside = reinterpret_cast<Address>(wanted);
  bool is_it = false;
  std::vector<Segment> found;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr) & header = info->dlpi_phdr[i];
    if (header.p_type == PT_LOAD) {
      const Address begin = info->dlpi_addr + header.p_vaddr;
      found.push_back({begin, begin + header.p_memsz, (header.p_flags & PF_W) != 0});
      is_it = is_it || (inside >= begin && inside < begin + header.p_memsz);
    }
  }
  if (is_it) {
    state().modules.insert(state().modules.end(), found.begin(), found.end());
  }
  return is_it ? 1 : 0;
}

}  // namespace

void begin_launch(const Surroundings& surroundings) {
  State& now = state();
  for (auto& [number, page] : now.pages) {
    now.unused.push_back(std::move(page));
  }
  now.pages.clear();
  now.last_number = 0;
  now.around = surroundings;
  now.epoch = 0;
  now.fault.clear();
}

void begin_block(unsigned block) {
  state().block = block;
  ++state().epoch;
}

void set_thread(unsigned thread) {
  state().thread = static_cast<std::uint16_t>(thread);
  state().own_stack = reinterpret_cast<Address>(state().around.stacks) + thread * state().around.stack_bytes;
}

void pass_barrier() { ++state().epoch; }

std::string end_launch() { return state().fault; }

}  // namespace emulator::accesses

// A library of kernels, given by an address in it.
extern "C" void emulator_add_module(void* address) { dl_iterate_phdr(&emulator::accesses::add_segments, address); }

#define ON_ACCESS(bytes)                                                                                               \
  extern "C" void __tsan_read##bytes(void* at) {                                                                       \
    emulator::accesses::access(reinterpret_cast<std::uintptr_t>(at), bytes, bytes, false,                              \
                               __builtin_return_address(0));                                                           \
  }                                                                                                                    \
  extern "C" void __tsan_write##bytes(void* at) {                                                                      \
    emulator::accesses::access(reinterpret_cast<std::uintptr_t>(at), bytes, bytes, true, __builtin_return_address(0)); \
  }
ON_ACCESS(1)
ON_ACCESS(2)
ON_ACCESS(4)
ON_ACCESS(8)
ON_ACCESS(16)

// Copies of structs; the compiler does not pass on their alignment.
extern "C" void __tsan_read_range(void* at, unsigned long bytes) {
  emulator::accesses::access(reinterpret_cast<std::uintptr_t>(at), bytes, 1, false, __builtin_return_address(0));
}
extern "C" void __tsan_write_range(void* at, unsigned long bytes) {
  emulator::accesses::access(reinterpret_cast<std::uintptr_t>(at), bytes, 1, true, __builtin_return_address(0));
}
extern "C" int __tsan_atomic32_fetch_or(volatile int* at, int bits, int) {
  emulator::accesses::atomic_access(reinterpret_cast<std::uintptr_t>(at), sizeof(int), __builtin_return_address(0));
  return __atomic_fetch_or(at, bits, __ATOMIC_RELAXED);
}
extern "C" void __tsan_atomic32_store(volatile int* at, int value, int) {
  emulator::accesses::atomic_access(reinterpret_cast<std::uintptr_t>(at), sizeof(int), __builtin_return_address(0));
  __atomic_store_n(at, value, __ATOMIC_RELAXED);
}
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}
extern "C" void __tsan_init() {}
