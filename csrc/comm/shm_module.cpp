// The Python module: a function that makes the backend.

#include <pybind11/chrono.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "exit_gate.h"
#include "handshake.h"
#include "spanning_backend.h"
#include "spanning_checks.h"

namespace anyaccel::comm {
namespace {

namespace py = pybind11;
using c10d::Backend;

void raise_pending_signal() {
  if (gettid() != getpid() || !Py_IsInitialized()) return;  // Python handles signals on its main thread only
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() != 0) throw py::error_already_set();
}

// Lets callbacks that are due run, and then no thread of ours touch Python's objects any more.
void before_python_ends() {
  constexpr milliseconds kPatience{2000};
  const py::gil_scoped_release released;
  Callbacks::instance().finish(kPatience);
  ExitGate::instance().close(kPatience);
}

// A store that polls for keys, so that Ctrl-C is handled between polls.
class TorchStore final : public KeyValues {
 public:
  TorchStore(c10::intrusive_ptr<c10d::Store> store, int rank, std::chrono::milliseconds timeout)
      : store_(std::move(store)),
        generation_(store_->add("shm/made/" + std::to_string(rank), 1)),
        until_(end_of(timeout)) {}

  // How often this rank has made a group on this store. It is part of the keys, so that keys of earlier groups are
  // ignored.
  int64_t generation() const { return generation_; }

  void set(const std::string& name, const std::string& value) override {
    store_->set(key_of(name), std::vector<uint8_t>(value.begin(), value.end()));
  }
  std::string get(const std::string& name) override {
    const std::string key = key_of(name);
    std::chrono::milliseconds nap{1};
    while (!store_->check({key})) {  // some stores log a warning if a wait times out
      raise_pending_signal();
      if (Clock::now() >= until_) {
        throw CommError("shm init_process_group timed out: rank " + name.substr(name.rfind('/') + 1) +
                        " did not connect. Fix: check that it is running, or pass a longer timeout to "
                        "init_process_group.");
      }
      std::this_thread::sleep_for(nap);
      nap = std::min(nap * 2, std::chrono::milliseconds(50));
    }
    const std::vector<uint8_t> value = store_->get(key);
    return {value.begin(), value.end()};
  }

  bool has(const std::string& name) override { return store_->check({key_of(name)}); }

 private:
  std::string key_of(const std::string& name) const { return name + "/" + std::to_string(generation_); }

