#include "spanning_any_source.h"

#include <ATen/core/LegacyTypeDispatch.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "exit_gate.h"
#include "shm_work.h"
#include "spanning_checks.h"
#include "start_thread.h"
#include "wire.h"

namespace anyaccel::comm {
namespace {

constexpr const char* kWithdrawn = "withdrawn";
constexpr const char* kShutDown = "shm failed: the process group was shut down. Fix: call init_process_group again.";

std::string text_of(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const std::exception& known) {
    return known.what();
  }
}

at::Tensor bytes_of(const void* data, std::size_t bytes) {
  at::Tensor tensor = at::empty({static_cast<int64_t>(bytes)}, at::kByte);
  std::memcpy(tensor.mutable_data_ptr(), data, bytes);
  return tensor;
}

}  // namespace

// Once a sender is known, what is left is a receive by name, which ends when someone waits for it, as gloo's do.
class AnySourceWork : public c10d::Work {
 public:
  AnySourceWork(std::shared_ptr<AnySource> owner, at::Tensor output, int tag, milliseconds timeout)
      : Work(-1, OpType::RECVANYSOURCE),
        owner_(std::move(owner)),
        tag_(tag),
        timeout_(timeout),
        output_(std::move(output)),
        arrived_(is_plain(output_) ? output_ : at::empty(output_.sizes(), output_.options())),
        bytes_{as_bytes(arrived_)} {}

  bool wait(std::chrono::milliseconds timeout) override {
    const ExitGate::Leaving at_the_end;
    require_own_process(*owner_->group_);
    const bool is_limited = timeout != kNoTimeout;
    const milliseconds patience = is_limited ? timeout : timeout_;
    const auto until = end_of(patience);
    try {
      if (const OperationPtr local = owner_->local_of(*this)) owner_->group_->drive(*local, until, interrupt);
    } catch (const CommError& error) {
      throw_backend_error(error.what());
    }
    if (!knows_outcome(until)) {
      const std::string lateness = "shm recv failed: Timed out waiting " + std::to_string(patience.count()) +
                                   "ms: got nothing from any rank; expected a message with tag " +
                                   std::to_string(tag_) + ". Fix: see what the ranks do instead, or raise the timeout.";
      if (is_limited) throw_backend_error(lateness + " The operation continues.");
      owner_->give_up(c10::intrusive_ptr<AnySourceWork>::reclaim_copy(this), lateness);
      if (!knows_outcome(Clock::now())) throw_backend_error(lateness);  // it comes too slowly
    }
    if (!isCompleted()) finish_receiving(patience);
    if (const std::exception_ptr error = exception()) std::rethrow_exception(error);
    return true;
  }
  void synchronize() override { wait(kNoTimeout); }
  int sourceRank() const override { return source_; }
  Tensors result() override { return {output_}; }

 private:
  friend class AnySource;

  // Waits until the receive has ended, or its sender on another host is known.
  bool knows_outcome(Clock::time_point until) {
    std::unique_lock lock(mutex_);
    while (!completed_ && !remote_.defined()) {
      const auto now = Clock::now();
      if (now >= until) return false;
      cv_.wait_until(lock, std::min(until, now + kSupervision));
      lock.unlock();
      if (interrupt) interrupt();
      lock.lock();
    }
    return true;
  }
  void finish_receiving(std::chrono::milliseconds timeout) {
    const std::unique_lock one_at_a_time = lock_in_time(waiting_, timeout);
    if (isCompleted()) return;
    try {
      remote_->wait(timeout);
      succeed();
    } catch (...) {
      finish(std::current_exception());
    }
  }
  void succeed() {
    const at::AutoDispatchBelowADInplaceOrView without_autograd;
    if (!arrived_.is_same(output_)) output_.copy_(arrived_);
    finish(nullptr);
  }
  void fail(const std::string& text) { finish(as_backend_error(std::make_exception_ptr(CommError(text)))); }
  void receive_from(int rank, WorkPtr remote) {
    {
      const std::lock_guard lock(mutex_);
      source_ = rank;
      remote_ = std::move(remote);
    }
    cv_.notify_all();
  }

  const std::shared_ptr<AnySource> owner_;
  const int tag_;
  const milliseconds timeout_;
  const at::Tensor output_, arrived_;
  Tensors bytes_;            // of what arrives
  OperationPtr local_;       // null where no rank of this host can send any more
  bool is_decided_ = false;  // a rank of this host has sent the message, or the receive has failed
  int local_source_ = -1;
  std::atomic<int> source_ = -1;
  WorkPtr remote_;
  std::timed_mutex waiting_;
};

WorkPtr AnySource::receive(const at::Tensor& output, int tag, milliseconds timeout) {
  const auto one = c10::make_intrusive<AnySourceWork>(shared_from_this(), output, tag, timeout);
  const at::Tensor& arrived = one->arrived_;
  auto local = std::make_shared<Operation>();
  local->name = "recv";
  local->is_transfer = true;
  local->timeout = timeout;
  local->source = &one->local_source_;
  local->task =
      group_->mailbox().receive(-1, tag, dtype_of(arrived), arrived.data_ptr(), arrived.nbytes(), &one->local_source_);
  local->finish = [self = shared_from_this(), one](const std::exception_ptr& error) { self->local_ended(one, error); };
  one->local_ = local;
  try {
    group_->submit(local);
  } catch (const CommError& error) {
    local->finish = nullptr;
    throw_backend_error(error.what());
  }
  if (!local->is_finished) attend_if_possible(group_);
  std::string over;
  {
    const std::lock_guard lock(mutex_);
    if (!one->is_decided_) waiting_.push_back(one);
    over = over_;
  }
  if (over.empty()) {
    match(tag);
  } else {
    give_up(one, over);
  }
  return one;
}

