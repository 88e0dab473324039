// Checks every memory access of a kernel. Kernels are compiled with -fsanitize=thread, which inserts a call before each
// access; this file defines the functions that are called, instead of ThreadSanitizer's library.
//
// An access must be inside a tensor, shared memory, a variable of the source or the thread's own stack. It must be
// aligned to its size, and must not read shared memory that the block has not written. history.h decides what is a
// race. Unlike ThreadSanitizer, these checks find races between blocks and know the bounds of tensors (memory.h).

#include "accesses.h"

#include <link.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdio>
#include <cstring>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "guards.h"
#include "history.h"
#include "lines.h"
#include "memory.h"
#include "scheduler.h"

namespace emulator::accesses {
namespace {

using Address = std::uintptr_t;

constexpr Address kPage = 1024;

struct Page {
  std::uint32_t unit =
      0;  // the size of all accesses so far, which is the size of a cell; 1 after accesses of two sizes
  std::vector<Cell> cells;  // one for each unit
};

struct Segment {
  Address begin = 0;
  Address end = 0;
  bool is_writable = false;

  bool has(Address at, std::size_t bytes) const { return at >= begin && at + bytes <= end; }
};

// The library that contains the kernel.
struct Module {
  Address wanted = 0;  // an address in its shared memory, that is, in its thread-local variables
  Segment shared;
  std::vector<Segment> guards;  // in its shared memory
  std::vector<Segment> variables;
};

struct State {
  std::unordered_map<Address, Page> pages;
  Address last_number = 0;
  Page* last_page = nullptr;
  Module module;
  Surroundings around{};
  Address own_stack = 0;
  bool is_running = false;
  History history;
};

State& state() {
  static State* const one = new State;
  return *one;
}

std::atomic<bool> has_interruption{false};

Page& page_of(State& now, Address number) {
  if (number != now.last_number) {
    now.last_number = number;
    now.last_page = &now.pages[number];
  }
  return *now.last_page;
}

// Returns whether one cell covers all bytes of an access. Splits the page's cells into bytes if accesses differ in
// size.
bool is_one_cell(History& history, Page& page, Address at, std::size_t bytes) {
  if (page.unit == 0) {
    page.unit = kPage % bytes == 0 ? static_cast<std::uint32_t>(bytes) : 1;
    page.cells.resize(kPage / page.unit);
  }
  if (page.unit == bytes && at % bytes == 0) {
    return true;
  }
  if (page.unit > 1) {
    std::vector<Cell> of_bytes;
    for (Address byte = 0; byte < kPage; ++byte) {
      of_bytes.push_back(history.part_of(page.cells[byte / page.unit]));
    }
    page.cells = std::move(of_bytes);
    page.unit = 1;
  }
  return false;
}

enum class Kind { Global, Shared, Constant, Own, Unknown };

Kind kind_of(const State& now, Address at, std::size_t bytes) {
  if (at - now.own_stack < now.around.stack_bytes) {
    return Kind::Own;
  }
  if (memory::is_in_tensor(at, bytes)) {
    return Kind::Global;
  }
  if (now.module.shared.has(at, bytes)) {
    for (const Segment& guard : now.module.guards) {
      if (guard.has(at, bytes)) {
        return Kind::Own;  // the compiler's, and not the source's
      }
    }
    const auto dynamic = reinterpret_cast<Address>(now.around.shared_memory);
    const bool is_dynamic = at >= dynamic && at < dynamic + kMostSharedBytes;
    return is_dynamic && at + bytes > dynamic + now.around.dynamic_bytes ? Kind::Unknown : Kind::Shared;
  }
  const auto argument = reinterpret_cast<Address>(now.around.argument);
  if (at >= argument && at + bytes <= argument + now.around.argument_bytes) {
    return Kind::Constant;
  }
  for (const Segment& segment : now.module.variables) {
    if (segment.has(at, bytes)) {
      return segment.is_writable ? Kind::Global : Kind::Constant;
    }
  }
  for (const Coordinates* known : {&thread_index, &block_index, &block_size, &grid_size}) {
    if (at - reinterpret_cast<Address>(known) < sizeof(Coordinates)) {
      return Kind::Own;
    }
  }
  return Kind::Unknown;
}

// Checks and records an access. Returns the fault, whose `what` is null if there is none. A struct may be copied with
// the bytes between its members, which nobody writes: `alignment` is 0 for the copy of a range.
Fault fault_of(State& now, Address at, std::size_t bytes, std::size_t alignment, Access access,
               const void* instruction) {
  const Kind kind = kind_of(now, at, bytes);
  if (kind == Kind::Unknown || (kind == Kind::Constant && access != Access::Read)) {
    return {"access out of bounds"};
  }
  if (kind == Kind::Own) {
    return {access == Access::Atomic ? "atomic operation on a thread's own memory" : nullptr};
  }
  if (alignment != 0 && at % alignment != 0) {
    return {"misaligned access"};
  }
  if (kind == Kind::Constant) {
    return {};
  }
  const bool is_one = is_one_cell(now.history, page_of(now, at / kPage), at, bytes);
  Fault fault;
  std::size_t unwritten = 0;
  for (Address byte = at; byte < (is_one ? at + 1 : at + bytes) && fault.what == nullptr; ++byte) {
    Page& page = page_of(now, byte / kPage);
    if (!is_one && byte % kPage == 0) {
      is_one_cell(now.history, page, byte, 1);
    }
    Cell& cell = page.cells[byte % kPage / page.unit];
    const bool may_be_padding = alignment == 0 && !is_one;
    unwritten += now.history.is_unwritten(cell, access, kind == Kind::Shared) ? 1 : 0;
    if (access == Access::Read && !now.history.are_here(cell.reads) && !now.history.are_here(cell.writes)) {
      note_progress();  // a thread that waits reads the same again, or what this block writes
    }
    fault = now.history.note(cell, access, kind == Kind::Shared, instruction, may_be_padding);
  }
  return fault.what == nullptr && unwritten == bytes ? Fault{"uninitialised shared memory"} : fault;
}

// Describes the other access of a race: ", and written by thread 3, at src.cu:12".
std::string other_side(const State& now, const Fault& fault) {
  const Accessors& others = fault.others;
  std::string text = std::string(", and ") + fault.verb;
  if (!now.history.are_here(others)) {
    text += " by an earlier block";
  } else if (others.are_of_warps || (others.lanes & (others.lanes - 1)) != 0) {
    text += " by several threads";
  } else {
    text += " by thread " +
            name_of_thread_number(others.warp * kWarp + static_cast<unsigned>(std::countr_zero(others.lanes)));
  }
  return others.instruction == nullptr ? text : text + ", at " + line_of(others.instruction);
}

[[noreturn]] void report(const State& now, const Fault& fault, Address at, std::size_t bytes, const std::string& verb,
                         const std::string& line) {
  char where[64];
  std::snprintf(where, sizeof(where), "0x%lx", static_cast<unsigned long>(at));
  const std::string other = fault.verb == nullptr ? "" : other_side(now, fault);
  fail(std::string(fault.what) + ": " + std::to_string(bytes) + " bytes " + verb + " at " + where + " by " +
       name_of_thread() + ", at " + line + other);
}

int find_module(dl_phdr_info* info, std::size_t, void* result) {
  Module& module = *static_cast<Module*>(result);
  std::vector<Segment> variables;
  Segment shared;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr) & header = info->dlpi_phdr[i];
    const Address begin = info->dlpi_addr + header.p_vaddr;
    const auto local = reinterpret_cast<Address>(info->dlpi_tls_data);
    if (header.p_type == PT_LOAD) {
      variables.push_back({begin, begin + header.p_memsz, (header.p_flags & PF_W) != 0});
    } else if (header.p_type == PT_TLS && local != 0) {
      shared = {local, local + header.p_memsz, true};
    }
  }
  if (!shared.has(module.wanted, 1)) {
    return 0;
  }
  for (const auto& [offset, bytes] : guards_of(info->dlpi_name)) {
    module.guards.push_back({shared.begin + offset, shared.begin + offset + bytes, true});
  }
  module.shared = shared;
  module.variables = std::move(variables);
  return 1;
}

}  // namespace

