#include "block.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <iterator>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "accesses.h"

// ThreadSanitizer's functions, if it is in the process: each fiber is a thread to it, and barriers order them.
extern "C" {
__attribute__((weak)) void* __tsan_get_current_fiber();
__attribute__((weak)) void* __tsan_create_fiber(unsigned flags);
__attribute__((weak)) void __tsan_switch_to_fiber(void* fiber, unsigned flags);
__attribute__((weak)) void __tsan_acquire(void* address);
__attribute__((weak)) void __tsan_release(void* address);
}

namespace emulator {

Coordinates thread_index;
Coordinates block_index;
Coordinates block_size;
Coordinates grid_size;

namespace {

constexpr unsigned kWarp = 32;
constexpr unsigned kMostThreads = 1024;
constexpr std::size_t kStackBytes = 64 * 1024;

enum class State { Ready, AtBarrier, AtShuffle, Done };

struct Fiber {
  ucontext_t context;
  jmp_buf jump;
  bool has_begun = false;  // after a block, it waits for the next one
  void* in_sanitizer = nullptr;
  State state = State::Done;
  const Site* site = nullptr;
  std::uint32_t mask = 0;
  unsigned source = 0;
  std::uint64_t value = 0;
};

std::string place_of(const Fiber& fiber) {
  if (fiber.state == State::Done) {
    return "the kernel's end";
  }
  const std::string file = fiber.site->file;
  return std::string(fiber.site->what) + " at " + file.substr(file.rfind('/') + 1) + ":" +
         std::to_string(fiber.site->line);
}

// Runs blocks, one after another. There is one scheduler, whose fibers serve all blocks.
class Scheduler {
 public:
  Scheduler() : fibers_(kMostThreads) {
    const std::size_t bytes = kMostThreads * kStackBytes;
    void* const stacks =
        mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    stacks_ = stacks == MAP_FAILED ? nullptr : static_cast<char*>(stacks);
  }

  // Returns the problem, or an empty text.
  std::string run(const Kernel& kernel, unsigned blocks, unsigned threads, const void* argument, std::size_t bytes) {
    if (stacks_ == nullptr) {
      return "no memory for the stacks";
    }
    if (threads == 0 || threads > kMostThreads || threads % kWarp != 0 || blocks == 0) {
      return "a launch of " + std::to_string(blocks) + " blocks of " + std::to_string(threads) + " threads";
    }
    kernel_ = &kernel;
    argument_ = argument;
    threads_ = threads;
    block_size = {threads, 1, 1};
    grid_size = {blocks, 1, 1};
    accesses::begin_launch({stacks_, kStackBytes, argument, bytes});
    std::string problem;
    for (unsigned block = 0; block < blocks && problem.empty(); ++block) {
      block_index = {block, 0, 0};
      accesses::begin_block(block);
      problem = run_block();
    }
    if (!problem.empty()) {  // some threads can never leave the kernel
      for (Fiber& fiber : fibers_) {
        fiber.has_begun = false;
      }
    }
    return problem.empty() ? accesses::end_launch() : problem;
  }

  void wait(State state, const Site& site) {
    Fiber& fiber = fibers_[current_];
    fiber.state = state;
    fiber.site = &site;
    char* const meeting = &barriers_[passed_ % 2];  // does not order those at the next barrier
    if (state == State::AtBarrier && __tsan_release != nullptr) {
      __tsan_release(meeting);
    }
    leave(fiber);
    if (state == State::AtBarrier && __tsan_acquire != nullptr) {
      __tsan_acquire(meeting);
    }
  }

  std::uint64_t exchange(const Site& site, std::uint32_t mask, std::uint64_t given, unsigned source) {
    Fiber& fiber = fibers_[current_];
    fiber.mask = mask;
    fiber.value = given;
    fiber.source = source;
    wait(State::AtShuffle, site);
    return fibers_[current_].value;
  }

 private:
  static void enter();

  void leave(Fiber& fiber) {
    if (__tsan_switch_to_fiber != nullptr) {
      __tsan_switch_to_fiber(main_in_sanitizer_, 1);
    }
    if (_setjmp(fiber.jump) == 0) {
      _longjmp(main_, 1);
    }
  }

