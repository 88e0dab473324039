// Messages in a group between hosts: by memory inside a host, by gloo between them. They have no place in the order of
// collectives, and do not pass through the queue.

#include "spanning_backend.h"
#include "spanning_checks.h"

namespace anyaccel::comm {
namespace {

void check_tag(const char* operation, int tag) {
  TORCH_CHECK(tag >= 0 && tag < Heads::kFirstTag, "shm ", operation, " failed: got tag ", tag,
              "; expected one of 0 to 2^31 - 2^21 - 2. Fix: pass a tag in this range.");
}

}  // namespace

void SpanningBackend::check_peer(const char* operation, int peer, int tag) const {
  check_rank(operation, peer, size_);
  check_tag(operation, tag);
  TORCH_CHECK(peer != rank_, "shm ", operation, " failed: got this rank's own number, ", peer,
              "; expected another rank of the group. Fix: pass another rank; within one process, copy the tensor with "
              "tensor.clone().");
  require_usable();
}

WorkPtr SpanningBackend::send(Tensors& tensors, int to, int tag) {
  const at::Tensor& tensor = only("send", tensors);
  check_peer("send", to, tag);
  if (is_here(to)) return local_->send(tensors, local_rank_of(to), tag);
  check_dense(tensor);
  Tensors sent{is_plain(tensor) ? tensor : plain(tensor)};  // gloo sends every dtype as bytes
  WorkPtr message = everyone_->send(sent, to, tag);
  any_source_->count_sent(to, tag);
  return c10::make_intrusive<MessageWork>(OpType::SEND, group_, messages_, std::move(message),
                                          getBackendOptions()->timeout, tensor, tensor);
}

WorkPtr SpanningBackend::receive_between(const at::Tensor& output, const std::function<WorkPtr(Tensors&)>& receive) {
  check_output(output);
  const at::Tensor arrived = is_plain(output) ? output : at::empty(output.sizes(), output.options());
  Tensors into{arrived};
  return c10::make_intrusive<MessageWork>(OpType::RECV, group_, messages_, receive(into), getBackendOptions()->timeout,
                                          arrived, output);
}

WorkPtr SpanningBackend::recv(Tensors& tensors, int from, int tag) {
  const at::Tensor& tensor = only("recv", tensors);
  check_peer("recv", from, tag);
  if (is_here(from)) return local_->recv(tensors, local_rank_of(from), tag);
  return receive_between(tensor, [&](Tensors& into) {
    any_source_->count_received(from, tag);
    return everyone_->recv(into, from, tag);
  });
}

WorkPtr SpanningBackend::recvAnysource(Tensors& tensors, int tag) {
  const at::Tensor& tensor = only("recv", tensors);
  check_tag("recv", tag);
  require_usable();
  if (hosts_.ranks[hosts_.own].size() > 1) {
    check_output(tensor);
    return any_source_->receive(tensor, tag, getBackendOptions()->timeout);
  }
  if (tensor.numel() == 0) {  // from any rank, gloo receives nothing only into memory that there is
    check_output(tensor);
    Tensors into{at::empty({1}, at::kByte)};
    return c10::make_intrusive<MessageWork>(OpType::RECVANYSOURCE, group_, messages_,
                                            everyone_->recvAnysource(into, tag), getBackendOptions()->timeout, tensor,
                                            tensor);
  }
  return receive_between(tensor, [&](Tensors& into) { return everyone_->recvAnysource(into, tag); });
}

}  // namespace anyaccel::comm
