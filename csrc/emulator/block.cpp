#include <algorithm>
#include <bit>
#include <optional>
#include <utility>
#include <vector>

#include "accesses.h"
#include "fibers.h"
#include "scheduler.h"

namespace emulator {

Coordinates thread_index;
Coordinates block_index;
Coordinates block_size;
Coordinates grid_size;

namespace {

// After how many atomic operations without effect a thread lets others run, and after how many the launch fails.
constexpr unsigned kSpinsToYield = 64;
constexpr std::uint64_t kSpinsToFail = 2'000'000;

enum class State { Ready, AtBarrier, AtWarp, Done };

struct Thread {
  State state = State::Done;
  const Site* site = nullptr;
  Lanes mask = 0;
  unsigned source = 0;
  std::uint64_t value = 0;
  bool is_ordered = false;  // at a warp's barrier rather than at a shuffle
};

// Runs the blocks one after the other. There is one scheduler, and all blocks use its fibers.
class Scheduler {
 public:
  Scheduler() : threads_(kMostThreads), fibers_(kMostThreads, &Scheduler::enter) {}

  std::string run(const Kernel& kernel, const Launch& launch) {
    const std::uint64_t threads = std::uint64_t{launch.threads.x} * launch.threads.y * launch.threads.z;
    const std::uint64_t blocks = std::uint64_t{launch.blocks.x} * launch.blocks.y * launch.blocks.z;
    if (!fibers_.have_memory()) {
      return "no memory for the stacks";
    }
    if (threads == 0 || threads > kMostThreads || blocks == 0) {
      return "a launch of " + std::to_string(blocks) + " blocks of " + std::to_string(threads) +
             " threads; a block has 1 to " + std::to_string(kMostThreads);
    }
    kernel_ = &kernel;
    argument_ = launch.argument;
    count_ = static_cast<unsigned>(threads);
    block_size = launch.threads;
    grid_size = launch.blocks;
    problem_.clear();
    accesses::begin_launch({fibers_.stacks(), Fibers::kStackBytes, launch.argument, launch.argument_bytes,
                            kernel.shared_memory(), launch.shared_bytes});
    for (std::uint64_t block = 0; block < blocks && problem_.empty(); ++block) {
      block_index = coordinates_of(block, grid_size);
      accesses::begin_block();
      run_block();
    }
    accesses::end_launch();
    if (!problem_.empty()) {  // some threads are still inside the kernel and will not return
      fibers_.abandon();
    }
    return problem_;
  }

  unsigned wait_for_block(const Site& site, bool is_counted) {
    Thread& thread = threads_[current_];
    thread.value = is_counted ? 1 : 0;
    thread.site = &site;
    thread.state = State::AtBarrier;
    char* const meeting = &barriers_[passed_ % 2];  // two, because a thread may already be at the next barrier
    Fibers::release(meeting);
    fibers_.leave();
    Fibers::acquire(meeting);
    return static_cast<unsigned>(threads_[current_].value);
  }

  const std::uint64_t* wait_for_warp(const Site& site, Lanes mask, std::uint64_t given, unsigned source,
                                     bool is_ordered) {
    Thread& thread = threads_[current_];
    thread.mask = mask;
    thread.value = given;
    thread.source = source;
    thread.site = &site;
    thread.is_ordered = is_ordered;
    thread.state = State::AtWarp;
    char* const meeting = &warps_[current_ / kWarp];
    if (is_ordered) {
      Fibers::release(meeting);
    }
    fibers_.leave();
    if (is_ordered) {
      Fibers::acquire(meeting);
    }
    return given_[current_ / kWarp];
  }

  void spin(const Site& site) {
    if (++spins_ % kSpinsToYield != 0) {
      return;
    }
    if (spins_ > kSpinsToFail) {
      fail("endless loop: " + std::to_string(spins_) + " atomic operations in a row changed nothing; the last was " +
           site.what + " by " + name_of_thread() + ", at " + place_of(site) +
           ". Blocks run one after the other here, so a block must not wait for a later one");
    }
    threads_[current_].state = State::Ready;
    fibers_.leave();
  }

  void note_progress() { spins_ = 0; }

