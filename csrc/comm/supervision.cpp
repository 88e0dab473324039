// Detects ranks that have died, stopped, left or forked, and ends the operations that wait for them.

#include <algorithm>
#include <cstring>
#include <iterator>
#include <thread>

#include "group.h"

namespace anyaccel::comm {

void Group::supervise() {
  const Clock::time_point now = Clock::now();
  if (now < next_supervision_.load(std::memory_order_relaxed)) return;
  next_supervision_.store(now + kSupervision, std::memory_order_relaxed);
  Finished finished;
  {
    const std::lock_guard lock(mutex_);
    if (!has_failed()) {
      std::string problem;
      // a rank that is gone does nothing more, so its earlier messages are complete: look at them after this check
      const std::vector<int> gone = gone_ranks();
      advance_all(finished);
      // a refusal may wait without limit, unless something waits behind it
      const auto is_wanted = [](const OperationPtr& one) { return !one->is_refusal; };
      const auto first = std::find_if(collectives_.begin(), collectives_.end(), is_wanted);
      if (first != collectives_.end()) {
        Operation& front = *collectives_.front();
        if (front.is_refusal) front.timeout = (*first)->timeout;
        start_clock(front);
        problem = problem_of(**first, gone);
        if (problem.empty() && now >= front.deadline) problem = lateness_text(**first);
      }
      end_hopeless_transfers(gone, finished);
      if (!problem.empty()) fail(problem);
    }
    if (has_failed()) end_all(failure_text(), finished);
  }
  settle(finished);
}

// Ends transfers whose peers are gone. The rest of the group is not affected.
void Group::end_hopeless_transfers(const std::vector<int>& gone, Finished& finished) {
  for (auto one = transfers_.begin(); one != transfers_.end();) {
    const std::string problem = problem_of(**one, gone);
    if (problem.empty()) {
      ++one;
      continue;
    }
    (*one)->task = Task();
    finished.emplace_back(*one, std::make_exception_ptr(CommError(problem)));
    one = transfers_.erase(one);
  }
}

// Returns why an operation can never end, or an empty string if it still can.
std::string Group::problem_of(const Operation& operation, const std::vector<int>& all_gone) const {
  const std::vector<int> awaited = awaited_by(operation);
  std::vector<int> gone;
  std::set_intersection(awaited.begin(), awaited.end(), all_gone.begin(), all_gone.end(), std::back_inserter(gone));
  // a collective ends when one is gone; a receive from any rank when all are
  if (!gone.empty() && (!operation.is_transfer || gone.size() == awaited.size())) {
    const bool left = segment_->state(gone[0]).has_left.load(std::memory_order_acquire) != 0;
    return "shm " + operation.title() + " failed: got " + names_of_ranks(gone) +
           (left ? " leaving the group (destroy_process_group, or its end)" : " dead") + " while " +
           name_of_rank(rank_) +
           " waited; expected every rank to take part. Fix: find out why it ended, and restart the ranks.";
  }
  return "";
}

std::string Group::lateness_of(const Operation& operation) {
  const std::lock_guard lock(mutex_);
  return lateness_text(operation);
}

std::string Group::lateness_text(const Operation& operation) const {
  const std::string lateness =
      "shm " + operation.title() + " failed: Timed out waiting " + std::to_string(operation.timeout.count()) + "ms: ";
  std::vector<int> awaited = awaited_by(operation);
  std::erase_if(awaited, [&](int rank) {
    const std::uint64_t posted = segment_->state(rank).posted.load(std::memory_order_acquire);
    return !operation.is_transfer && posted > operation.rounds_before;
  });
  if (awaited.empty()) {
    return lateness + "every rank takes part, and it is not finished at " + name_of_rank(rank_) +
           "; expected it to take less than its timeout. Fix: raise the timeout.";
  }
  return lateness + "got nothing from " + names_of_ranks(awaited) + " at " + name_of_rank(rank_) +
         "; expected every rank to call it. Fix: see what they do instead, or raise the timeout.";
}

// Returns the ranks that an operation waits for: in a collective, those that have posted fewer rounds than this rank.
std::vector<int> Group::awaited_by(const Operation& operation) const {
  if (!operation.is_transfer) return late_ranks();
  if (operation.peer >= 0) return {operation.peer};
  if (operation.source != nullptr && *operation.source >= 0) return {*operation.source};  // its message is arriving
  std::vector<int> others;
  for (int rank = 0; rank < world(); ++rank) {
    if (rank != rank_) others.push_back(rank);
  }
  return others;
}

std::vector<int> Group::late_ranks() const {
  std::vector<int> late;
  for (int rank = 0; rank < world(); ++rank) {
    const bool is_late = segment_->state(rank).posted.load(std::memory_order_acquire) < round_;
    if (rank != rank_ && is_late) late.push_back(rank);
  }
  return late;
}

std::vector<int> Group::gone_ranks() const {
  std::vector<int> gone;
  for (int rank = 0; rank < world(); ++rank) {
    const bool has_left = segment_->state(rank).has_left.load(std::memory_order_acquire) != 0;
    if (rank != rank_ && (has_left || !segment_->is_present(rank))) gone.push_back(rank);
  }
  return gone;
}

std::string Group::name_of_rank(int rank) const {
  const RankState& state = segment_->state(rank);
  const int called = called_.empty() ? rank : called_[rank];
  const std::string global =
      state.global_rank == called ? "" : "global rank " + std::to_string(state.global_rank) + ", ";
  return "rank " + std::to_string(called) + " (" + global + "pid " + std::to_string(state.pid) + ")";
}

std::string Group::names_of_ranks(const std::vector<int>& ranks) const {
  std::string names;
  for (const int rank : ranks) names += (names.empty() ? "" : ", ") + name_of_rank(rank);
  return names;
}

void Group::fail(const std::string& text) {
  Header& header = segment_->header();
  std::uint32_t none = 0;
  if (header.failure.compare_exchange_strong(none, 1)) {
    const std::size_t length = std::min(text.size(), sizeof(header.failure_text) - 1);
    std::memcpy(header.failure_text, text.data(), length);
    header.failure_text[length] = '\0';
    header.failure.store(2, std::memory_order_release);
  }
  for (int rank = 0; rank < world(); ++rank) ring(rank);
}

// The text follows the flag immediately, unless its writer was killed in between.
std::string Group::failure_text() const {
  const Header& header = segment_->header();
  for (int turn = 0; turn < 100 && header.failure.load(std::memory_order_acquire) == 1; ++turn) {
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  if (header.failure.load(std::memory_order_acquire) != 2)
    return "shm failed: a rank died while it told the others why";
  return {header.failure_text, strnlen(header.failure_text, sizeof(header.failure_text))};
}

// After a mismatch, all ranks know of it and have taken the same rounds. After any other error, this rank is out of
// step.
void Group::fail_unless_agreed(const Operation& operation) {
  try {
    std::rethrow_exception(operation.task.error());
  } catch (const MismatchError&) {
  } catch (const std::exception& error) {
    fail("shm " + operation.title() + " failed on " + name_of_rank(rank_) + ": " + error.what());
  }
}

void Group::leave(const std::string& text) {
  if (is_forked()) return;
  Finished finished;
  {
    const std::lock_guard lock(mutex_);
    if (has_left_) return;
    farewell_ = text;
    has_left_ = true;
    end_all(text, finished);
  }
  segment_->state(rank_).has_left.store(1, std::memory_order_release);
  for (int rank = 0; rank < world(); ++rank) ring(rank);
  settle(finished);
}

void Group::require_own_process() const {
  if (is_forked()) {
    throw CommError(
        "shm failed: got an operation in a process that was forked from the group's; expected the one that made "
        "the group. Fix: start processes with the method 'spawn', or call init_process_group in the child.");
  }
}

void Group::require_usable() const {
  require_own_process();
  if (has_left_) throw CommError(farewell_);
  if (has_failed()) throw CommError(failure_text());
}

}  // namespace anyaccel::comm
