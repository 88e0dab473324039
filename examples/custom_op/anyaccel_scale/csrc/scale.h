#pragma once

#include <torch/types.h>

#ifdef WITH_CUDA
// The same as scale(), for tensors on a CUDA device.
torch::Tensor scale_cuda(const torch::Tensor& input, double factor);
#endif