  const c10::intrusive_ptr<c10d::Store> store_;
  const int64_t generation_;
  const Clock::time_point until_;
};

// Waits until every rank of every host has connected to all others: one that ends earlier would end a connection that
// another one still makes.
void wait_for_hosts(TorchStore& store, const Hosts& hosts, ShmBackend& local) {
  const auto key = [](const std::vector<int>& ranks) { return "shm/connected/" + std::to_string(ranks[0]); };
  finish(local.barrier(c10d::BarrierOptions()));
  if (local.getRank() == 0) {
    store.set(key(hosts.ranks[hosts.own]), "yes");
    for (const std::vector<int>& ranks : hosts.ranks) store.get(key(ranks));
  }
  finish(local.barrier(c10d::BarrierOptions()));
}

// Connects to the other ranks. Returns when all are connected.
c10::intrusive_ptr<Backend> create(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                                   std::chrono::milliseconds timeout, const std::vector<int64_t>& global_ranks,
                                   const std::string& host, const py::function& make_gloo) {
  const int global_rank = global_ranks.empty() ? rank : static_cast<int>(global_ranks.at(rank));
  TORCH_CHECK(size <= kMaxWorld, "shm failed: got ", size, " ranks; expected at most ", kMaxWorld,
              ". Fix: start fewer ranks, or pass backend=\"gloo\".");
  check_timeout(timeout);
  Hosts hosts{};
  std::string problem;
  std::optional<TorchStore> values;
  GroupPtr group;
  c10::intrusive_ptr<ShmBackend> local;
  {
    const py::gil_scoped_release released;
    values.emplace(store, rank, timeout);
    try {
      Meeting meeting = meet(*values, {rank, size, host_identity() + "/" + host}, timeout, raise_pending_signal);
      problem = std::move(meeting.problem);
      hosts.ranks = std::move(meeting.hosts);
      hosts.identities = std::move(meeting.identities);
      int own_index = 0;
      for (std::size_t i = 0; i < hosts.ranks.size(); ++i) {
        const auto& ranks = hosts.ranks[i];
        const auto found = std::find(ranks.begin(), ranks.end(), rank);
        if (found == ranks.end()) continue;
        hosts.own = static_cast<int>(i);
        own_index = static_cast<int>(found - ranks.begin());
      }
      group = std::make_shared<Group>(std::move(meeting.segment), own_index, global_rank);
      group->call_ranks(hosts.ranks[hosts.own]);
      Clock::time_point next_look{};
      group->wait_for_all(timeout, [&] {
        raise_pending_signal();
        if (Clock::now() < next_look) return;
        next_look = Clock::now() + kSupervision;
        require_success(*values, hosts.ranks[hosts.own]);
      });
    } catch (const CommError& error) {
      throw_backend_error(error.what());
    }
    auto options = c10::make_intrusive<ShmBackend::Options>(timeout);
    for (const int64_t one : global_ranks) options->global_ranks_in_group.push_back(static_cast<uint64_t>(one));
    local = c10::make_intrusive<ShmBackend>(group, std::move(options));
  }
  if (!problem.empty()) {
    const std::string text = problem + ". The ranks of this host share no memory: gloo serves them.";
    if (PyErr_WarnEx(PyExc_RuntimeWarning, text.c_str(), 1) != 0) throw py::error_already_set();
  }
  if (hosts.ranks.size() == 1) return local;
  const auto connect = [&](const std::string& whom, int number, int count) {
    return make_gloo("shm/" + whom + "/" + std::to_string(values->generation()), number, count)
        .cast<c10::intrusive_ptr<Backend>>();
  };
  c10::intrusive_ptr<Backend> leaders;
  if (group->rank() == 0) leaders = connect("leaders", hosts.own, static_cast<int>(hosts.ranks.size()));
  c10::intrusive_ptr<Backend> everyone = connect("everyone", rank, size);
  {
    const py::gil_scoped_release released;
    try {
      wait_for_hosts(*values, hosts, *local);
    } catch (const CommError& error) {
      throw_backend_error(error.what());
    }
  }
  return c10::make_intrusive<SpanningBackend>(rank, size, std::move(hosts), std::move(group), std::move(local),
                                              std::move(leaders), std::move(everyone));
}

// The ranks of each host, and what names the host of each rank; empty for a group whose ranks all share memory, and
// None for another backend's.
py::object hosts_of_backend(const c10::intrusive_ptr<Backend>& backend) {
  if (const auto* spanning = dynamic_cast<const SpanningBackend*>(backend.get())) {
    return py::cast(std::make_pair(spanning->hosts().ranks, spanning->hosts().identities));
  }
  if (dynamic_cast<const ShmBackend*>(backend.get()) == nullptr) return py::none();
  return py::cast(std::make_pair(std::vector<std::vector<int>>(), std::vector<std::string>()));
}

}  // namespace

// Called when a group of these ranks is created.
c10::intrusive_ptr<Backend> ShmBackend::split_off(const c10::intrusive_ptr<c10d::Store>& store, int rank,
                                                  const std::vector<int>& ranks, std::chrono::milliseconds timeout) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  if (found == ranks.end()) return nullptr;
  const std::vector<uint64_t>& known = options_->global_ranks_in_group;
  std::vector<int64_t> global_ranks;
  for (const int one : ranks) global_ranks.push_back(known.empty() ? one : static_cast<int64_t>(known.at(one)));
  const py::gil_scoped_acquire gil;
  return py::module_::import("anyaccel.distributed.shm")
      .attr("create")(store, found - ranks.begin(), ranks.size(), timeout, global_ranks)
      .cast<c10::intrusive_ptr<Backend>>();
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  py::module_::import("torch.distributed");  // registers the types of the arguments
  interrupt = raise_pending_signal;
  module.def("create", &create, py::arg("store"), py::arg("rank"), py::arg("size"), py::arg("timeout"),
             py::arg("global_ranks"), py::arg("host"), py::arg("make_gloo"));
  module.def("before_python_ends", &before_python_ends);
  module.def("hosts", &hosts_of_backend, py::arg("backend"));
}

}  // namespace anyaccel::comm
