// The process-group backend "shm": c10d's interface over the collectives and the mailbox of a group.

#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "collectives.h"
#include "group.h"
#include "shm_work.h"

namespace anyaccel::comm {

using c10d::OpType;
using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

inline void check_timeout(std::chrono::milliseconds timeout) {
  TORCH_CHECK(timeout.count() > 0, "shm failed: got a timeout of ", timeout.count(),
              " ms; expected a positive one. Fix: pass timeout=timedelta(minutes=30), torch's default, or another "
              "positive one.");
}

class ShmBackend : public c10d::Backend {
 public:
  struct Options : c10d::Backend::Options {
    explicit Options(std::chrono::milliseconds timeout) : c10d::Backend::Options("shm", timeout) {}
  };

  ShmBackend(GroupPtr group, c10::intrusive_ptr<Options> options);
  ~ShmBackend() override;

  const std::string getBackendName() const override { return "shm"; }
  // Returns a copy, because splitting a group writes the new group's name and timeout into it.
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override {
    return c10::make_intrusive<Options>(*options_);
  }
  void setTimeout(std::chrono::milliseconds timeout) override {
    check_timeout(timeout);
    options_->timeout = timeout;
  }
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<c10d::Backend::Options>& options) override {
    return split_off(store, rank_, ranks, options->timeout);
  }
  // Makes the backend of a group of some of these ranks. Returns null on ranks that are not in it.
  c10::intrusive_ptr<c10d::Backend> split_off(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                              const std::vector<int>& ranks, std::chrono::milliseconds timeout);

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_splits,
                        std::vector<int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPtr send(Tensors& tensors, int to, int tag) override;
  WorkPtr recv(Tensors& tensors, int from, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;
  // Ends what has not ended, and leaves the group.
  void leave();

 private:
  // The properties of an operation besides its task.
  struct Launch {
    OpType type;
    const char* title;  // "shm:all_reduce"
    std::chrono::milliseconds timeout;
    bool is_async;
    Tensors inputs;
    Tensors outputs;
    int peer = -1;
    bool is_transfer = false;
  };
  // The position of a collective in its group's sequence, and whether it was launched.
  struct Turn {
    const uint64_t number;
    bool is_taken = false;
  };

  // Calls the body of a collective. If it throws before it launches an operation, the other ranks are told.
  template <typename Body>
  WorkPtr in_turn(const Body& body) {
    Turn turn{++sequence_};
    try {
      return body(turn);
    } catch (const std::exception& error) {
      if (!turn.is_taken) refuse(*group_, reason_of(error));
      throw;
    }
  }

  // Makes the work and then its task, which may set the work's source rank. Messages have no turn.
  WorkPtr launch(Turn* turn, Launch launch, Staging staging, const std::function<Task(Group&, int* source)>& make_task);
  WorkPtr receive(at::Tensor& tensor, int from, int tag, OpType type);

  Announcement announcement(Collective collective, const at::Tensor& like, std::optional<int64_t> root = {});
  Announcement reduction(Collective collective, const at::Tensor& like, const c10d::ReduceOp& op,
                         std::optional<int64_t> root = {});
  Part gather_all(Announcement what, const at::Tensor& input, const Tensors& outputs, Staging& staging);
  Part reduce_blocks(Announcement what, const Tensors& inputs, const at::Tensor& output, Staging& staging);

  const GroupPtr group_;
  const c10::intrusive_ptr<Options> options_;
  std::atomic<uint64_t> sequence_ = 0;
};

}  // namespace anyaccel::comm