OperationPtr AnySource::local_of(const AnySourceWork& one) {
  const std::lock_guard lock(mutex_);
  return one.local_;
}

// A rank of this host has sent the message, or all of them are gone and another host's may still send it.
void AnySource::local_ended(const WaitingPtr& one, const std::exception_ptr& error) {
  if (error && text_of(error) == kWithdrawn) return;
  {
    const std::lock_guard lock(mutex_);
    one->local_ = nullptr;
    one->is_decided_ = !error || one->local_source_ >= 0 || group_->has_failed() || !over_.empty();
    if (one->is_decided_) waiting_.remove(one);
  }
  if (!one->is_decided_) return match(one->tag_);
  if (error) return one->fail(text_of(error));
  one->source_ = here_[one->local_source_];
  one->succeed();
}

// Returns false if the message comes from this host: then the local operation ends the receive.
bool AnySource::withdraw(const WaitingPtr& one) {
  if (one->local_ && !group_->give_up(one->local_, kWithdrawn)) return false;
  one->local_ = nullptr;
  return true;
}

void AnySource::give_up(const WaitingPtr& one, const std::string& text) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find(waiting_.begin(), waiting_.end(), one);
  if (found == waiting_.end() || !withdraw(one)) return;
  waiting_.erase(found);
  one->fail(text);
}

// Gives the receives of a tag what ranks of other hosts have sent, and asks those that are not known to have.
void AnySource::match(int tag) {
  std::vector<WaitingPtr> met;  // let go of after the lock: the last reference to a tensor takes Python's
  const std::lock_guard lock(mutex_);
  for (int rank = 0; rank < size_; ++rank) {
    if (std::find(here_.begin(), here_.end(), rank) != here_.end()) continue;
    const Route route{rank, tag};
    for (auto next = waiting_.begin(); next != waiting_.end() && over_.empty();) {
      const WaitingPtr& one = *next;
      if (one->tag_ == tag && known_[route] <= received_[route]) {
        ask(rank, tag);
        break;
      }
      if (one->tag_ != tag || !withdraw(one)) {
        ++next;
        continue;
      }
      ++received_[route];
      try {
        WorkPtr message = everyone_->recv(one->bytes_, rank, tag);
        one->receive_from(
            rank, c10::make_intrusive<MessageWork>(OpType::RECV, group_, messages_, std::move(message), one->timeout_));
      } catch (const std::exception& error) {
        one->fail(error.what());
      }
      met.push_back(one);
      next = waiting_.erase(next);
    }
  }
}

void AnySource::ask(int rank, int tag) {
  if (asked_.insert({rank, tag}).second) send_note(rank, {Kind::kQuestion, tag, received_[{rank, tag}]});
}

void AnySource::answer(int rank, int tag) { send_note(rank, {Kind::kAnswer, tag, sent_[{rank, tag}]}); }

// To a rank that is gone, nothing is sent: nothing will come from it either.
void AnySource::send_note(int to, const Note& note) {
  WorkPtr& last = notes_[{note.kind, to, static_cast<int>(note.tag)}];
  try {
    if (last) finish(last);
    Tensors bytes{bytes_of(&note, sizeof(note))};
    last = everyone_->send(bytes, to, kNoteTag);
  } catch (const std::exception&) {
    last = nullptr;
  }
}

void AnySource::count_sent(int to, int tag) {
  const std::lock_guard lock(mutex_);
  const Route route{to, tag};
  const int64_t count = ++sent_[route];
  const auto question = questions_.find(route);
  if (question == questions_.end() || count <= question->second) return;
  questions_.erase(question);
  answer(to, tag);
}

void AnySource::count_received(int from, int tag) {
  const std::lock_guard lock(mutex_);
  ++received_[{from, tag}];
}

void AnySource::start() {
  start_thread([self = shared_from_this()] { self->serve(); });
}

// A rank that dies while its note is on the way ends that receive, and not the thread.
void AnySource::serve() {
  ExitGate::keep_going();
  try {
    for (;;) {
      Tensors bytes{at::empty({static_cast<int64_t>(sizeof(Note))}, at::kByte)};
      const WorkPtr listening = everyone_->recvAnysource(bytes, kNoteTag);
      {
        const std::lock_guard lock(mutex_);
        if (!over_.empty()) return;
        listening_ = listening;
      }
      try {
        if (!listening->wait(kForever)) return end(kShutDown);
      } catch (const std::exception&) {
        continue;
      }
      Note note{};
      std::memcpy(&note, bytes[0].const_data_ptr(), sizeof(note));
      const ExitGate::Inside inside;
      hear(listening->sourceRank(), note);
    }
  } catch (const std::exception& error) {
    end(std::string("shm recv failed: ") + error.what());
  }
}

void AnySource::hear(int from, const Note& note) {
  const int tag = static_cast<int>(note.tag);
  const Route route{from, tag};
  {
    const std::lock_guard lock(mutex_);
    if (note.kind == Kind::kQuestion) {
      if (sent_[route] > note.count) return answer(from, tag);
      questions_[route] = note.count;
      return;
    }
    known_[route] = std::max(known_[route], note.count);
    asked_.erase(route);
  }
  match(tag);
}

void AnySource::end(const std::string& text) {
  std::list<WaitingPtr> ended;
  WorkPtr listening;
  {
    const std::lock_guard lock(mutex_);
    if (over_.empty()) over_ = text;
    listening = std::exchange(listening_, nullptr);
    ended = waiting_;
  }
  if (listening) listening->abort();
  for (const WaitingPtr& one : ended) give_up(one, text);
}

void AnySource::shut_down() { end(kShutDown); }

}  // namespace anyaccel::comm
