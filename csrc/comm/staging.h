// Copies tensors to contiguous memory and back.

#pragma once

#include <ATen/ATen.h>

#include <utility>
#include <vector>

#include "collectives.h"

namespace anyaccel::comm {

Dtype dtype_of(const at::Tensor& tensor);

// Returns whether the elements are in memory in their logical order, without gaps.
inline bool is_plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg() && !tensor._is_zerotensor();
}

// Throws unless a tensor is dense, on the CPU, and inside its storage, which may have been freed.
void check_dense(const at::Tensor& tensor);
// Throws if elements of an output may share memory.
void check_writable(const at::Tensor& tensor);

// The input of a gathering, or a copy if it overlaps an output other than this rank's own place, which may be written
// before the input has been read.
at::Tensor apart_from_outputs(const at::Tensor& input, const std::vector<at::Tensor>& outputs, std::size_t own);

// The same for an input for each rank, of which this rank's own may be its own output, or the only one.
std::vector<at::Tensor> apart_from_outputs(const std::vector<at::Tensor>& inputs,
                                           const std::vector<at::Tensor>& outputs, std::size_t own);

// Keeps the tensors of an operation alive, and makes contiguous copies of those that need one: strided tensors and lazy
// conjugates. Refuses sparse and quantized tensors, and tensors on other devices.
class Staging {
 public:
  Block input(const at::Tensor& tensor);
  Block output(const at::Tensor& tensor);
  Block in_out(const at::Tensor& tensor);
  // The same by a copy, for a tensor that shares elements with another one of the operation.
  Block in_out_apart(const at::Tensor& tensor);

  // Copies results back to the outputs that have a copy.
  void copy_back();
  void release();

 private:
  Block keep(at::Tensor tensor);

  std::vector<at::Tensor> kept_;
  Block stand_in_for(const at::Tensor& tensor);

  std::vector<std::pair<at::Tensor, at::Tensor>> stand_ins_;  // the output, and its contiguous copy
};

}  // namespace anyaccel::comm
