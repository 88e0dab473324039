// Quantization on CUDA devices; the kernels are instances of run<...>.

#include "cuda_group.h"
#include "quantization.h"

using namespace anyaccel;
