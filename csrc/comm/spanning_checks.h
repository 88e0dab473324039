// Checks that the operations of a group between hosts share. Errors that concern one rank only are raised before that
// rank communicates with others.

#pragma once

#include <limits>
#include <numeric>

#include "shm_backend.h"
#include "staging.h"
#include "tensor_blocks.h"

namespace anyaccel::comm {

constexpr int kExchangeTag =
    std::numeric_limits<int>::max();        // of parts of collectives; users' messages cannot have it
constexpr int kNoteTag = kExchangeTag - 1;  // of questions and answers about messages: spanning_any_source.h
constexpr int kMonitorTag = kNoteTag - 1;   // of monitored barriers
constexpr std::size_t kRiderBytes = 512;    // the extra data that each rank may send with its arguments
constexpr int64_t kSparse = -1;             // in the place of a digest

inline void finish(const WorkPtr& work) { work->wait(kNoTimeout); }

template <typename Options>
Options inline_options() {
  Options options;
  options.asyncOp = false;
  return options;
}

inline at::Tensor plain(const at::Tensor& tensor) { return tensor.resolve_conj().resolve_neg().contiguous(); }

// Movement needs no arithmetic, so that any dtype can travel as bytes.
inline at::Tensor as_bytes(const at::Tensor& plain) {
  return plain.as_strided({plain.numel()}, {1}).view(at::kByte);  // a single element may have any stride
}

inline void check_reducible(const char* operation, const at::Tensor& tensor, const c10d::ReduceOp& op) {
  check_dense(tensor);
  check_reduction(operation, tensor, op);
  scale_of(op);
}

inline void check_output(const at::Tensor& tensor) {
  check_dense(tensor);
  check_writable(tensor);
}

inline int64_t elements_of(const Tensors& tensors) {
  return std::accumulate(tensors.begin(), tensors.end(), int64_t{0},
                         [](int64_t sum, const at::Tensor& one) { return sum + one.numel(); });
}

// A hash of the sizes of parts, which must be equal on every rank; 0 if all parts have one size.
inline int64_t digest_of_sizes(const Tensors& tensors) {
  uint64_t digest = 0xcbf29ce484222325;
  bool is_even = true;
  for (const at::Tensor& one : tensors) {
    digest = (digest ^ static_cast<uint64_t>(one.numel())) * 0x100000001b3;
    is_even = is_even && one.numel() == tensors[0].numel();
  }
  return is_even ? 0 : static_cast<int64_t>(digest >> 1 | 1);
}

}  // namespace anyaccel::comm