void access(void* address, std::size_t bytes, std::size_t alignment, Access kind, const void* instruction) {
  State& now = state();
  if (!now.is_running) {
    return;
  }
  if (is_interrupted()) {
    fail("interrupted");
  }
  const auto at = reinterpret_cast<Address>(address);
  const Fault fault = fault_of(now, at, bytes, alignment, kind, instruction);
  if (fault.what != nullptr) {
    report(now, fault, at, bytes, kind == Access::Read ? "read" : "written", line_of(instruction));
  }
}

void begin_launch(const Surroundings& surroundings) {
  State& now = state();
  now.last_number = 0;
  now.around = surroundings;
  now.module = {reinterpret_cast<Address>(surroundings.shared_memory), {}, {}, {}};
  dl_iterate_phdr(&find_module, &now.module);
  now.history.begin_launch();
  has_interruption = false;
  now.is_running = true;
}

void begin_block() { state().history.begin_block(); }

void set_thread(unsigned thread) {
  state().history.set_thread(thread);
  state().own_stack = reinterpret_cast<Address>(state().around.stacks) + thread * state().around.stack_bytes;
}

void pass_barrier() { state().history.pass_barrier(); }

void sync_warp(unsigned first_thread, Lanes mask) { state().history.sync_warp(first_thread, mask); }

void end_launch() {
  state().is_running = false;
  state().pages.clear();
}

void interrupt() { has_interruption = true; }

bool is_interrupted() { return has_interruption.load(std::memory_order_relaxed); }

}  // namespace emulator::accesses

namespace emulator {

void check_atomic(const Site& site, const volatile void* at, std::size_t bytes) {
  using namespace accesses;
  const auto address = reinterpret_cast<Address>(at);
  const Fault fault = fault_of(state(), address, bytes, bytes, Access::Atomic, nullptr);
  if (fault.what != nullptr) {
    report(state(), fault, address, bytes, std::string("changed by ") + site.what, place_of(site));
  }
}

void note_atomic(const Site& site, bool has_changed) {
  if (accesses::is_interrupted()) {
    fail("interrupted");
  }
  if (has_changed) {
    note_progress();
    return;
  }
  spin(site);
}

void fence() {
  if (accesses::is_interrupted()) {
    fail("interrupted");
  }
  accesses::state().history.fence();
}

}  // namespace emulator
