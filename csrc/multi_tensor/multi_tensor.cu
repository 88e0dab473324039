// Multi-tensor operations on CUDA devices; the kernels are instances of run<...>.

#include "cuda_group.h"
#include "multi_tensor.h"

using namespace anyaccel;
