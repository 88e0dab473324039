// From tensors to contiguous memory and back.

#pragma once

#include <ATen/ATen.h>

#include <utility>
#include <vector>

#include "collectives.h"

namespace anyaccel::comm {

Dtype dtype_of(const at::Tensor& tensor);

// Whether the elements lie in memory as they follow one another.
inline bool is_plain(const at::Tensor& tensor) {
  return tensor.is_contiguous() && !tensor.is_conj() && !tensor.is_neg();
}

// Throws unless a tensor is dense and on the CPU.
void check_dense(const at::Tensor& tensor);
// Throws where elements of an output may share memory.
void check_writable(const at::Tensor& tensor);

// Keeps the tensors of an operation alive, and stands in for those that do not lie in memory as their elements follow
// one another: strided ones, and lazy conjugates. Sparse, quantized and other devices' tensors are refused.
class Staging {
 public:
  Block input(const at::Tensor& tensor);
  Block output(const at::Tensor& tensor);
  Block in_out(const at::Tensor& tensor);

  // Writes what stood in for outputs back to them.
  void copy_back();
  void release();

 private:
  Block keep(at::Tensor tensor);

  std::vector<at::Tensor> kept_;
  std::vector<std::pair<at::Tensor, at::Tensor>> stand_ins_;  // the output, and what is written in its place
};

}  // namespace anyaccel::comm