  [[noreturn]] void fail(std::string what) {
    problem_ = std::move(what);
    for (;;) {
      fibers_.leave();
    }
  }

 private:
  static void enter();

  void resume(unsigned number) {
    current_ = number;
    thread_index = coordinates_of(number, block_size);
    accesses::set_thread(number);
    fibers_.resume(number);
  }

  void run_block() {
    Fibers::release(&begin_);
    spins_ = 0;
    for (unsigned number = 0; number < count_; ++number) {
      fibers_.prepare(number);
      threads_[number] = {State::Ready};
    }
    while (problem_.empty()) {
      if (accesses::is_interrupted()) {  // threads that only wait for each other access nothing
        problem_ = "interrupted";
        return;
      }
      bool are_spinning = false;
      for (unsigned number = 0; number < count_ && problem_.empty(); ++number) {
        if (threads_[number].state == State::Ready) {
          resume(number);
          are_spinning = are_spinning || threads_[number].state == State::Ready;
        }
      }
      if (problem_.empty() && all_are(State::Done)) {
        Fibers::acquire(&end_);
        return;
      }
      bool has_moved = are_spinning;
      for (unsigned first = 0; first < count_ && problem_.empty(); first += kWarp) {
        release_warp(first, has_moved);
      }
      if (problem_.empty() && !has_moved) {
        release_block();
      }
    }
  }

  bool all_are(State state) const {
    return std::all_of(threads_.begin(), threads_.begin() + count_, [=](const Thread& t) { return t.state == state; });
  }

  std::string name(unsigned number) const { return name_of(coordinates_of(number, block_size), block_size); }

  std::string block() const { return name_of(block_index, grid_size); }

  std::string whereabouts(unsigned number) const {
    const Thread& thread = threads_[number];
    return thread.state == State::Done ? "the kernel's end" : thread.site->what + (" at " + place_of(*thread.site));
  }

  void note_divergence(unsigned one, unsigned other) {
    problem_ = "divergence in block " + block() + ": thread " + name(one) + " is at " + whereabouts(one) + ", thread " +
               name(other) + " at " + whereabouts(other);
  }

  void note_wrong_mask(unsigned number, const std::string& how) {
    problem_ =
        "divergence in block " + block() + ": " + whereabouts(number) + " by thread " + name(number) + ", " + how;
  }

  // Resumes the lanes of a warp that wait for each other. Others wait until the lanes of their masks have come, too.
  void release_warp(unsigned first, bool& has_moved) {
    const unsigned end = std::min(first + kWarp, count_);
    for (unsigned number = first; number < end; ++number) {
      if (threads_[number].state == State::Ready) {  // it runs a loop of atomic operations, and the others wait for it
        return;
      }
    }
    Lanes complete = 0;
    Lanes waiting = 0;
    for (unsigned number = first; number < end; ++number) {
      const bool is_waiting = threads_[number].state == State::AtWarp;
      if (is_waiting && !has_right_mask(first, end, number)) {
        return;
      }
      waiting |= static_cast<Lanes>(is_waiting) << (number - first);
      complete |= static_cast<Lanes>(is_waiting && !find_missing(first, end, number)) << (number - first);
    }
    if (waiting != 0 && complete == 0) {  // nobody will come
      const unsigned number = first + lowest_lane(waiting);
      const unsigned missing = *find_missing(first, end, number);
      if (threads_[missing].site == threads_[number].site) {  // it is or was there, without this lane
        note_wrong_mask(number, "whose mask differs from lane " + std::to_string(missing - first) + "'s");
      } else {
        note_divergence(number, missing);
      }
      return;
    }
    std::uint64_t (&given)[kWarp] = given_[first / kWarp];
    for (unsigned number = first; number < end; ++number) {
      Thread& thread = threads_[number];
      if ((complete >> (number - first) & 1u) == 0) {
        continue;
      }
      given[number - first] = thread.value;
      if (thread.is_ordered && number - first == lowest_lane(thread.mask)) {
        accesses::sync_warp(first, thread.mask);
      }
      thread.state = State::Ready;
      has_moved = true;
      spins_ = 0;
    }
  }

