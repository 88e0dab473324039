// Adam on CUDA devices; the kernels are instances of run<...>.

#include "cuda_group.h"
#include "multi_tensor_adam.h"

using namespace anyaccel;
