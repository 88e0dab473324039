#include "spanning_backend.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "spanning_checks.h"
#include "spanning_queue.h"

namespace anyaccel::comm {

SpanningBackend::SpanningBackend(int rank, int size, Hosts hosts, GroupPtr group, c10::intrusive_ptr<ShmBackend> local,
                                 c10::intrusive_ptr<c10d::Backend> leaders, c10::intrusive_ptr<c10d::Backend> everyone)
    : Backend(rank, size),
      hosts_(std::move(hosts)),
      places_(size),
      group_(std::move(group)),
      local_(std::move(local)),
      leaders_(std::move(leaders)),
      everyone_(std::move(everyone)),
      leaders_wire_(leaders_),
      everyone_wire_(everyone_),
      messages_(std::make_shared<OpenMessages>()),
      any_source_(std::make_shared<AnySource>(group_, hosts_.ranks[hosts_.own], size, everyone_, messages_)),
      queue_(std::make_shared<Queue>()) {
  for (std::size_t host = 0; host < hosts_.ranks.size(); ++host) {
    const std::vector<int>& ranks = hosts_.ranks[host];
    for (std::size_t i = 0; i < ranks.size(); ++i) places_[ranks[i]] = {static_cast<int>(host), static_cast<int>(i)};
    are_hosts_alike_ = are_hosts_alike_ && ranks.size() == hosts_.ranks[0].size();
  }
  if (leads()) notices_.emplace(leaders_wire_, hosts_.own, hosts_.ranks.size());
  any_source_->start();
}

SpanningBackend::~SpanningBackend() {
  if (!group_->is_forked()) {
    leave();
    return;
  }
  // gloo's destructors join threads that a forked child lacks: there, they never run
  c10::intrusive_ptr<c10d::Backend>(leaders_).release();
  c10::intrusive_ptr<c10d::Backend>(everyone_).release();
  if (notices_) new std::optional<Notices>(std::move(notices_));
}

void SpanningBackend::setTimeout(std::chrono::milliseconds timeout) {
  local_->setTimeout(timeout);
  if (leads()) leaders_->setTimeout(std::min(timeout, kForever));
  everyone_->setTimeout(std::min(timeout, kForever));
}

void SpanningBackend::require_usable() const {
  try {
    group_->require_usable();
  } catch (const CommError& error) {
    throw_backend_error(error.what());
  }
}

WorkPtr SpanningBackend::enqueue(Turn& turn, Queued what, std::function<void()> run) {
  if (leads() && group_->has_failed()) {  // perhaps while nothing ran, so that no other host has heard of it
    Queue::push(queue_,
                {c10::intrusive_ptr<SpanningBackend>::reclaim_copy(this), nullptr, [this] { require_usable(); }, 0});
  }
  require_usable();
  require_running_python();
  auto work = c10::make_intrusive<QueuedWork>(group_, rank_, what.type, what.title, what.inputs, what.outputs);
  ++sequence_;
  turn.is_taken = true;
  const bool is_queued =
      Queue::push(queue_, {c10::intrusive_ptr<SpanningBackend>::reclaim_copy(this), work, std::move(run), 0});
  TORCH_CHECK(is_queued, "shm failed: the process group was shut down. Fix: call init_process_group again.");
  if (!what.is_async) work->wait(kNoTimeout);
  return work;
}

// Takes this rank's part in a collective that it refuses.
void SpanningBackend::refuse(const std::string& reason) {
  if (group_->is_forked() || group_->has_failed() || ExitGate::instance().is_closed()) return;
  const auto tell = [this, told = reason.substr(0, kRiderBytes)] {
    const at::Tensor rider = at::empty({static_cast<int64_t>(told.size())}, at::kByte);
    std::memcpy(rider.mutable_data_ptr(), told.data(), told.size());
    agree({Collective::kRefused, at::kByte, rider.numel()}, rider);
  };
  Queue::push(queue_, {c10::intrusive_ptr<SpanningBackend>::reclaim_copy(this), nullptr, tell, 0});
}

void SpanningBackend::wait_for_queued_operations() {
  std::unique_lock lock(queue_->mutex);
  const auto is_over = [this] {
    return queue_->unfinished == 0 || group_->has_failed() || ExitGate::instance().is_closed();
  };
  while (!queue_->changed.wait_for(lock, kSupervision, is_over)) {
    lock.unlock();
    if (interrupt) interrupt();
    lock.lock();
  }
}

// Ranks that disagree all know it, and are in step. After any other error this one is not, and ends the group.
void SpanningBackend::run_in_step(const std::function<void()>& run) {
  try {
    run();
  } catch (const MismatchError& error) {
    throw_backend_error(error.what());
  } catch (const std::exception& error) {
    const std::string reason = reason_of(error);
    group_->fail("shm failed between hosts, seen by " + group_->name_of_rank(group_->rank()) + ": " + reason);
    if (leads()) {
      tell_other_hosts(reason);
      leaders_->abort();
    }
    everyone_->abort();
    messages_->abort();
    any_source_->shut_down();
    throw;
  }
}

void SpanningBackend::between_hosts(const std::function<WorkPtr(c10d::Backend&)>& call) {
  if (leads()) finish(call(*leaders_));
}

void SpanningBackend::abort() {
  if (group_->is_forked()) return;
  any_source_->shut_down();
  local_->abort();
  if (leads()) leaders_->abort();
  everyone_->abort();
  messages_->abort();
  for (const c10::intrusive_ptr<QueuedWork>& one : queue_->works()) one->abort();
}

// What was issued is done first.
void SpanningBackend::shutdown() {
  if (group_->is_forked()) return;
  try {
    wait_for_queued_operations();
  } catch (...) {
    leave();
    throw;
  }
  leave();
}

// Does not wait for the thread, which may be waiting for another host until the timeout.
void SpanningBackend::leave() {
  any_source_->shut_down();
  local_->leave();
  messages_->abort();
  if (leads()) leaders_->shutdown();
  everyone_->shutdown();
  std::deque<Queue::Job> dropped;
  {
    const std::lock_guard lock(queue_->mutex);
    queue_->is_ending = true;
    dropped.swap(queue_->jobs);
    queue_->unfinished -=
        std::count_if(dropped.begin(), dropped.end(), [](const auto& job) { return job.work.defined(); });
  }
  queue_->changed.notify_all();
  for (const Queue::Job& job : dropped) {
    if (job.work) job.work->drop("shm failed: the process group was shut down. Fix: call init_process_group again.");
  }
}

}  // namespace anyaccel::comm
