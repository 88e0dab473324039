// The backend of torch's tutorial on custom process groups: it writes zeros, and every operation finishes at once.

#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace {

using Tensors = std::vector<at::Tensor>;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// An operation that has already finished.
class DummyWork : public c10d::Work {
 public:
  DummyWork(int rank, c10d::OpType type, const Tensors& outputs)
      : Work(rank, type), future_(c10::make_intrusive<c10::ivalue::Future>(c10::ListType::ofTensors())) {
    future_->markCompleted(c10::IValue(outputs));
    finish();
  }
  bool wait(std::chrono::milliseconds) override { return true; }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override { return future_; }

 private:
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

class DummyBackend : public c10d::Backend {
 public:
  DummyBackend(int rank, int size) : Backend(rank, size) {}

  const std::string getBackendName() const override { return "dummy"; }

  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions&) override {
    return zeros(c10d::OpType::ALLREDUCE, tensors);
  }
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors&, const c10d::AllgatherOptions&) override {
    return zeros(c10d::OpType::ALLGATHER, outputs.at(0));
  }
  WorkPtr barrier(const c10d::BarrierOptions&) override { return zeros(c10d::OpType::BARRIER, {}); }

  // Functions that a backend does not override raise with its name: "Backend dummy does not support broadcast".

 private:
  WorkPtr zeros(c10d::OpType type, Tensors outputs) {
    for (at::Tensor& output : outputs) output.zero_();
    return c10::make_intrusive<DummyWork>(getRank(), type, outputs);
  }
};

// torch calls a backend's creator with these arguments.
c10::intrusive_ptr<c10d::Backend> create(const c10::intrusive_ptr<c10d::Store>&, int rank, int size,
                                         std::chrono::milliseconds) {
  return c10::make_intrusive<DummyBackend>(rank, size);
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  pybind11::module_::import("torch.distributed");  // registers the types of the arguments
  module.def("create", &create);
}