  void resume(unsigned thread) {
    current_ = thread;
    thread_index = {thread, 0, 0};
    accesses::set_thread(thread);
    if (__tsan_switch_to_fiber != nullptr) {
      __tsan_switch_to_fiber(fibers_[thread].in_sanitizer, 1);  // 1: earlier work is not ordered with it
    }
    Fiber& fiber = fibers_[thread];
    if (_setjmp(main_) != 0) {
      return;
    }
    if (fiber.has_begun) {
      _longjmp(fiber.jump, 1);
    }
    fiber.has_begun = true;
    setcontext(&fiber.context);
  }

  void start(unsigned thread) {
    Fiber& fiber = fibers_[thread];
    if (__tsan_create_fiber != nullptr && fiber.in_sanitizer == nullptr) {
      fiber.in_sanitizer = __tsan_create_fiber(0);
    }
    if (fiber.has_begun) {
      fiber.state = State::Ready;
      return;
    }
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = stacks_ + thread * kStackBytes;
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, &Scheduler::enter, 0);
    fiber.state = State::Ready;
  }

  std::string run_block() {
    if (__tsan_get_current_fiber != nullptr) {
      main_in_sanitizer_ = __tsan_get_current_fiber();
      __tsan_release(&begin_);
    }
    for (unsigned thread = 0; thread < threads_; ++thread) {
      start(thread);
    }
    for (;;) {
      for (unsigned thread = 0; thread < threads_; ++thread) {
        if (fibers_[thread].state == State::Ready) {
          resume(thread);
        }
      }
      if (all_are(State::Done)) {
        if (__tsan_acquire != nullptr) {
          __tsan_acquire(&end_);
        }
        return "";
      }
      bool has_moved = false;
      for (unsigned first = 0; first < threads_; first += kWarp) {
        std::string problem = release_warp(first, has_moved);
        if (!problem.empty()) {
          return problem;
        }
      }
      if (!has_moved) {
        std::string problem = release_block();
        if (!problem.empty()) {
          return problem;
        }
      }
    }
  }

  bool all_are(State state) const {
    return std::all_of(fibers_.begin(), fibers_.begin() + threads_, [=](const Fiber& f) { return f.state == state; });
  }

  std::string divergence(unsigned one, unsigned other) const {
    return "divergence in block " + std::to_string(block_index.x) + ": thread " + std::to_string(one) + " is at " +
           place_of(fibers_[one]) + ", thread " + std::to_string(other) + " at " + place_of(fibers_[other]);
  }

  // Releases the lanes of a warp that are at a shuffle; all lanes of the mask must be at the same one.
  std::string release_warp(unsigned first, bool& has_moved) {
    for (unsigned thread = first; thread < first + kWarp; ++thread) {
      const Fiber& fiber = fibers_[thread];
      if (fiber.state != State::AtShuffle) {
        continue;
      }
      if ((fiber.mask >> (thread % kWarp) & 1u) == 0) {
        return wrong_mask(thread, "which is not in its own mask");
      }
      if (fiber.source >= kWarp || (fiber.mask >> fiber.source & 1u) == 0) {
        return wrong_mask(thread, "which takes lane " + std::to_string(fiber.source) + "'s value, not in its mask");
      }
      for (unsigned other = first; other < first + kWarp; ++other) {
        const bool is_meant = (fiber.mask >> (other % kWarp) & 1u) != 0;
        const Fiber& peer = fibers_[other];
        if (is_meant && (peer.state != State::AtShuffle || peer.site != fiber.site)) {
          return divergence(thread, other);
        }
        if (is_meant && peer.mask != fiber.mask) {
          return wrong_mask(thread, "whose mask differs from lane " + std::to_string(other % kWarp) + "'s");
        }
      }
    }
    std::uint64_t given[kWarp] = {};
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      given[lane] = fibers_[first + lane].value;
    }
    for (unsigned thread = first; thread < first + kWarp; ++thread) {
      if (fibers_[thread].state == State::AtShuffle) {
        fibers_[thread].value = given[fibers_[thread].source];
        fibers_[thread].state = State::Ready;
        has_moved = true;
      }
    }
    return "";
  }

  std::string wrong_mask(unsigned thread, const std::string& how) const {
    return "divergence in block " + std::to_string(block_index.x) + ": " + place_of(fibers_[thread]) + " by thread " +
           std::to_string(thread) + ", " + how;
  }

