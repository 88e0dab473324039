// Memory, streams, events, captures and graphs of the pretended GPU, with the parts of CUDA's runtime that are about
// them.

#include "device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

using Clock = std::chrono::steady_clock;

struct CUgraph_st {
  std::vector<std::function<void()>> work;
  std::set<cudaStream_t> streams;
  unsigned long long number = 0;
  bool is_valid = true;
};

struct CUgraphExec_st {
  std::vector<std::function<void()>> work;
};

struct CUstream_st {
  int priority = 0;
};

struct CUevent_st {
  Clock::time_point at;
  cudaGraph_t captured = nullptr;  // the capture that recorded it
  bool has_time = true;
  bool is_recorded = false;
};

namespace stand_in {
namespace {

std::recursive_mutex& device() {
  static auto* const one = new std::recursive_mutex;  // never destroyed: libraries free memory as the process ends
  return *one;
}

std::map<std::uintptr_t, Block>& blocks() {
  static auto* const one = new std::map<std::uintptr_t, Block>;
  return *one;
}

// The graph that each stream records into.
std::map<cudaStream_t, cudaGraph_t>& captures() {
  static auto* const one = new std::map<cudaStream_t, cudaGraph_t>;
  return *one;
}

std::atomic<pid_t> user = 0;
std::size_t used_bytes = 0;

}  // namespace

bool use() {
  pid_t nobody = 0;
  user.compare_exchange_strong(nobody, getpid());
  return user == getpid();
}

bool is_used() { return user == getpid(); }

void* allocate(std::size_t bytes, Kind kind) {
  const std::lock_guard lock(device());
  if (kind == Kind::device && (bytes > kMostBytesAtOnce || used_bytes + bytes > kMemoryBytes)) {
    return nullptr;
  }
  void* const found = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED) {
    return nullptr;
  }
  used_bytes += kind == Kind::device ? bytes : 0;
  blocks()[reinterpret_cast<std::uintptr_t>(found)] = {bytes, kind};
  return found;
}

bool release(void* memory, Kind kind) {
  const std::lock_guard lock(device());
  const auto found = blocks().find(reinterpret_cast<std::uintptr_t>(memory));
  if (found == blocks().end() || found->second.kind != kind) {
    return false;
  }
  if (kind != Kind::registered) {
    munmap(memory, found->second.bytes);
  }
  used_bytes -= kind == Kind::device ? found->second.bytes : 0;
  blocks().erase(found);
  return true;
}

bool add_registered(void* memory, std::size_t bytes) {
  const std::lock_guard lock(device());
  return blocks().try_emplace(reinterpret_cast<std::uintptr_t>(memory), Block{bytes, Kind::registered}).second;
}

std::size_t free_bytes() {
  const std::lock_guard lock(device());
  return kMemoryBytes - used_bytes;
}

const Block* block_of(const void* address, const void*& begin) {
  const std::lock_guard lock(device());
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  auto found = blocks().upper_bound(at);
  if (found == blocks().begin() || at >= (--found)->first + found->second.bytes) {
    return nullptr;
  }
  begin = reinterpret_cast<const void*>(found->first);
  return &found->second;
}

void submit(cudaStream_t stream, std::function<void()> work) {
  const std::lock_guard lock(device());
  const auto capture = captures().find(stream);
  if (capture != captures().end()) {
    capture->second->work.push_back(std::move(work));
  } else {
    work();
  }
}

bool is_capturing(cudaStream_t stream) {
  const std::lock_guard lock(device());
  return captures().contains(stream);
}

bool may_wait(cudaStream_t stream) {
  const std::lock_guard lock(device());
  const auto capture = captures().find(stream);
  if (capture != captures().end()) {
    capture->second->is_valid = false;
    return false;
  }
  return true;
}

bool may_wait_for_all() {
  const std::lock_guard lock(device());
  for (const auto& [stream, graph] : captures()) {
    graph->is_valid = false;
  }
  return captures().empty();
}

