#pragma once

#include <ATen/core/Tensor.h>

#ifdef WITH_CUDA
// Like scale(), for tensors on a CUDA device.
at::Tensor scale_cuda(const at::Tensor& input, double factor);
#endif
