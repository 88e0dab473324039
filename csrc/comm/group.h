// The ranks of a group, the operations that this rank has under way in it, and what became of its peers.
//
// Collectives run one at a time, in the order in which they were issued; transfers between two ranks run beside them.
// Any thread may drive a group: whoever waits for an operation does, and the background thread (progress.h) for the
// rest.

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
#include <string>
#include <vector>

#include "clock.h"
#include "errors.h"
#include "mailbox.h"
#include "segment.h"
#include "task.h"

namespace anyaccel::comm {

constexpr milliseconds kSupervision{50};  // how often a waiting rank looks whether its peers live

// What is known of an operation when it is issued.
struct OperationFacts {
  const char* name = "";
  std::uint64_t sequence = 0;
  int peer = -1;  // of a transfer; -1 in a collective, and in a receive from any rank
  bool is_transfer = false;
  bool is_eager = false;  // a transfer that is probably waited for at once
  milliseconds timeout{0};
  const int* source = nullptr;  // of a receive: whom its message came from, -1 before
};

// An operation from issue to end. `finish` is called once, by whoever drove it, outside of the group's lock.
struct Operation : OperationFacts {
  std::function<void(std::exception_ptr)> finish;

  Task task;
  Suspension suspension;
  Clock::time_point deadline = Clock::time_point::max();  // counted from its turn
  std::atomic<bool> is_finished = false;

  std::string title() const;
};
using OperationPtr = std::shared_ptr<Operation>;

class Group : public std::enable_shared_from_this<Group> {
 public:
  Group(std::shared_ptr<Segment> segment, int rank, int global_rank);
  ~Group();

  // Waits until every rank has joined: from then on, one that is not present is dead.
  void wait_for_all(milliseconds timeout, const std::function<void()>& interrupt);

  int rank() const { return rank_; }
  int world() const { return segment_->layout.world; }
  Segment& segment() { return *segment_; }
  Mailbox& mailbox() { return mailbox_; }

  // Queues an operation and starts it, as far as it goes without waiting.
  void submit(const OperationPtr& operation);

  // Drives the group until an operation is finished; false when the time is over first. `interrupt` is called now and
  // then while the thread sleeps, and may throw.
  bool drive(const Operation& operation, Clock::time_point until, const std::function<void()>& interrupt);

  // Drives the group for some microseconds: a message whose receiver is waiting is through before a thread could take
  // over.
  bool spin_briefly(const Operation& operation);

  // Advances what can be advanced; true when anything moved. Unless it waits, another thread that is at it is enough;
  // before sleeping it is not, as that thread may have looked too early.
  bool progress(bool waits = false);

  // Ends operations whose time is over or whose peers are gone. Cheap unless kSupervision has passed.
  void supervise();

  // Ends a receive whose message has not come; false when it has, or when it is over.
  bool give_up(const OperationPtr& operation, const std::string& text);

  // Gives memory back that was not used since the last call and that nobody reads any more; true when there is none
  // left.
  bool give_back();
  void sweep_later() { wants_sweep_.store(true, std::memory_order_relaxed); }

  bool has_pending();
  bool is_driven_in_foreground() const { return drivers_.load(std::memory_order_acquire) > 0; }
  Doorbell& bell() { return segment_->state(rank_).bell; }

  // Ends every operation of every rank, now and from now on; the first text stands.
  void fail(const std::string& text);
  // Ends this rank's operations, and tells its peers that it is gone.
  void leave(const std::string& text);
  bool has_failed() const { return segment_->header().failure.load(std::memory_order_acquire) != 0; }
  std::string failure_text() const;

  // Throws in a process forked from the group's, in a failed group and in one that was left.
  void require_usable() const;
  void require_own_process() const;
  bool is_forked() const { return maker_ != process_token(); }

  // A round of a collective: this rank posts its part, then waits until everyone has. Whoever posts a round has read
  // all that it wants of the one before, so that memory for two rounds is enough.
  std::uint64_t round() const { return round_; }
  void post();
  bool everyone_posted() const;
  void allocate_slots();

  // How many collectives have begun, or were refused: the same on every rank at the same operation.
  std::uint64_t begin_collective() { return ++collectives_begun_; }
  std::uint64_t collectives_begun() const { return collectives_begun_; }
  // A collective that this rank refused, at its place in the order.
  void skip();
  void ring(int rank) { segment_->state(rank).bell.ring(); }

  // Why an operation was not over in time.
  std::string lateness_of(const Operation& operation) const;

  // The ranks that have not come to the last round that this one has taken part in.
  std::vector<int> late_ranks() const;

  // "rank 1 (global rank 3, pid 4711)"
  std::string name_of_rank(int rank) const;

 private:
  using Finished = std::vector<std::pair<OperationPtr, std::exception_ptr>>;

  bool advance(const OperationPtr& operation, Finished& finished, bool& moved);
  bool advance_all(Finished& finished);
  void fail_unless_agreed(const Operation& operation);
  void end_all(const std::string& text, Finished& finished);
  void end_hopeless_transfers(const std::vector<int>& gone, Finished& finished);
  void settle(Finished& finished);
  std::string problem_of(const Operation& operation, const std::vector<int>& gone) const;
  std::vector<int> awaited_by(const Operation& operation) const;
  std::vector<int> gone_ranks() const;
  std::string names_of_ranks(const std::vector<int>& ranks) const;
  bool spin(const Operation& operation, int turns);

  const std::shared_ptr<Segment> segment_;
  const int rank_;
  const std::uint64_t maker_;
  std::uint64_t round_ = 0;
  std::uint64_t collectives_begun_ = 0;
  bool has_slots_ = false;
  std::uint64_t swept_round_ = 0;
  std::atomic<bool> wants_sweep_ = false;

  std::mutex mutex_;  // guards what follows
  std::deque<OperationPtr> collectives_;
  std::list<OperationPtr> transfers_;
  Mailbox mailbox_;
  std::atomic<bool> has_left_ = false;
  std::string farewell_;

  std::atomic<int> drivers_ = 0;
  std::atomic<Clock::time_point> next_supervision_{Clock::time_point{}};
  const int spins_;
};

using GroupPtr = std::shared_ptr<Group>;

}  // namespace anyaccel::comm