void record_event(cudaStream_t stream, cudaEvent_t event) {
  const std::lock_guard lock(device());
  const auto capture = captures().find(stream);
  event->captured = capture == captures().end() ? nullptr : capture->second;
  event->is_recorded = event->captured == nullptr;
  event->at = Clock::now();
}

void wait_event(cudaStream_t stream, cudaEvent_t event) {
  const std::lock_guard lock(device());
  if (event->captured != nullptr) {  // the stream joins the capture
    captures()[stream] = event->captured;
    event->captured->streams.insert(stream);
  }
}

}  // namespace stand_in

using namespace stand_in;

STAND_IN_EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned, int priority) {
  *stream = new CUstream_st{priority};
  return cudaSuccess;
}

STAND_IN_EXPORT cudaError_t cudaStreamGetPriority(cudaStream_t stream, int* priority) {
  *priority = stream == nullptr ? 0 : stream->priority;
  return cudaSuccess;
}

STAND_IN_EXPORT cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}

STAND_IN_EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  *event = new CUevent_st{{}, nullptr, (flags & cudaEventDisableTiming) == 0, false};
  return cudaSuccess;
}

STAND_IN_EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

STAND_IN_EXPORT cudaError_t cudaEventQuery(cudaEvent_t event) {
  return event->captured == nullptr ? cudaSuccess : cudaErrorCapturedEvent;
}

STAND_IN_EXPORT cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  if (!begin->has_time || !end->has_time || !begin->is_recorded || !end->is_recorded) {
    return cudaErrorInvalidResourceHandle;
  }
  *ms = std::chrono::duration<float, std::milli>(end->at - begin->at).count();
  return cudaSuccess;
}

STAND_IN_EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  static unsigned long long count = 0;
  const std::lock_guard lock(device());
  if (stream == nullptr || captures().contains(stream)) {
    return cudaErrorStreamCaptureUnsupported;
  }
  auto graph = std::make_unique<CUgraph_st>();
  graph->streams.insert(stream);
  graph->number = ++count;
  captures()[stream] = graph.release();  // the caller's, from cudaStreamEndCapture on
  return cudaSuccess;
}

STAND_IN_EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const std::lock_guard lock(device());
  const auto capture = captures().find(stream);
  if (capture == captures().end()) {
    return cudaErrorIllegalState;
  }
  *graph = capture->second;
  for (cudaStream_t joined : (*graph)->streams) {
    captures().erase(joined);
  }
  if (!(*graph)->is_valid) {
    delete *graph;
    *graph = nullptr;
    return cudaErrorStreamCaptureInvalidated;
  }
  return cudaSuccess;
}

STAND_IN_EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus* status) {
  *status = is_capturing(stream) ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  return cudaSuccess;
}

STAND_IN_EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                                     unsigned long long* id, cudaGraph_t* graph,
                                                     const cudaGraphNode_t** nodes, const cudaGraphEdgeData** edges,
                                                     std::size_t* node_count) {
  const std::lock_guard lock(device());
  const auto capture = captures().find(stream);
  const bool is_active = capture != captures().end();
  *status = is_active ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  const auto give = [](auto* place, auto value) {
    if (place != nullptr) {
      *place = value;
    }
  };
  give(id, is_active ? capture->second->number : 0);
  give(graph, is_active ? capture->second : nullptr);
  give(nodes, nullptr);
  give(edges, nullptr);
  give(node_count, 0);
  return cudaSuccess;
}

STAND_IN_EXPORT cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* made, cudaGraph_t graph,
                                                          unsigned long long) {
  *made = new CUgraphExec_st{graph->work};
  return cudaSuccess;
}

STAND_IN_EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
  for (const auto& work : graph->work) {
    submit(stream, work);
  }
  return cudaSuccess;
}

STAND_IN_EXPORT cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t*, std::size_t* count) {
  *count = graph->work.size();
  return cudaSuccess;
}

STAND_IN_EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

STAND_IN_EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
  delete graph;
  return cudaSuccess;
}
