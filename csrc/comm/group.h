// The ranks of a group, this rank's operations in flight, and the state of its peers.
//
// Collectives run one at a time, in the order in which they were issued. Transfers between two ranks run concurrently
// with them. Any thread may drive a group: a thread that waits for an operation does, and otherwise the background
// thread (progress.h).

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "clock.h"
#include "errors.h"
#include "mailbox.h"
#include "segment.h"
#include "task.h"

namespace anyaccel::comm {

constexpr milliseconds kSupervision{50};  // how often a waiting rank checks whether its peers are alive

// The properties of an operation that are known when it is issued.
struct OperationFacts {
  const char* name = "";
  std::uint64_t sequence = 0;
  int peer = -1;  // of a transfer; -1 for a collective, and for a receive from any rank
  bool is_transfer = false;
  bool is_refusal = false;  // tells the other ranks that this one refused a collective; waits for them without limit
  milliseconds timeout{0};
  const int* source = nullptr;  // of a receive: the rank that sent the message, or -1 before it arrives
};

// An operation. `finish` is called once, by the thread that drove it, outside of the group's lock.
struct Operation : OperationFacts {
  std::function<void(std::exception_ptr)> finish;

  Task task;
  Suspension suspension;
  Clock::time_point deadline = Clock::time_point::max();
  std::uint64_t rounds_before = 0;  // of a collective: the rounds that its ranks had posted when it began
  std::atomic<bool> is_finished = false;

  std::string title() const;
};
using OperationPtr = std::shared_ptr<Operation>;

class Group : public std::enable_shared_from_this<Group> {
 public:
  Group(std::shared_ptr<Segment> segment, int rank, int global_rank);
  ~Group();

  // Waits until every rank has joined. From then on, a rank that is not present is dead.
  void wait_for_all(milliseconds timeout, const std::function<void()>& interrupt);

  // Sets the numbers by which errors name the ranks: those of a group of which this is the part on one host.
  void call_ranks(std::vector<int> numbers) { called_ = std::move(numbers); }
  int rank() const { return rank_; }
  int world() const { return segment_->layout.world; }
  Segment& segment() { return *segment_; }
  Mailbox& mailbox() { return mailbox_; }

  // Queues an operation, and runs it as far as possible without waiting.
  void submit(const OperationPtr& operation);

  // Drives the group until an operation is finished. Returns false at the timeout. `interrupt` is called regularly
  // while the thread sleeps, and may throw.
  bool drive(const Operation& operation, Clock::time_point until, const std::function<void()>& interrupt);

  // Drives the group for some microseconds. A message whose receiver already waits is delivered in that time, before
  // another thread could take over.
  bool spin_briefly(const Operation& operation);

  // Drives the group until the collectives that were issued have ended, each by its own timeout.
  void finish_collectives(const std::function<void()>& interrupt);

  // Advances all operations that can advance. Returns true if any did. If another thread is doing so, this returns at
  // once unless `waits` is set: before a thread sleeps it must check itself, because the other may have checked too
  // early.
  bool progress(bool waits = false);

  // Ends operations that have timed out or whose peers are gone. Does nothing more often than every kSupervision.
  void supervise();

  // Ends a receive whose message has not arrived. Returns false if it has arrived, or if the receive has ended.
  bool give_up(const OperationPtr& operation, const std::string& text);

  // Frees memory that was not used since the last call and that no rank still reads. Returns true if none is left.
  bool give_back();
  void sweep_later() { wants_sweep_.store(true, std::memory_order_relaxed); }

  bool has_pending();
  bool is_driven_in_foreground() const { return drivers_.load(std::memory_order_acquire) > 0; }
  Doorbell& bell() { return segment_->state(rank_).bell; }

  // Ends every current and future operation of every rank. If called more than once, the first text is kept.
  void fail(const std::string& text);
  // Ends this rank's operations, and tells its peers that it has left.
  void leave(const std::string& text);
  bool has_failed() const { return segment_->header().failure.load(std::memory_order_acquire) != 0; }
  std::string failure_text() const;

  // Throws in a forked process, if the group has failed, or if this rank has left it.
  void require_usable() const;
  void require_own_process() const;
  bool is_forked() const { return maker_ != process_token(); }

  // A round of a collective: this rank posts its part, then waits until every rank has. A rank that posts a round has
  // finished reading the previous one, so memory for two rounds is enough.
  std::uint64_t round() const { return round_; }
  void post();
  bool everyone_posted() const;
  void allocate_slots();

  // The number of collectives that have begun, refused ones included. It is the same on every rank at the same
  // operation.
  std::uint64_t begin_collective() { return ++collectives_begun_; }
  std::uint64_t collectives_begun() const { return collectives_begun_; }
  void ring(int rank) { segment_->state(rank).bell.ring(); }

  // Returns why an operation timed out.
  std::string lateness_of(const Operation& operation);

  // Returns the ranks that have not reached this rank's latest round.
  std::vector<int> late_ranks() const;

  // Returns "rank 1 (global rank 3, pid 4711)".
  std::string name_of_rank(int rank) const;

 private:
  using Finished = std::vector<std::pair<OperationPtr, std::exception_ptr>>;

  bool advance(const OperationPtr& operation, Finished& finished, bool& moved);
  bool advance_all(Finished& finished);
  void start_clock(Operation& operation);  // when its turn comes; later calls have no effect
  void advance_transfers(Finished& finished, bool& moved);
  void fail_unless_agreed(const Operation& operation);
  void end_all(const std::string& text, Finished& finished);
  void end_hopeless_transfers(const std::vector<int>& gone, Finished& finished);
  void settle(Finished& finished);
  std::string lateness_text(const Operation& operation) const;
  std::string problem_of(const Operation& operation, const std::vector<int>& gone) const;
  std::vector<int> awaited_by(const Operation& operation) const;
  std::vector<int> gone_ranks() const;
  std::string names_of_ranks(const std::vector<int>& ranks) const;
  bool spin(const Operation& operation, int turns);
  // Lets others have the core. Returns false if a thread that computes has kept it: then it is better to sleep.
  bool yields();

  const std::shared_ptr<Segment> segment_;
  const int rank_;
  const std::uint64_t maker_;
  std::uint64_t round_ = 0;
  std::uint64_t collectives_begun_ = 0;
  bool has_slots_ = false;
  std::uint64_t swept_round_ = 0;
  std::atomic<bool> wants_sweep_ = false;

  std::mutex mutex_;  // guards the members below
  std::deque<OperationPtr> collectives_;
  std::list<OperationPtr> transfers_;
  std::optional<std::uint64_t> seen_activity_;  // of the mailbox, when no transfer could go on
  Mailbox mailbox_;
  std::atomic<bool> has_left_ = false;
  std::string farewell_;

  std::atomic<int> drivers_ = 0;
  std::vector<int> called_;  // set before the group is used
  std::atomic<Clock::time_point> next_supervision_{Clock::time_point{}};
  const int spins_;
  std::atomic<int> waits_without_yield_ = 0;
};

using GroupPtr = std::shared_ptr<Group>;

}  // namespace anyaccel::comm
