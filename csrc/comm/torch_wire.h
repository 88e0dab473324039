// A torch backend as a wire.

#pragma once

#include <utility>

#include "shm_backend.h"
#include "wire.h"

namespace anyaccel::comm {

class TorchWire final : public Wire {
 public:
  explicit TorchWire(c10::intrusive_ptr<c10d::Backend> backend) : backend_(std::move(backend)) {}

  MessagePtr send(const unsigned char* data, std::int64_t bytes, int to, int tag) override {
    Tensors one{bytes_at(const_cast<unsigned char*>(data), bytes)};  // which only reads it
    return std::make_unique<TorchMessage>(backend_->send(one, to, tag));
  }
  MessagePtr receive(unsigned char* data, std::int64_t bytes, int from, int tag) override {
    Tensors one{bytes_at(data, bytes)};
    return std::make_unique<TorchMessage>(backend_->recv(one, from, tag));
  }

 private:
  struct TorchMessage final : Message {
    explicit TorchMessage(WorkPtr begun) : work(std::move(begun)) {}
    void wait(milliseconds timeout) override { work->wait(timeout); }
    const WorkPtr work;
  };
  static at::Tensor bytes_at(unsigned char* data, std::int64_t bytes) {
    return at::from_blob(data, {bytes}, at::kByte);
  }

  const c10::intrusive_ptr<c10d::Backend> backend_;
};

}  // namespace anyaccel::comm
