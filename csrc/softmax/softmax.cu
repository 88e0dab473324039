// Softmax on CUDA devices; the kernels are instances of run<...>.

#include "cuda_group.h"
#include "softmax.h"

using namespace anyaccel;
