// The operations of a group between hosts in the order of issue, and the thread that runs them, started when it is
// first needed.

#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "queued_work.h"
#include "spanning_backend.h"
#include "start_thread.h"

namespace anyaccel::comm {

struct SpanningBackend::Queue {
  struct Job {
    c10::intrusive_ptr<SpanningBackend> owner;
    c10::intrusive_ptr<QueuedWork> work;  // null for a refusal
    std::function<void()> run;
    int64_t number;
  };

  // Returns false if the group was shut down.
  static bool push(const std::shared_ptr<Queue>& queue, Job job) {
    {
      const std::lock_guard lock(queue->mutex);
      if (queue->is_ending) return false;
      if (!queue->is_running) {
        start_thread([queue] { serve(queue); });
        queue->is_running = true;
      }
      job.number = ++queue->issued;
      if (job.work) ++queue->unfinished;
      queue->jobs.push_back(std::move(job));
    }
    queue->changed.notify_all();
    return true;
  }

  static void serve(const std::shared_ptr<Queue>& queue) {
    ExitGate::keep_going();
    while (std::optional<Job> next = queue->take()) {
      const auto run = [&next] {
        next->owner->number_ = next->number;
        next->owner->run_in_step(next->run);
      };
      if (next->work) {
        next->work->run(run);
      } else {
        tell(run);
      }
      const ExitGate::Inside inside;
      queue->end(*next);
      next.reset();  // its tensors, and perhaps the group
    }
  }

  // Waits for a job. Returns none when the group was shut down.
  std::optional<Job> take() {
    std::unique_lock lock(mutex);
    changed.wait(lock, [this] { return is_ending || !jobs.empty(); });
    if (jobs.empty()) return std::nullopt;
    Job next = std::move(jobs.front());
    jobs.pop_front();
    running = next.work;
    return next;
  }

  void end(const Job& job) {
    if (!job.work) return;
    {
      const std::lock_guard lock(mutex);
      --unfinished;
      running = nullptr;
    }
    changed.notify_all();
  }

  // An error has ended the group, which is what the next operation says.
  static void tell(const std::function<void()>& refusal) {
    try {
      const at::AutoDispatchBelowADInplaceOrView without_autograd;
      refusal();
    } catch (const std::exception&) {
    }
  }

  // An operation that runs on a thread of its own, beside the queue.
  void add_beside(const c10::intrusive_ptr<QueuedWork>& work) {
    const std::lock_guard lock(mutex);
    beside.push_back(work);
  }
  void remove_beside(const c10::intrusive_ptr<QueuedWork>& work) {
    const std::lock_guard lock(mutex);
    std::erase(beside, work);
  }

  // Returns those that have not ended.
  std::vector<c10::intrusive_ptr<QueuedWork>> works() {
    const std::lock_guard lock(mutex);
    std::vector<c10::intrusive_ptr<QueuedWork>> all = beside;
    if (running) all.push_back(running);
    for (const Job& job : jobs) {
      if (job.work) all.push_back(job.work);
    }
    return all;
  }

  std::mutex mutex;
  std::condition_variable changed;
  c10::intrusive_ptr<QueuedWork> running;
  std::vector<c10::intrusive_ptr<QueuedWork>> beside;
  std::deque<Job> jobs;
  bool is_ending = false;
  bool is_running = false;
  int64_t issued = 0;
  int64_t unfinished = 0;  // operations, without refusals
};

}  // namespace anyaccel::comm