  static unsigned lowest_lane(Lanes mask) { return static_cast<unsigned>(std::countr_zero(mask)); }

  // Returns whether a waiting thread's mask and source are possible. Otherwise records the problem.
  bool has_right_mask(unsigned first, unsigned end, unsigned number) {
    const Thread& thread = threads_[number];
    const unsigned lane = number - first;
    if ((thread.mask >> lane & 1u) == 0) {
      note_wrong_mask(number, "which is not in its own mask");
    } else if (thread.source >= kWarp || (thread.mask >> thread.source & 1u) == 0) {
      note_wrong_mask(number,
                      "which reads the value of lane " + std::to_string(thread.source) + ", which is not in its mask");
    } else if (first + thread.source >= end) {
      note_wrong_mask(number, "which reads the value of lane " + std::to_string(thread.source) +
                                  ", but the block's last warp has only " + std::to_string(end - first) + " lanes");
    }
    return problem_.empty();
  }

  // Returns a lane of a waiting thread's mask that does not wait for the same lanes: at the same shuffle, or at any
  // __syncwarp.
  std::optional<unsigned> find_missing(unsigned first, unsigned end, unsigned number) const {
    const Thread& thread = threads_[number];
    for (unsigned other = first; other < end; ++other) {
      const Thread& peer = threads_[other];
      const bool is_same = peer.state == State::AtWarp && peer.mask == thread.mask &&
                           (peer.site == thread.site || (peer.is_ordered && thread.is_ordered));
      if ((thread.mask >> (other - first) & 1u) != 0 && !is_same) {
        return other;
      }
    }
    return std::nullopt;
  }

  // Resumes the block's threads. All of them must be at one barrier.
  void release_block() {
    std::uint64_t sum = 0;
    for (unsigned number = 0; number < count_; ++number) {
      if (threads_[number].state != threads_[0].state || threads_[number].site != threads_[0].site) {
        note_divergence(0, number);
        return;
      }
      sum += threads_[number].value;
    }
    for (unsigned number = 0; number < count_; ++number) {
      threads_[number].value = sum;
      threads_[number].state = State::Ready;
    }
    accesses::pass_barrier();
    spins_ = 0;
    ++passed_;
  }

  std::vector<Thread> threads_;
  Fibers fibers_;
  std::uint64_t given_[kMostThreads / kWarp][kWarp] = {};
  char begin_ = 0;  // addresses by which ThreadSanitizer identifies what orders threads
  char end_ = 0;
  char barriers_[2] = {};
  char warps_[kMostThreads / kWarp] = {};
  std::uint64_t passed_ = 0;
  std::uint64_t spins_ = 0;
  const Kernel* kernel_ = nullptr;
  const void* argument_ = nullptr;
  unsigned count_ = 0;
  unsigned current_ = 0;
  std::string problem_;
};

Scheduler& scheduler() {
  static Scheduler* const one = new Scheduler;  // never destroyed: a thread may launch while the process ends
  return *one;
}

void Scheduler::enter() {
  Scheduler& self = scheduler();
  for (;;) {  // once per block
    Fibers::acquire(&self.begin_);
    self.kernel_->run(self.argument_);
    Fibers::release(&self.end_);
    self.spins_ = 0;
    self.threads_[self.current_].state = State::Done;
    self.fibers_.leave();
  }
}

}  // namespace

std::string run(const Kernel& kernel, const Launch& launch) { return scheduler().run(kernel, launch); }

unsigned barrier(const Site& site, bool is_counted) { return scheduler().wait_for_block(site, is_counted); }

const std::uint64_t* gather(const Site& site, Lanes mask, std::uint64_t given, unsigned source) {
  return scheduler().wait_for_warp(site, mask, given, source, false);
}

void sync_warp(const Site& site, Lanes mask) {
  scheduler().wait_for_warp(site, mask, 0, thread_number() % kWarp, true);
}

void spin(const Site& site) { scheduler().spin(site); }

void note_progress() { scheduler().note_progress(); }

void fail(const std::string& what) { scheduler().fail(what); }

void trap(const Site& site) { fail(std::string(site.what) + ": by " + name_of_thread() + ", at " + place_of(site)); }

}  // namespace emulator
