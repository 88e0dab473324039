#pragma once

#include <torch/types.h>

#ifdef WITH_CUDA
// Like scale(), for tensors on a CUDA device.
torch::Tensor scale_cuda(const torch::Tensor& input, double factor);
#endif
