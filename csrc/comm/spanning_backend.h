// A group whose ranks are on several hosts: shared memory inside each, another backend (gloo) between their first
// ranks.
//
// all_reduce, broadcast, all_gather, reduce_scatter and barrier; the rest raises, as c10d's own default does.

#pragma once

#include <functional>

#include "agreement.h"
#include "shm_backend.h"

namespace anyaccel::comm {

// Where the ranks of a group are.
struct Hosts {
  std::vector<std::vector<int>> ranks;  // by host
  int own;                              // this rank's host
};

class SpanningBackend : public c10d::Backend {
 public:
  // `leaders` connects the first ranks of the hosts, in their order; null on every other rank.
  SpanningBackend(int rank, int size, Hosts hosts, GroupPtr group, c10::intrusive_ptr<ShmBackend> local,
                  c10::intrusive_ptr<c10d::Backend> leaders);
  ~SpanningBackend() override;

  const std::string getBackendName() const override { return "shm"; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return local_->getBackendOptions(); }
  void setTimeout(std::chrono::milliseconds timeout) override;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;

  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  c10d::ErrorType getError() override { return local_->getError(); }
  void abort() override;
  void shutdown() override;

 private:
  struct Queue;

  // The place of an operation in the order of the group; one that is refused, by an exception before, counts too.
  struct Turn {
    explicit Turn(Queue& of) : queue(of) {}
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    ~Turn();

    Queue& queue;
    bool is_taken = false;
  };

  WorkPtr enqueue(Turn& turn, OpType type, const char* title, const Tensors& inputs, const Tensors& outputs,
                  bool is_async, std::function<void()> run);
  void run_in_step(const std::function<void()>& run);
  // Throws MismatchError on every rank of every host unless all were asked for the same.
  void agree(Collective collective, const at::Tensor& tensor, int64_t count, Reduction reduction, int64_t root);
  void reduce_in_place(const at::Tensor& tensor, const c10d::ReduceOp& op);
  void broadcast_in_place(const at::Tensor& tensor, int64_t root);
  void between_hosts(const std::function<WorkPtr(c10d::Backend&)>& call);
  void reduce_everywhere(at::Tensor tensor, const c10d::ReduceOp& op);
  at::Tensor gather_everywhere(const at::Tensor& input);
  WorkPtr scatter_sums(Turn& turn, const at::Tensor& output, const Tensors& given,
                       const c10d::ReduceScatterOptions& options);

  bool leads() const { return leaders_.defined(); }

  const Hosts hosts_;
  const GroupPtr group_;
  const c10::intrusive_ptr<ShmBackend> local_;
  const c10::intrusive_ptr<c10d::Backend> leaders_;
  std::atomic<uint64_t> sequence_ = 0;
  int64_t number_ = 0;  // of the operation that runs

  // Outlives the backend while its thread waits for another host.
  const std::shared_ptr<Queue> queue_;
};

}  // namespace anyaccel::comm