  // Releases a block whose threads are all at one barrier.
  std::string release_block() {
    for (unsigned thread = 1; thread < threads_; ++thread) {
      if (fibers_[thread].state != fibers_[0].state || fibers_[thread].site != fibers_[0].site) {
        return divergence(0, thread);
      }
    }
    for (unsigned thread = 0; thread < threads_; ++thread) {
      fibers_[thread].state = State::Ready;
    }
    accesses::pass_barrier();
    ++passed_;
    return "";
  }

  std::vector<Fiber> fibers_;
  jmp_buf main_{};
  void* main_in_sanitizer_ = nullptr;
  char* stacks_ = nullptr;
  char begin_ = 0;  // addresses that ThreadSanitizer uses to order threads
  char end_ = 0;
  char barriers_[2] = {};
  std::uint64_t passed_ = 0;
  const Kernel* kernel_ = nullptr;
  const void* argument_ = nullptr;
  unsigned threads_ = 0;
  unsigned current_ = 0;
};

Scheduler& scheduler() {
  static Scheduler* const one = new Scheduler;  // never destroyed: a thread may launch while the process exits
  return *one;
}

void Scheduler::enter() {
  Scheduler& self = scheduler();
  for (;;) {  // once per block
    if (__tsan_acquire != nullptr) {
      __tsan_acquire(&self.begin_);
    }
    self.kernel_->run(self.argument_);
    if (__tsan_release != nullptr) {
      __tsan_release(&self.end_);
    }
    Fiber& fiber = self.fibers_[self.current_];
    fiber.state = State::Done;
    self.leave(fiber);
  }
}

std::mutex& launches() {
  static std::mutex one;
  return one;
}

// The launches of a kernel so far.
struct Started {
  unsigned launches = 0;
  unsigned sizes = 0;  // block sizes, as bits
};

std::map<std::string, Started>& started() {
  static auto* const one = new std::map<std::string, Started>;
  return *one;
}

// One warp, several, and the largest launched size; each kernel runs with all of them in turn.
constexpr unsigned kSizes[] = {64, 512, 32};
// Every second launch has at most this many blocks, which then take several rows each.
constexpr std::int64_t kFewBlocks = 3;

unsigned fixed_size = 0;

}  // namespace

void barrier(const Site& site) { scheduler().wait(State::AtBarrier, site); }

std::uint64_t exchange(const Site& site, std::uint32_t mask, std::uint64_t given, unsigned source) {
  return scheduler().exchange(site, mask, given, source);
}

}  // namespace emulator

// Every launch from now on has blocks of so many threads, and as many blocks as the host asks for; 0 varies both.
extern "C" void emulator_fix_size(unsigned threads) { emulator::fixed_size = threads; }

// Lines of `kernel threads...`, until the next call.
extern "C" const char* emulator_started() {
  static std::string text;
  const std::lock_guard lock(emulator::launches());
  text.clear();
  for (const auto& [name, known] : emulator::started()) {
    text += name + "\t";
    for (const unsigned size : {32u, 64u, 128u, 256u, 512u}) {
      text += (known.sizes & size) != 0 ? " " + std::to_string(size) : "";
    }
    text += "\n";
  }
  return text.c_str();
}

// The LaunchFunction of csrc/runtime/device_kernels.h.
extern "C" const char* emulator_launch(void* kernel, std::int32_t, std::int64_t groups, std::int32_t,
                                       const void* argument, std::size_t bytes) {
  using namespace emulator;
  static thread_local char message[1024];
  const std::lock_guard lock(launches());
  const Kernel& chosen = *static_cast<const Kernel*>(kernel);
  Started& known = started()[chosen.name];
  const unsigned size = fixed_size != 0 ? fixed_size : kSizes[known.launches % std::size(kSizes)];
  const bool has_few = fixed_size == 0 && !chosen.is_grid_meant && known.launches % 2 == 1;
  const std::int64_t blocks = has_few ? std::min(groups, kFewBlocks) : groups;
  ++known.launches;
  known.sizes |= size;
  const std::string problem = scheduler().run(chosen, static_cast<unsigned>(blocks), size, argument, bytes);
  if (problem.empty()) {
    return nullptr;
  }
  std::snprintf(message, sizeof(message), "%s", problem.c_str());
  return message;
}
