// A group whose ranks are on several hosts: shared memory inside each, and another backend (gloo) between them.
//
// all_reduce, reduce and broadcast go through the first ranks of the hosts; the head of a broadcast comes from its
// root. What each rank sends to each other rank goes directly there: through memory inside a host, as messages between
// hosts. In all_gather of equal parts, each rank sends to the ranks with its number on the other hosts.

#pragma once

#include <functional>
#include <optional>

#include "agreement.h"
#include "message_work.h"
#include "shm_backend.h"
#include "spanning_any_source.h"
#include "spanning_heads.h"
#include "spanning_notices.h"
#include "torch_wire.h"

namespace anyaccel::comm {

// Where the ranks of a group are.
struct Hosts {
  std::vector<std::vector<int>> ranks;  // by host
  int own;                              // this rank's host
  std::vector<std::string> identities;  // the identity of each rank's host
};

class SpanningBackend : public c10d::Backend {
 public:
  // `leaders` connects the first ranks of the hosts, in their order, and is null on every other rank; `everyone`
  // connects all ranks.
  SpanningBackend(int rank, int size, Hosts hosts, GroupPtr group, c10::intrusive_ptr<ShmBackend> local,
                  c10::intrusive_ptr<c10d::Backend> leaders, c10::intrusive_ptr<c10d::Backend> everyone);
  ~SpanningBackend() override;

  const std::string getBackendName() const override { return "shm"; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return local_->getBackendOptions(); }
  void setTimeout(std::chrono::milliseconds timeout) override;
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<c10d::Backend::Options>& options) override {
    return local_->split_off(store, rank_, ranks, options->timeout);
  }
  const Hosts& hosts() const { return hosts_; }

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
  // Like gloo's, the error of rank 0 names the missing ranks, all of them or the first.
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_; }
  c10d::ErrorType getError() override { return local_->getError(); }
  void abort() override;
  void shutdown() override;

 private:
  void leave();
  struct Queue;

  // Whether a collective was queued.
  struct Turn {
    bool is_taken = false;
  };

  // Calls the body of a collective. If it throws before it queues an operation, the other ranks are told.
  template <typename Body>
  WorkPtr in_turn(const Body& body) {
    Turn turn;
    try {
      return body(turn);
    } catch (const std::exception& error) {
      if (!turn.is_taken) refuse(reason_of(error));
      throw;
    }
  }

  // Queues an operation, which runs on the queue's thread in its turn.
  struct Queued {
    OpType type;
    const char* title;
    bool is_async;
    Tensors inputs;
    Tensors outputs;
  };
  // The arguments that must be equal on every rank. `digest` is a hash of those that are not one number: sizes of
  // parts.
  struct Request {
    Collective collective;
    at::ScalarType type;
    int64_t count;
    Reduction reduction = Reduction::kNone;
    int64_t root = -1;
    int64_t digest = 0;
    int64_t parts = 0;  // of a coalesced operation, of which this is one
  };

  WorkPtr enqueue(Turn& turn, Queued what, std::function<void()> run);
  void refuse(const std::string& reason);
  void wait_for_queued_operations();
  void require_usable() const;
  void check_peer(const char* operation, int peer, int tag) const;
  WorkPtr receive_between(const at::Tensor& output, const std::function<WorkPtr(Tensors&)>& receive);
  void run_in_step(const std::function<void()>& run);
  void meet_at_rank_0(milliseconds timeout, bool wait_all_ranks);
  // Of gloo's messages, whose own timeout is that of the group's start.
  milliseconds longest_wait() { return std::min(getBackendOptions()->timeout, kForever); }
  // Lets the operations of other hosts end with this host's failure, instead of at their timeout.
  void tell_other_hosts(const std::string& failure);
  int64_t most_ranks_of_a_host() const;
  // Throws MismatchError on every rank of every host unless all were asked for the same; a rank that has refused does
  // not throw. Returns what each rank has sent along, a row of bytes for each. `heads` are what this rank has begun.
  at::Tensor agree(const Request& request, const at::Tensor& rider = {}, Heads* heads = nullptr);
  // The same for a coalesced operation, in one round if all of its parts match.
  void agree_on_each(std::vector<Request> requests);
  // The same, also for the sizes that each rank sends to and expects from every other.
  void agree_on_sizes(const Request& request, const Tensors& sends, const Tensors& receives, Heads& heads);
  // Whether what each rank sends and receives travels with what it says to agree.
  bool do_sizes_ride() const;
  Heads::Lengths exchanged_by(const at::Tensor& rider, int64_t item_bytes) const;
  // The bytes of a broadcast that its root sends to the first rank of each other host before the ranks agree.
  int64_t broadcast_head(int64_t count, int64_t item_bytes) const;
  bool starts_broadcast(int64_t root, int from, int to) const;
  Heads no_heads();
  void between_hosts(const std::function<WorkPtr(c10d::Backend&)>& call);

  void broadcast_in_place(const at::Tensor& tensor, int64_t root);
  // Sends to every rank, or, if there is a root, to the root's host.
  void reduce_in_place(const at::Tensor& tensor, const c10d::ReduceOp& op, int64_t root = -1);
  void reduce_hierarchically(const at::Tensor& flat, const c10d::ReduceOp& op, int64_t root);
  void reduce_by_gathering(const at::Tensor& flat, const c10d::ReduceOp& op);
  at::Tensor gather_everywhere(const at::Tensor& input);
  at::Tensor gather_here(const at::Tensor& bytes);
  at::Tensor spread_here(const at::Tensor& all);
  // Sends a tensor to each rank, some of which may be empty, and receives one from each. `heads` have been begun.
  void exchange(const Tensors& sends, const Tensors& receives, Heads heads);
  void all_gather(const at::Tensor& input, const Tensors& outputs);
  void gather_by_places(const at::Tensor& input, const Tensors& outputs);
  void sum_sparse(const at::Tensor& tensor);
  Request gathering(const at::Tensor& input, const Tensors& outputs) const;
  Request scattering(const Tensors& inputs, const at::Tensor& output, const c10d::ReduceOp& op) const;
  WorkPtr gather_each(Turn& turn, Queued what, std::vector<Tensors> results);
  WorkPtr scatter_each(Turn& turn, Queued what, std::vector<Tensors> given, const c10d::ReduceOp& op);
  WorkPtr exchange_each(Turn& turn, Queued what, Request request, Tensors sends, Tensors receives);

  int64_t host_of(int64_t rank) const { return places_[rank].first; }
  int local_rank_of(int64_t rank) const { return places_[rank].second; }
  bool is_here(int64_t rank) const { return host_of(rank) == hosts_.own; }
  bool leads() const { return leaders_.defined(); }

  const Hosts hosts_;
  std::vector<std::pair<int, int>> places_;  // of each rank: its host, and its number there
  bool are_hosts_alike_ = true;              // whether each has as many ranks
  const GroupPtr group_;
  const c10::intrusive_ptr<ShmBackend> local_;
  const c10::intrusive_ptr<c10d::Backend> leaders_;
  const c10::intrusive_ptr<c10d::Backend> everyone_;
  TorchWire leaders_wire_, everyone_wire_;
  const std::shared_ptr<OpenMessages> messages_;
  const std::shared_ptr<AnySource> any_source_;
  std::optional<Notices> notices_;  // of the first ranks of the hosts
  std::atomic<uint64_t> sequence_ = 0;
  int64_t number_ = 0;  // of the operation that runs

  // Outlives the backend while its thread waits for another host.
  const std::shared_ptr<Queue> queue_;
};

}  // namespace anyaccel::comm
